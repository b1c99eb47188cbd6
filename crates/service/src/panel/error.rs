//! Why a panel says no, by what the asker can do about it.

/// Why a panel says no.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PanelError {
    /// There is no such thing: ask for one that the snapshot or the list of actions names.
    #[error("unknown {what} `{name}`")]
    Unknown {
        /// Widget, action or subject.
        what: &'static str,
        /// What was asked for.
        name: String,
    },
    /// The cursor leads nowhere any more: begin at the first page again.
    #[error("this cursor leads nowhere any more: begin at the first page")]
    StaleCursor,
    /// An argument is wrong: change it.
    #[error("argument `{name}`: {problem}")]
    Argument {
        /// The argument.
        name: String,
        /// What is wrong with it.
        problem: String,
    },
    /// Not now: the state does not allow it.
    #[error("refused: {0}")]
    Refused(String),
    /// This application never does that.
    #[error("this application does not offer {0}")]
    NotOffered(&'static str),
    /// It was tried and went wrong.
    #[error("failed: {0}")]
    Failed(String),
}

impl PanelError {
    /// There is no such widget.
    #[must_use]
    pub fn unknown_widget(name: impl Into<String>) -> PanelError {
        PanelError::Unknown {
            what: "widget",
            name: name.into(),
        }
    }

    /// There is no such action.
    #[must_use]
    pub fn unknown_action(name: impl Into<String>) -> PanelError {
        PanelError::Unknown {
            what: "action",
            name: name.into(),
        }
    }

    /// There is nothing of that name to explain.
    #[must_use]
    pub fn unknown_subject(name: impl Into<String>) -> PanelError {
        PanelError::Unknown {
            what: "subject",
            name: name.into(),
        }
    }

    /// An argument is wrong.
    #[must_use]
    pub fn argument(name: impl Into<String>, problem: impl Into<String>) -> PanelError {
        let (name, problem) = (name.into(), problem.into());
        PanelError::Argument { name, problem }
    }

    /// This application never does that.
    #[must_use]
    pub fn not_offered(what: &'static str) -> PanelError {
        PanelError::NotOffered(what)
    }
}
