//! Errors of a panel, one variant per remedy.

/// An error of a panel.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PanelError {
    /// There is no such widget, action or subject. The snapshot lists the valid names.
    #[error("unknown {what} `{name}`")]
    Unknown {
        /// Widget, action or subject.
        what: &'static str,
        /// The requested name.
        name: String,
    },
    /// The cursor is no longer valid: start again at the first page.
    #[error("stale cursor: start again at the first page")]
    StaleCursor,
    /// An argument is invalid.
    #[error("argument `{name}`: {problem}")]
    Argument {
        /// The name of the argument.
        name: String,
        /// The problem.
        problem: String,
    },
    /// The current state does not allow it.
    #[error("refused: {0}")]
    Refused(String),
    /// The application does not support it.
    #[error("not supported by this application: {0}")]
    NotOffered(&'static str),
    /// The attempt failed.
    #[error("failed: {0}")]
    Failed(String),
}

impl PanelError {
    /// An error for an unknown widget.
    #[must_use]
    pub fn unknown_widget(name: impl Into<String>) -> PanelError {
        PanelError::Unknown {
            what: "widget",
            name: name.into(),
        }
    }

    /// An error for an unknown action.
    #[must_use]
    pub fn unknown_action(name: impl Into<String>) -> PanelError {
        PanelError::Unknown {
            what: "action",
            name: name.into(),
        }
    }

    /// An error for an unknown subject.
    #[must_use]
    pub fn unknown_subject(name: impl Into<String>) -> PanelError {
        PanelError::Unknown {
            what: "subject",
            name: name.into(),
        }
    }

    /// An error for an invalid argument.
    #[must_use]
    pub fn argument(name: impl Into<String>, problem: impl Into<String>) -> PanelError {
        let (name, problem) = (name.into(), problem.into());
        PanelError::Argument { name, problem }
    }

    /// An error for an unsupported request.
    #[must_use]
    pub fn not_offered(what: &'static str) -> PanelError {
        PanelError::NotOffered(what)
    }
}
