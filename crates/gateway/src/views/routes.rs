//! The gateway's routes on the admin listener, which require its token.

use std::sync::Arc;

use axum::extract::{Path, Query, State};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use headworks_service::admin::HttpProblem;
use http::StatusCode;
use http::header::CONTENT_TYPE;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{explain, keys, stats};
use crate::shared::Shared;
use crate::usage::UsageRow;

pub(super) fn router(shared: Arc<Shared>) -> Router {
    Router::new()
        .route(
            "/admin/scheduler/stats",
            get(|State(shared): State<Arc<Shared>>| async move { Json(stats::stats(&shared)) }),
        )
        .route(
            "/admin/scheduler/queues",
            get(|State(shared): State<Arc<Shared>>| async move { Json(stats::queues(&shared)) }),
        )
        .route("/admin/explain/{id}", get(get_explanation))
        .route("/admin/usage", get(usage))
        .merge(keys::router())
        .with_state(shared)
}

async fn get_explanation(
    State(shared): State<Arc<Shared>>,
    Path(id): Path<String>,
) -> Result<Json<Value>, HttpProblem> {
    let (entry, explanation) = (shared.history.find(&id), explain::explain(&shared, &id));
    let (Some(entry), Some(explanation)) = (entry, explanation) else {
        let problem = HttpProblem::new(StatusCode::NOT_FOUND, format!("unknown request `{id}`"));
        return Err(problem.remedy(
            "use an id from `x-headworks-request-id`; only the last 4096 requests are kept",
        ));
    };
    Ok(Json(
        json!({ "explanation": explanation, "request": entry }),
    ))
}

#[derive(Deserialize)]
struct Span {
    from: Option<u32>,
    to: Option<u32>,
    format: Option<String>,
}

async fn usage(
    State(shared): State<Arc<Shared>>,
    Query(span): Query<Span>,
) -> Result<Response, HttpProblem> {
    let (from, to) = (span.from.unwrap_or(0), span.to.unwrap_or(u32::MAX));
    let rows = shared.ledger.rows(from, to, shared.today()).await;
    let broken = |text: String| HttpProblem::new(StatusCode::INTERNAL_SERVER_ERROR, text);
    let rows = rows.map_err(|error| broken(error.to_string()))?;
    match span.format.as_deref() {
        None | Some("json") => Ok(Json(json!({ "usage": rows })).into_response()),
        Some("csv") => Ok(([(CONTENT_TYPE, "text/csv")], UsageRow::csv(&rows)).into_response()),
        Some(other) => {
            let problem =
                HttpProblem::new(StatusCode::BAD_REQUEST, format!("unknown format `{other}`"));
            Err(problem.remedy("use json or csv"))
        }
    }
}
