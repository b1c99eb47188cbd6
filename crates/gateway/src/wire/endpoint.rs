//! Endpoints that are forwarded, and the API that each belongs to.

/// API that a client speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Dialect {
    /// OpenAI's API.
    OpenAi,
    /// Anthropic's API.
    Anthropic,
}

/// An endpoint of one of the APIs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Endpoint {
    /// OpenAI's chat completions.
    Chat,
    /// OpenAI's completions.
    Completions,
    /// OpenAI's embeddings.
    Embeddings,
    /// OpenAI's responses.
    Responses,
    /// Anthropic's messages.
    Messages,
    /// Anthropic's token count of a message, which generates nothing.
    CountTokens,
}

impl Endpoint {
    /// All endpoints.
    pub const ALL: [Endpoint; 6] = [
        Endpoint::Chat,
        Endpoint::Completions,
        Endpoint::Embeddings,
        Endpoint::Responses,
        Endpoint::Messages,
        Endpoint::CountTokens,
    ];

    /// The endpoint at `path`. The version prefix is optional, because some clients omit it.
    #[must_use]
    pub fn at(path: &str) -> Option<Endpoint> {
        let rest = path.strip_prefix("/v1").unwrap_or(path);
        Endpoint::ALL.into_iter().find(|known| known.path() == rest)
    }

    /// Path below the API's version.
    #[must_use]
    pub const fn path(self) -> &'static str {
        match self {
            Endpoint::Chat => "/chat/completions",
            Endpoint::Completions => "/completions",
            Endpoint::Embeddings => "/embeddings",
            Endpoint::Responses => "/responses",
            Endpoint::Messages => "/messages",
            Endpoint::CountTokens => "/messages/count_tokens",
        }
    }

    /// The API that it belongs to.
    #[must_use]
    pub const fn dialect(self) -> Dialect {
        match self {
            Endpoint::Messages | Endpoint::CountTokens => Dialect::Anthropic,
            _ => Dialect::OpenAi,
        }
    }

    /// Whether its responses contain generated tokens.
    #[must_use]
    pub const fn generates(self) -> bool {
        !matches!(self, Endpoint::Embeddings | Endpoint::CountTokens)
    }
}
