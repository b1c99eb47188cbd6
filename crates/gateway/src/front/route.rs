//! Routing: maps a request to its endpoint and prepares it for the scheduler.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use headworks_h1::Received;
use http::request::Parts;
use http::{Method, Request, Response, StatusCode, Version};
use hyper::body::Incoming;
use smallvec::SmallVec;

use super::admit::{self, RequestHeaders};
use super::body::GatewayBody;
use super::request::{DisconnectGuard, ScheduledRequest, too_large};
use super::response_headers::ResponseHeaders;
use super::upload::Upload;
use super::{models, quota};
use crate::active_config::ActiveConfig;
use crate::keys::Principal;
use crate::shared::Shared;
use crate::upstream::{ClientPool, ForwardedRequest, UpstreamId, percent_decode};
use crate::wire::{Dialect, Endpoint, Problem, RequestSummary};

/// Longest query of a request. The queries of all SDKs are far shorter.
const MAX_QUERY: usize = 8 << 10;
/// Health check paths, under the names that are in common use. They need no key.
const HEALTH_PATHS: [&str; 2] = ["/healthz", "/health"];
/// Paths that tell whether requests can be granted here. They need no key.
const READY_PATHS: [&str; 2] = ["/ready", "/readyz"];

/// Context of a serving thread.
pub(crate) struct ServeContext {
    pub(crate) shared: Arc<Shared>,
    /// Connections to upstreams that belong to this thread.
    pub(crate) client_pool: Arc<ClientPool>,
}

/// Handles one HTTP/2 request.
pub(crate) async fn handle(
    context: Arc<ServeContext>,
    request: Request<Incoming>,
) -> Result<Response<GatewayBody>, Infallible> {
    let (parts, body) = request.into_parts();
    // Boxed: this future ends before the request is queued, and inline it would enlarge every
    // queued request.
    let received = Box::pin(receive(&context, parts, body)).await;
    Ok(match received {
        Received::Request(request) => request.serve().await,
        Received::Response(response) => *response,
    })
}

/// Does everything before scheduling. Returns the scheduled request, or the response to a request
/// that is rejected or needs no upstream.
pub(crate) async fn receive(
    context: &Arc<ServeContext>,
    parts: Parts,
    body: impl Upload,
) -> Received<Box<ScheduledRequest>, GatewayBody> {
    let shared = &context.shared;
    let number = shared.history.ids.next();
    let mut response_headers = ResponseHeaders {
        id: shared.history.ids.name(number),
        reason: "answered",
        ..ResponseHeaders::default()
    };
    let active = shared.active.load_full();
    let path = parts.uri.path();
    if let Some(endpoint) = Endpoint::at(path) {
        let dialect = endpoint.dialect();
        if parts.method != Method::POST {
            return answered(response_headers.error_response(dialect, &wrong_method(&parts)));
        }
        let prepared = prepare(
            context,
            active,
            number,
            &mut response_headers,
            endpoint,
            parts,
            body,
        )
        .await;
        return match prepared {
            Ok(request) => Received::Request(request),
            Err(problem) => answered(response_headers.error_response(dialect, &problem)),
        };
    }
    if HEALTH_PATHS.contains(&path) {
        let well = GatewayBody::Whole(Some(Bytes::from_static(b"ok\n")));
        return answered(Response::new(well));
    }
    if READY_PATHS.contains(&path) {
        return answered(ready(shared.is_ready()));
    }
    let dialect = dialect_of(&parts);
    let routed = Box::pin(route_other(context, &active, dialect, &parts)).await;
    answered(match routed {
        Ok(mut response) => {
            response_headers.write(dialect, response.headers_mut());
            response
        }
        Err(problem) => response_headers.error_response(dialect, &problem),
    })
}

fn ready(is_ready: bool) -> Response<GatewayBody> {
    let (status, text) = match is_ready {
        true => (StatusCode::OK, "ok\n"),
        false => (
            StatusCode::SERVICE_UNAVAILABLE,
            "waiting for a share of the fleet's limits\n",
        ),
    };
    let mut response = Response::new(GatewayBody::Whole(Some(Bytes::from_static(
        text.as_bytes(),
    ))));
    *response.status_mut() = status;
    response
}

fn answered(response: Response<GatewayBody>) -> Received<Box<ScheduledRequest>, GatewayBody> {
    Received::Response(Box::new(response))
}

/// Response to input that is not a valid HTTP request. Its API is unknown, so the error has
/// OpenAI's format.
pub(crate) fn reject_malformed(shared: &Shared, problem: &Problem) -> Response<GatewayBody> {
    let number = shared.history.ids.next();
    let response_headers = ResponseHeaders {
        id: shared.history.ids.name(number),
        ..ResponseHeaders::default()
    };
    response_headers.error_response(Dialect::OpenAi, problem)
}

/// API of a client, where the path does not tell.
fn dialect_of(request: &Parts) -> Dialect {
    match request.headers.contains_key("anthropic-version") {
        true => Dialect::Anthropic,
        false => Dialect::OpenAi,
    }
}

async fn route_other(
    context: &ServeContext,
    active: &ActiveConfig,
    dialect: Dialect,
    request: &Parts,
) -> Result<Response<GatewayBody>, Problem> {
    let path = request.uri.path();
    let rest = path.strip_prefix("/v1").unwrap_or(path);
    if rest == "/quota" {
        if request.method != Method::GET {
            return Err(wrong_method(request));
        }
        let parsed = RequestHeaders::parse(&request.headers);
        let principal = admit::authenticate(&context.shared, active, &parsed)?;
        return Ok(quota::answer(&context.shared, active, &principal));
    }
    let rest = rest.strip_prefix("/models");
    let Some(rest) = rest.filter(|rest| rest.is_empty() || rest.starts_with('/')) else {
        let message = format!(
            "unknown path `{path}`: this gateway serves /v1/chat/completions, /v1/completions, /v1/embeddings, \
             /v1/responses, /v1/messages, /v1/models and /v1/quota"
        );
        return Err(Problem::new(StatusCode::NOT_FOUND, "unknown_url", message));
    };
    if request.method != Method::GET {
        return Err(wrong_method(request));
    }
    let parsed = RequestHeaders::parse(&request.headers);
    let principal = admit::authenticate(&context.shared, active, &parsed)?;
    let one = rest.strip_prefix('/').filter(|name| !name.is_empty());
    // SDKs encode the slash of a name such as `org/model`.
    let one = one.map(|name| String::from_utf8_lossy(&percent_decode(name)).into_owned());
    let listed = models::listed(context, active, dialect).await;
    models::answer(active, &principal, dialect, &listed, one.as_deref())
}

fn wrong_method(request: &Parts) -> Problem {
    let message = format!(
        "`{}` does not support {}",
        request.uri.path(),
        request.method
    );
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, "wrong_method", message)
}

/// Authenticates and checks a request, and collects what the scheduler needs.
async fn prepare(
    context: &Arc<ServeContext>,
    active: Arc<ActiveConfig>,
    number: u64,
    response_headers: &mut ResponseHeaders,
    endpoint: Endpoint,
    parts: Parts,
    body: impl Upload,
) -> Result<Box<ScheduledRequest>, Problem> {
    let shared = &context.shared;
    // It is added to the query of an upstream's `url`. One that does not fit into a URL would count
    // against the upstream.
    if parts
        .uri
        .query()
        .is_some_and(|query| query.len() > MAX_QUERY)
    {
        let message = format!("the query is longer than {MAX_QUERY} bytes");
        return Err(Problem::new(StatusCode::URI_TOO_LONG, "query_too_long", message).never());
    }
    let parsed = RequestHeaders::parse(&parts.headers);
    // Key and priority are checked before the body is read: an unknown client cannot make the
    // gateway buffer an upload.
    let principal = admit::authenticate(shared, &active, &parsed)?;
    let class = admit::class(&active, &principal, &parsed)?;
    let client_timeout = parsed.client_timeout;
    response_headers.class = Some(class);
    let tenant = &principal.tenant;
    let body = admit::body(shared, &active, tenant, body).await?;
    let summary = admit::summary(shared, tenant, &body).await?;
    let default = active.config.default_output_tokens;
    let max_tokens = summary.upper_bound(endpoint, default.saturating_mul(summary.choices));
    permit_models(&principal, &summary, parts.uri.query())?;
    let group = group(&active, endpoint, &summary.model)?;
    let group = active.that_fit(group, max_tokens);
    if group.is_empty() {
        return Err(too_large(max_tokens));
    }
    admit::quota(shared, &active, &principal).inspect_err(|_| {
        shared
            .ledger
            .refused(&principal.tenant, class, shared.today());
    })?;
    let learned = &shared.learned_outputs;
    let expected = learned.expected(&principal.tenant, &summary.model, default);
    let client_timeout = client_timeout.unwrap_or(Duration::MAX);
    let longest_wait = active.queue_timeout(class).min(client_timeout);
    let arrived = shared.permits.now();
    Ok(Box::new(ScheduledRequest {
        arrived,
        deadline: arrived + longest_wait,
        tried: SmallVec::new(),
        estimate: summary.estimate(endpoint, expected),
        max_tokens,
        forward: ForwardedRequest {
            endpoint,
            query: parts.uri.query().map(str::to_owned),
            headers: parts.headers,
            body,
            shares_buffer: parts.version == Version::HTTP_2,
        },
        response_headers: std::mem::take(response_headers),
        disconnect_guard: DisconnectGuard {
            shared: shared.clone(),
            number,
            answered: false,
            tokens: None,
        },
        delayed_guard: None,
        called: Instant::now(),
        progress: Arc::default(),
        maybe_generated: false,
        context: context.clone(),
        shared: shared.clone(),
        active,
        number,
        principal,
        class,
        summary,
        group,
    }))
}

/// Checks that the key permits every model that the upstream may use.
fn permit_models(
    principal: &Principal,
    summary: &RequestSummary,
    query: Option<&str>,
) -> Result<(), Problem> {
    if principal.models.is_empty() {
        return Ok(());
    }
    // The query is forwarded, and for some upstreams its `model` counts before that of the body.
    let pairs = query.into_iter().flat_map(|query| query.split('&'));
    let pairs = pairs.map(|pair| pair.split_once('=').unwrap_or((pair, "")));
    let in_query = pairs.filter_map(|(name, value)| {
        let name = percent_decode(name).to_ascii_lowercase();
        let names_model = [b"model".as_slice(), b"models"].contains(&&name[..]);
        names_model.then(|| String::from_utf8_lossy(&percent_decode(value)).into_owned())
    });
    let mut others = summary.other_models.names.iter().cloned().chain(in_query);
    let refused = match principal.may_use(&summary.model) {
        true => others.find(|model| !principal.may_use(model)),
        false => Some(summary.model.clone()),
    };
    let message = match refused {
        Some(model) => format!("this key does not permit model `{model}`"),
        None if summary.other_models.has_more => {
            "this key permits some models only, and the request names more than can be checked"
                .to_owned()
        }
        None => return Ok(()),
    };
    let (status, reason) = (StatusCode::FORBIDDEN, "model_not_allowed");
    Err(Problem::new(status, reason, message))
}

fn group(
    active: &ActiveConfig,
    endpoint: Endpoint,
    model: &str,
) -> Result<Vec<UpstreamId>, Problem> {
    match active.group(endpoint.dialect(), model) {
        group if group.is_empty() => Err(models::unknown(model)),
        group => Ok(group),
    }
}
