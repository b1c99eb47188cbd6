//! The list of endpoints at `/`, and the responses for unknown paths.

use std::sync::Arc;

use axum::Json;
use axum::response::{IntoResponse, Response};
use http::{Method, StatusCode, Uri};
use serde_json::json;

use super::Shared;
use super::problem::HttpProblem;

/// Serves the list of endpoints at `/` and 404 elsewhere. It is a fallback rather than a route, so
/// that the console's page can take `/`.
pub(super) async fn fallback(shared: Arc<Shared>, method: Method, uri: Uri) -> Response {
    let endpoints = shared.endpoints.iter();
    if uri.path() != "/" {
        let text = format!("no such path: `{}`", uri.path());
        let all: Vec<_> = endpoints
            .map(|endpoint| format!("{} {}", endpoint.method, endpoint.path))
            .collect();
        let remedy = format!("known endpoints: {}", all.join(", "));
        return HttpProblem::new(StatusCode::NOT_FOUND, text)
            .remedy(remedy)
            .into_response();
    }
    if ![Method::GET, Method::HEAD].contains(&method) {
        return wrong_method(method, uri).await.into_response();
    }
    let routes: Vec<_> = endpoints
        .map(|known| json!({ "method": known.method, "path": known.path, "what": known.summary }))
        .collect();
    let version = env!("CARGO_PKG_VERSION");
    Json(json!({ "headworks": version, "routes": routes })).into_response()
}

pub(super) async fn wrong_method(method: Method, uri: Uri) -> HttpProblem {
    let text = format!("`{}` does not support {method}", uri.path());
    HttpProblem::new(StatusCode::METHOD_NOT_ALLOWED, text)
        .remedy("see GET /admin/openapi.json for the supported methods")
}
