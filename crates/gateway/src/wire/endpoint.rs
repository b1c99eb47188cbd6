//! The addresses that are forwarded, and whose API each belongs to.

/// Whose API a client speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Dialect {
    /// OpenAI's.
    OpenAi,
    /// Anthropic's.
    Anthropic,
}

/// What is asked for.
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
    /// Anthropic's count of a message's tokens, which generates nothing.
    CountTokens,
}

impl Endpoint {
    /// Every endpoint.
    pub const ALL: [Endpoint; 6] = [
        Endpoint::Chat,
        Endpoint::Completions,
        Endpoint::Embeddings,
        Endpoint::Responses,
        Endpoint::Messages,
        Endpoint::CountTokens,
    ];

    /// The endpoint at `path`, with or without the API's version: some clients leave it out.
    #[must_use]
    pub fn at(path: &str) -> Option<Endpoint> {
        let rest = path.strip_prefix("/v1").unwrap_or(path);
        Endpoint::ALL.into_iter().find(|known| known.path() == rest)
    }

    /// Its path below the API's version.
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

    /// Whose API it belongs to.
    #[must_use]
    pub const fn dialect(self) -> Dialect {
        match self {
            Endpoint::Messages | Endpoint::CountTokens => Dialect::Anthropic,
            _ => Dialect::OpenAi,
        }
    }

    /// Whether an answer has tokens of its own.
    #[must_use]
    pub const fn generates(self) -> bool {
        !matches!(self, Endpoint::Embeddings | Endpoint::CountTokens)
    }
}
