//! What is there, for whoever does not know.

use axum::Json;
use axum::response::{IntoResponse, Response};
use http::{Method, StatusCode, Uri};
use serde_json::json;

use super::problem::HttpProblem;

/// Method, address, and what it is for. Routes that others add are theirs to tell of.
pub(super) const ROUTES: [(&str, &str, &str); 10] = [
    ("GET", "/", "this list"),
    ("GET", "/healthz", "`ok`, without a token"),
    ("GET", "/metrics", "numbers for Prometheus"),
    (
        "GET",
        "/admin/panels",
        "what every application shows of itself",
    ),
    ("GET", "/admin/panels/{name}", "one application"),
    (
        "GET",
        "/admin/panels/{name}/page/{widget}",
        "more of a table or tree",
    ),
    (
        "GET",
        "/admin/panels/{name}/explain/{subject}",
        "why something is as it is",
    ),
    (
        "POST",
        "/admin/panels/{name}/act/{action}",
        "does something",
    ),
    ("POST", "/admin/panels/{name}/what-if", "what would change"),
    ("POST", "/admin/reload", "reads the configuration again"),
];

/// Whatever has no route of its own: the list at `/`, and nothing elsewhere. Not a route itself, so that a page can take
/// its place.
pub(super) async fn fallback(method: Method, uri: Uri) -> Response {
    if uri.path() != "/" {
        let text = format!("nothing is at `{}`", uri.path());
        let all: Vec<_> = ROUTES
            .map(|(method, path, _)| format!("{method} {path}"))
            .into();
        let way_out = format!("there are {}", all.join(", "));
        return HttpProblem::new(StatusCode::NOT_FOUND, text)
            .or(way_out)
            .into_response();
    }
    if ![Method::GET, Method::HEAD].contains(&method) {
        return wrong_method(method, uri).await.into_response();
    }
    let routes =
        ROUTES.map(|(method, path, what)| json!({ "method": method, "path": path, "what": what }));
    let version = env!("CARGO_PKG_VERSION");
    Json(json!({ "headworks": version, "routes": routes })).into_response()
}

pub(super) async fn wrong_method(method: Method, uri: Uri) -> HttpProblem {
    let text = format!("`{}` does not take {method}", uri.path());
    HttpProblem::new(StatusCode::METHOD_NOT_ALLOWED, text).or("GET / tells what takes what")
}
