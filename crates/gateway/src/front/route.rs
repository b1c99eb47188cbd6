//! Routing: maps a request to its endpoint and prepares it for the scheduler.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::request::Parts;
use http::{Method, Request, Response, StatusCode, Version};
use hyper::body::Incoming;

use super::admit::{self, Told};
use super::body::GatewayBody;
use super::marks::Marks;
use super::models;
use super::passage::{Passage, Presence};
use super::upload::Upload;
use crate::keys::Caller;
use crate::plan::Plan;
use crate::shared::Shared;
use crate::upstream::{Forward, Links};
use crate::wire::{Dialect, Endpoint, Problem, read_ask};

/// Health check paths, under the names that are in common use. They need no key.
const PROBES: [&str; 4] = ["/healthz", "/health", "/ready", "/readyz"];

/// Context of a serving thread.
pub(super) struct Desk {
    pub(super) shared: Arc<Shared>,
    /// Connections to upstreams that belong to this thread.
    pub(super) links: Arc<Links>,
}

/// Handles one HTTP/2 request.
pub(super) async fn handle(
    desk: Arc<Desk>,
    request: Request<Incoming>,
) -> Result<Response<GatewayBody>, Infallible> {
    let (parts, body) = request.into_parts();
    // Boxed: this future ends before the request is queued, and inline it would enlarge every
    // queued request.
    let received = Box::pin(receive(&desk, parts, body)).await;
    Ok(match received {
        Ok(passage) => passage.go().await,
        Err(response) => *response,
    })
}

/// Does everything before scheduling. Returns the scheduled request, or the response to a request
/// that is rejected or needs no upstream.
pub(super) async fn receive(
    desk: &Arc<Desk>,
    parts: Parts,
    body: impl Upload,
) -> Result<Box<Passage>, Box<Response<GatewayBody>>> {
    let shared = &desk.shared;
    let number = shared.journal.ids.next();
    let mut marks = Marks {
        id: shared.journal.ids.name(number),
        reason: "answered",
        ..Marks::default()
    };
    let plan = shared.plan.load_full();
    let path = parts.uri.path();
    if let Some(endpoint) = Endpoint::at(path) {
        let dialect = endpoint.dialect();
        if parts.method != Method::POST {
            return Err(Box::new(marks.refuse(dialect, &wrong_method(&parts))));
        }
        let prepared = prepare(desk, plan, number, &mut marks, endpoint, parts, body).await;
        return prepared.map_err(|problem| Box::new(marks.refuse(dialect, &problem)));
    }
    if PROBES.contains(&path) {
        let well = GatewayBody::Whole(Some(Bytes::from_static(b"ok\n")));
        return Err(Box::new(Response::new(well)));
    }
    let dialect = spoken(&parts);
    Err(Box::new(match other(&plan, dialect, &parts) {
        Ok(mut response) => {
            marks.write(dialect, response.headers_mut());
            response
        }
        Err(problem) => marks.refuse(dialect, &problem),
    }))
}

/// Response to input that is not a valid HTTP request. Its API is unknown, so the error has
/// OpenAI's format.
pub(super) fn misunderstood(shared: &Shared, problem: &Problem) -> Response<GatewayBody> {
    let number = shared.journal.ids.next();
    let marks = Marks {
        id: shared.journal.ids.name(number),
        ..Marks::default()
    };
    marks.refuse(Dialect::OpenAi, problem)
}

/// API of a client, where the path does not tell.
fn spoken(request: &Parts) -> Dialect {
    match request.headers.contains_key("anthropic-version") {
        true => Dialect::Anthropic,
        false => Dialect::OpenAi,
    }
}

fn other(plan: &Plan, dialect: Dialect, request: &Parts) -> Result<Response<GatewayBody>, Problem> {
    let path = request.uri.path();
    let rest = path.strip_prefix("/v1").unwrap_or(path);
    let rest = rest.strip_prefix("/models");
    let Some(rest) = rest.filter(|rest| rest.is_empty() || rest.starts_with('/')) else {
        let message = format!(
            "nothing is at `{path}`: this gateway has /v1/chat/completions, /v1/completions, /v1/embeddings, \
             /v1/responses, /v1/messages and /v1/models"
        );
        return Err(Problem::new(StatusCode::NOT_FOUND, "unknown_url", message));
    };
    if request.method != Method::GET {
        return Err(wrong_method(request));
    }
    let caller = admit::caller(plan, &Told::by(&request.headers))?;
    let one = rest.strip_prefix('/').filter(|name| !name.is_empty());
    models::answer(plan, &caller, dialect, one)
}

fn wrong_method(request: &Parts) -> Problem {
    let message = format!("`{}` does not take {}", request.uri.path(), request.method);
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, "wrong_method", message)
}

/// Authenticates and checks a request, and collects what the scheduler needs.
async fn prepare(
    desk: &Arc<Desk>,
    plan: Arc<Plan>,
    number: u64,
    marks: &mut Marks,
    endpoint: Endpoint,
    parts: Parts,
    body: impl Upload,
) -> Result<Box<Passage>, Problem> {
    let shared = &desk.shared;
    let told = Told::by(&parts.headers);
    // Key and priority are checked before the body is read: an unknown client cannot make the
    // gateway buffer an upload.
    let caller = admit::caller(&plan, &told)?;
    let class = admit::class(&plan, &caller, &told)?;
    let (patience, is_retry) = (told.patience, told.is_retry);
    marks.class = Some(class);
    let body = admit::body(&plan, body).await?;
    let ask = read_ask(&body)
        .map_err(|message| Problem::new(StatusCode::BAD_REQUEST, "bad_request", message))?;
    let mut group = group(&plan, &caller, endpoint, &ask.model)?;
    let tenant = &caller.tenant;
    // Before the request is scheduled, so that it never waits for an upstream that fails its
    // tenant.
    shared.faults.avoid(&mut group, tenant, Instant::now());
    admit::quota(shared, &plan, &caller).inspect_err(|_| {
        shared.ledger.refused(&caller.tenant, class, shared.today());
    })?;
    let output = plan.config.default_output_tokens;
    Ok(Box::new(Passage {
        patience: patience.unwrap_or(Duration::MAX),
        is_retry,
        estimate: ask.estimate(endpoint, output),
        most: ask.most(endpoint, output),
        forward: Forward {
            endpoint,
            query: parts.uri.query().map(str::to_owned),
            headers: parts.headers,
            body,
            shares: parts.version == Version::HTTP_2,
        },
        marks: std::mem::take(marks),
        presence: Presence {
            shared: shared.clone(),
            number,
            answered: false,
            tokens: None,
        },
        asking: false,
        lost: false,
        desk: desk.clone(),
        shared: shared.clone(),
        plan,
        number,
        caller,
        class,
        ask,
        group,
    }))
}

fn group(
    plan: &Plan,
    caller: &Caller,
    endpoint: Endpoint,
    model: &str,
) -> Result<Vec<headworks_core::TargetId>, Problem> {
    if !caller.may_use(model) {
        let message = format!("this key may not use the model `{model}`");
        return Err(Problem::new(
            StatusCode::FORBIDDEN,
            "model_not_allowed",
            message,
        ));
    }
    match plan.group(endpoint.dialect(), model) {
        group if group.is_empty() => Err(models::unknown(model)),
        group => Ok(group),
    }
}
