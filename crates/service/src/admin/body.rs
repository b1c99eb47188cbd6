//! Request bodies with a size limit.

use axum::body::Bytes;
use axum::extract::{FromRequest, Request};
use http::StatusCode;
use serde::de::DeserializeOwned;

use super::problem::HttpProblem;

/// Largest request body, in bytes.
pub(super) const MAX_BODY: usize = 256 << 10;

/// A request body within the size limit.
pub(super) struct LimitedBody(Bytes);

impl<S: Send + Sync> FromRequest<S> for LimitedBody {
    type Rejection = HttpProblem;

    async fn from_request(request: Request, state: &S) -> Result<LimitedBody, HttpProblem> {
        let content = Bytes::from_request(request, state).await;
        content.map(LimitedBody).map_err(|rejection| {
            if rejection.status() != StatusCode::PAYLOAD_TOO_LARGE {
                return HttpProblem::new(rejection.status(), rejection.body_text());
            }
            let text = format!("the body exceeds {} KiB", MAX_BODY >> 10);
            HttpProblem::new(StatusCode::PAYLOAD_TOO_LARGE, text).remedy("send a smaller body")
        })
    }
}

impl LimitedBody {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Deserializes the body as JSON.
    pub(super) fn json<T: DeserializeOwned>(&self) -> Result<T, HttpProblem> {
        serde_json::from_slice(&self.0).map_err(|cause| {
            HttpProblem::new(StatusCode::BAD_REQUEST, format!("invalid body: {cause}"))
        })
    }
}
