//! The routes of the admin listener and their handlers.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::extract::{DefaultBodyLimit, Extension, Path, Query, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get, post};
use axum::{Json, Router, middleware};
use http::header::{CONTENT_TYPE, HOST};
use http::{StatusCode, Version};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use super::auth::Client;
use super::body::LimitedBody;
use super::endpoint::Endpoint;
use super::problem::HttpProblem;
use super::{Shared, auth, body, index, openapi};
use crate::metrics;
use crate::panel::{
    ActionResult, Args, Change, Cursor, Explanation, Page, Panel, PanelDescription, PanelList,
    Prediction,
};
use crate::reload::Reloaded;

type JsonResult<T> = Result<Json<T>, HttpProblem>;

/// The endpoints behind the token, with their handlers.
fn authenticated_routes() -> Vec<(Endpoint, MethodRouter<Arc<Shared>>)> {
    vec![
        (
            Endpoint::get("/metrics", "metrics for Prometheus").returns_text(metrics::CONTENT_TYPE),
            get(scrape),
        ),
        (
            Endpoint::get("/admin/openapi.json", "the OpenAPI document").returns::<Value>(),
            get(describe),
        ),
        (
            Endpoint::get("/admin/panels", "the panels of all applications").returns::<PanelList>(),
            get(panels),
        ),
        (
            Endpoint::get("/admin/panels/{name}", "the panel of one application")
                .returns::<PanelDescription>(),
            get(panel),
        ),
        (
            Endpoint::get(
                "/admin/panels/{name}/page/{widget}",
                "more rows of a table or tree",
            )
            .query("cursor", "`next` or `children` of the previous page", true)
            .returns::<Page>(),
            get(page),
        ),
        (
            Endpoint::get(
                "/admin/panels/{name}/explain/{subject}",
                "explains the state of a subject",
            )
            .returns::<Explanation>(),
            get(explain),
        ),
        (
            Endpoint::post("/admin/panels/{name}/act/{action}", "performs an action")
                .accepts::<Args>()
                .returns::<ActionResult>(),
            post(act),
        ),
        (
            Endpoint::post(
                "/admin/panels/{name}/what-if",
                "predicts the effect of changed settings",
            )
            .accepts::<WhatIfRequest>()
            .returns::<Prediction>(),
            post(what_if),
        ),
        (
            Endpoint::post("/admin/reload", "reloads the configuration").returns::<Reloaded>(),
            post(reload),
        ),
    ]
}

/// The built-in endpoints.
pub(super) fn endpoints() -> impl Iterator<Item = Endpoint> {
    let open = [
        Endpoint::get("/", "the console, or this list if there is no console")
            .returns_text("text/html"),
        Endpoint::get("/healthz", "`ok`, without a token").open(),
    ];
    let authenticated_routes = authenticated_routes()
        .into_iter()
        .map(|(endpoint, _)| endpoint);
    open.into_iter().chain(authenticated_routes)
}

/// Builds the router. The routes of `extra` are behind the same token.
pub(super) fn router(shared: &Arc<Shared>, extra: Router) -> Router {
    let mut routes = Router::new();
    for (endpoint, answer) in authenticated_routes() {
        // A subject may contain slashes.
        let path = endpoint.path().replace("{subject}", "{*subject}");
        routes = routes.route(&path, answer);
    }
    let known = Arc::clone(shared);
    let authenticated_routes = routes
        .with_state(Arc::clone(shared))
        .merge(extra)
        // A layer applies to the routes added before it, so it comes after those of `extra`.
        .layer(DefaultBodyLimit::max(body::MAX_BODY))
        .fallback(move |method, uri| index::fallback(Arc::clone(&known), method, uri))
        .method_not_allowed_fallback(index::wrong_method)
        .layer(middleware::from_fn_with_state(
            Arc::clone(shared),
            auth::authenticate,
        ));
    Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .merge(authenticated_routes)
        .layer(middleware::from_fn_with_state(
            Arc::clone(shared),
            track_request,
        ))
}

/// Counts every response and adds the security headers, also for `/healthz`; rejects HTTP/1.1
/// requests without exactly one `Host`.
async fn track_request(
    State(shared): State<Arc<Shared>>,
    request: Request,
    next: Next,
) -> Response {
    // RFC 9112, 3.2: a server must answer 400 to an HTTP/1.1 request with no or several `Host`
    // lines.
    let hosts = request.headers().get_all(HOST).iter().count();
    let mut response = if request.version() == Version::HTTP_11 && hosts != 1 {
        let text = format!("expected exactly one `Host` header, found {hosts}");
        HttpProblem::new(StatusCode::BAD_REQUEST, text).into_response()
    } else {
        next.run(request).await
    };
    shared.counters.count_response(response.status());
    auth::add_security_headers(response.headers_mut());
    response
}

async fn scrape(State(shared): State<Arc<Shared>>) -> impl IntoResponse {
    (
        [(CONTENT_TYPE, metrics::CONTENT_TYPE)],
        shared.metrics.render(),
    )
}

async fn describe(State(shared): State<Arc<Shared>>) -> Json<Value> {
    Json(openapi::document(&shared.endpoints))
}

async fn panels(State(shared): State<Arc<Shared>>) -> Json<PanelList> {
    Json(PanelList::of(&shared.panels))
}

async fn panel(
    State(shared): State<Arc<Shared>>,
    Path(name): Path<String>,
) -> JsonResult<PanelDescription> {
    Ok(Json(PanelDescription::of(find(&shared, &name)?.as_ref())))
}

fn find<'a>(shared: &'a Shared, name: &str) -> Result<&'a Arc<dyn Panel>, HttpProblem> {
    shared.panels.get(name).ok_or_else(|| {
        HttpProblem::new(StatusCode::NOT_FOUND, format!("unknown panel `{name}`"))
            .remedy("GET /admin/panels lists them")
    })
}

#[derive(Deserialize)]
struct PageQuery {
    cursor: Option<Cursor>,
}

async fn page(
    State(shared): State<Arc<Shared>>,
    Path((name, widget)): Path<(String, String)>,
    Query(from): Query<PageQuery>,
) -> JsonResult<Page> {
    let Some(cursor) = from.cursor else {
        let problem = HttpProblem::new(StatusCode::BAD_REQUEST, "`cursor` is missing");
        return Err(problem.remedy("use `next` or `children` of the previous page"));
    };
    Ok(Json(find(&shared, &name)?.page(&widget, &cursor).await?))
}

async fn act(
    State(shared): State<Arc<Shared>>,
    Extension(Client(client)): Extension<Client>,
    Path((name, action)): Path<(String, String)>,
    body: LimitedBody,
) -> JsonResult<ActionResult> {
    let panel = find(&shared, &name)?;
    let args: Args = if body.is_empty() {
        Args::new()
    } else {
        body.json()?
    };
    let actions = panel.actions();
    let known = actions.iter().find(|known| known.name == action);
    let known = known.ok_or_else(|| crate::panel::PanelError::unknown_action(action.as_str()))?;
    known.check(&args)?;
    let outcome = panel.act(&action, &args).await;
    // The audit log of destructive actions: who, what and with which outcome.
    if known.destructive {
        let args = Value::from(args);
        let outcome = outcome
            .as_ref()
            .map_or_else(ToString::to_string, |done| done.message.clone());
        tracing::warn!(panel = name, action, %args, %client, outcome, "destructive action");
    }
    Ok(Json(outcome?))
}

async fn explain(
    State(shared): State<Arc<Shared>>,
    Path((name, subject)): Path<(String, String)>,
) -> JsonResult<Explanation> {
    Ok(Json(find(&shared, &name)?.explain(&subject).await?))
}

#[derive(Deserialize, JsonSchema)]
struct WhatIfRequest {
    /// The settings to change.
    changes: Vec<Change>,
}

async fn what_if(
    State(shared): State<Arc<Shared>>,
    Path(name): Path<String>,
    body: LimitedBody,
) -> JsonResult<Prediction> {
    let question: WhatIfRequest = body.json()?;
    Ok(Json(
        find(&shared, &name)?.what_if(&question.changes).await?,
    ))
}

/// Reloads the configuration. The body is ignored, but its size is limited like any other.
async fn reload(State(shared): State<Arc<Shared>>, _: LimitedBody) -> JsonResult<Reloaded> {
    let Some(reloader) = shared.reloader.clone() else {
        let text = "reloading is not supported by this program";
        return Err(HttpProblem::new(StatusCode::NOT_IMPLEMENTED, text));
    };
    // Reloading reads files, which must not block a runtime thread.
    let outcome = tokio::task::spawn_blocking(move || reloader.reload()).await;
    let outcome = outcome.map_err(|cause| {
        HttpProblem::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            format!("the reload failed: {cause}"),
        )
    })?;
    match outcome {
        Ok(reloaded) => {
            shared.counters.reloads_done.fetch_add(1, Ordering::Relaxed);
            Ok(Json(reloaded))
        }
        Err(problems) => {
            shared
                .counters
                .reloads_refused
                .fetch_add(1, Ordering::Relaxed);
            let text = "invalid configuration; nothing was changed";
            let problem = HttpProblem::new(StatusCode::UNPROCESSABLE_ENTITY, text);
            let each = problems.iter().map(ToString::to_string).collect();
            Err(problem
                .remedy("fix the file and reload again")
                .with_problems(each))
        }
    }
}
