//! What is asked.

use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use hyper::body::Incoming;

use super::body::GatewayBody;
use super::marks::Marks;
use super::passage::{Passage, Presence};
use super::{admit, models};
use crate::keys::Caller;
use crate::plan::Plan;
use crate::shared::Shared;
use crate::upstream::Forward;
use crate::wire::{Dialect, Endpoint, Problem, read_ask};

/// Answers one request.
pub(super) async fn handle(
    shared: Arc<Shared>,
    request: Request<Incoming>,
) -> Result<Response<GatewayBody>, Infallible> {
    let number = shared.journal.ids.next();
    let mut marks = Marks {
        id: shared.journal.ids.name(number),
        reason: "answered",
        ..Marks::default()
    };
    let plan = shared.plan.load_full();
    let path = request.uri().path();
    if let Some(endpoint) = Endpoint::at(path) {
        if request.method() != Method::POST {
            return Ok(marks.refuse(endpoint.dialect(), &wrong_method(&request)));
        }
        return Ok(
            match prepare(shared, plan, number, &mut marks, endpoint, request).await {
                Ok(passage) => passage.go().await,
                Err(problem) => marks.refuse(endpoint.dialect(), &problem),
            },
        );
    }
    if path == "/healthz" {
        return Ok(Response::new(GatewayBody::Whole(Some(Bytes::from_static(
            b"ok\n",
        )))));
    }
    let dialect = spoken(&request);
    let answer = other(&plan, dialect, &request);
    Ok(match answer {
        Ok(mut response) => {
            marks.write(dialect, response.headers_mut());
            response
        }
        Err(problem) => marks.refuse(dialect, &problem),
    })
}

/// Whose API a client speaks where the address does not tell.
fn spoken(request: &Request<Incoming>) -> Dialect {
    match request.headers().contains_key("anthropic-version") {
        true => Dialect::Anthropic,
        false => Dialect::OpenAi,
    }
}

fn other(
    plan: &Plan,
    dialect: Dialect,
    request: &Request<Incoming>,
) -> Result<Response<GatewayBody>, Problem> {
    let path = request.uri().path();
    let rest = path.strip_prefix("/v1/models");
    let Some(rest) = rest.filter(|rest| rest.is_empty() || rest.starts_with('/')) else {
        let message = format!(
            "nothing is at `{path}`: this gateway has /v1/chat/completions, /v1/completions, /v1/embeddings, \
             /v1/responses, /v1/messages and /v1/models"
        );
        return Err(Problem::new(StatusCode::NOT_FOUND, "unknown_url", message));
    };
    if request.method() != Method::GET {
        return Err(wrong_method(request));
    }
    let caller = admit::caller(plan, request.headers())?;
    let one = rest.strip_prefix('/').filter(|name| !name.is_empty());
    models::answer(plan, &caller, dialect, one)
}

fn wrong_method(request: &Request<Incoming>) -> Problem {
    let message = format!(
        "`{}` does not take {}",
        request.uri().path(),
        request.method()
    );
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, "wrong_method", message)
}

/// Everything before the scheduler: who, how urgent, what, and whether it may.
async fn prepare(
    shared: Arc<Shared>,
    plan: Arc<Plan>,
    number: u64,
    marks: &mut Marks,
    endpoint: Endpoint,
    request: Request<Incoming>,
) -> Result<Passage, Problem> {
    let caller = admit::caller(&plan, request.headers())?;
    let class = admit::class(&plan, &caller, request.headers())?;
    marks.class = Some(class);
    let (parts, body) = request.into_parts();
    let body = admit::body(&plan, &parts.headers, body).await?;
    let ask = read_ask(&body)
        .map_err(|message| Problem::new(StatusCode::BAD_REQUEST, "bad_request", message))?;
    let group = group(&plan, &caller, endpoint, &ask.model)?;
    admit::quota(&shared, &plan, &caller).inspect_err(|_| {
        shared.ledger.refused(&caller.tenant, class, shared.today());
    })?;
    let output = plan.config.default_output_tokens;
    Ok(Passage {
        estimate: ask.estimate(endpoint, output),
        most: ask.most(endpoint, output),
        forward: Forward {
            endpoint,
            query: parts.uri.query().map(str::to_owned),
            headers: parts.headers,
            body,
        },
        marks: marks.clone(),
        presence: Presence {
            shared: shared.clone(),
            number,
            answered: false,
        },
        shared,
        plan,
        number,
        caller,
        class,
        ask,
        group,
    })
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
