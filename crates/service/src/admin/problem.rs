//! Error responses of the admin listener: JSON that names the problem and the remedy.

use axum::Json;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use serde_json::json;

use crate::panel::PanelError;

/// An error response: `{"error": "…", "way_out": "…"}`.
///
/// ```
/// use headworks_service::admin::HttpProblem;
/// let problem = HttpProblem::new(http::StatusCode::NOT_FOUND, "no such gate");
/// let problem = problem.remedy("GET /gates lists them");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpProblem {
    status: StatusCode,
    error: String,
    remedy: Option<String>,
    problems: Vec<String>,
}

impl HttpProblem {
    /// An error response with `status` and the message `error`.
    #[must_use]
    pub fn new(status: StatusCode, error: impl Into<String>) -> HttpProblem {
        HttpProblem {
            status,
            error: error.into(),
            remedy: None,
            problems: Vec::new(),
        }
    }

    /// Adds a remedy.
    #[must_use]
    pub fn remedy(mut self, remedy: impl Into<String>) -> HttpProblem {
        self.remedy = Some(remedy.into());
        self
    }

    /// Adds the individual problems.
    #[must_use]
    pub fn with_problems(mut self, problems: Vec<String>) -> HttpProblem {
        self.problems = problems;
        self
    }
}

impl From<PanelError> for HttpProblem {
    fn from(error: PanelError) -> HttpProblem {
        let status = match error {
            PanelError::Unknown { .. } => StatusCode::NOT_FOUND,
            PanelError::StaleCursor => StatusCode::GONE,
            PanelError::Argument { .. } => StatusCode::BAD_REQUEST,
            PanelError::Refused(_) => StatusCode::CONFLICT,
            PanelError::NotOffered(_) => StatusCode::NOT_IMPLEMENTED,
            PanelError::Failed(_) => StatusCode::INTERNAL_SERVER_ERROR,
        };
        HttpProblem::new(status, error.to_string())
    }
}

impl IntoResponse for HttpProblem {
    fn into_response(self) -> Response {
        let mut body = json!({ "error": self.error });
        if let Some(remedy) = self.remedy {
            // The key keeps its first name, which clients already read.
            body["way_out"] = remedy.into();
        }
        if !self.problems.is_empty() {
            body["problems"] = self.problems.into();
        }
        (self.status, Json(body)).into_response()
    }
}
