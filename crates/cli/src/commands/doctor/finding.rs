//! One finding: its subject, its state, and the way out.

use std::fmt;

use serde::Serialize;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Severity {
    Ok,
    Warning,
    Problem,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Finding {
    pub(super) state: Severity,
    /// The examined thing, such as a file, an address or an upstream.
    pub(super) subject: String,
    pub(super) found: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) advice: Option<String>,
}

impl Finding {
    pub(super) fn ok(subject: impl Into<String>, found: impl Into<String>) -> Finding {
        Finding::new(Severity::Ok, subject, found)
    }

    pub(super) fn warning(subject: impl Into<String>, found: impl Into<String>) -> Finding {
        Finding::new(Severity::Warning, subject, found)
    }

    pub(super) fn problem(subject: impl Into<String>, found: impl Into<String>) -> Finding {
        Finding::new(Severity::Problem, subject, found)
    }

    fn new(state: Severity, subject: impl Into<String>, found: impl Into<String>) -> Finding {
        let (subject, found) = (subject.into(), found.into());
        Finding {
            state,
            subject,
            found,
            advice: None,
        }
    }

    pub(super) fn advise(mut self, advice: impl Into<String>) -> Finding {
        self.advice = Some(advice.into());
        self
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match self.state {
            Severity::Ok => "ok",
            Severity::Warning => "warning",
            Severity::Problem => "problem",
        };
        writeln!(f, "{state:<8} {}: {}", self.subject, self.found)?;
        match &self.advice {
            Some(advice) => writeln!(f, "         {advice}"),
            None => Ok(()),
        }
    }
}
