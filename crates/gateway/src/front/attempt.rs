//! Attempts: sends a granted request to one upstream after another until one responds.
//!
//! A request goes to another upstream only if nothing can have been generated: the connection
//! failed, or the upstream rejected the request with 429 or 503. After other errors and after a
//! timeout this happens only if the operator configured it, because a response may be generated and
//! paid for twice.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use headworks_core::Cost;
use headworks_pool::{Health, Permit, Report};
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderValue, Response, StatusCode};

use super::body::GatewayBody;
use super::in_flight::InFlight;
use super::relay::{Limits, Relay};
use super::request::{ScheduledRequest, no_upstream};
use crate::history::Stage;
use crate::upstream::{CallError, Upstream, UpstreamResponse, clean_response_headers, read_hints};
use crate::wire::Problem;

/// The result of an upstream that did not serve the request. The client gets it if no other
/// upstream does.
enum UnservedResult {
    UpstreamResponse(Arc<Upstream>, Box<UpstreamResponse>),
    Problem(Problem),
}

/// Outcome of one attempt.
enum Attempt {
    /// The upstream responds, successfully or with a client error.
    Responded(UpstreamResponse),
    /// Nothing was generated: another upstream may try.
    TryNext(Health, UnservedResult),
    /// The upstream responds with an error, and something may have been generated. The client gets
    /// the error.
    UpstreamError(Health, UnservedResult),
    /// Final: no other upstream would do better.
    Failed(Report, Problem),
    /// Final: the upstream has received the request and may have generated something.
    Lost(Report, Problem),
}

impl ScheduledRequest {
    /// Tries upstreams until one responds or none is left.
    pub(crate) async fn attempts(
        &mut self,
        mut permit: Permit,
    ) -> Result<Response<GatewayBody>, Problem> {
        let began = Instant::now();
        // At most one attempt per upstream of the group.
        let mut left = self.group.len();
        loop {
            // A reload may have removed the upstream since the permit was granted.
            let active = self.shared.active.load_full();
            let Some(upstream) = active.upstream(permit.target()).cloned() else {
                permit.finish(Report::done_at(Cost(0)).target(Health::Unknown));
                return Err(no_upstream());
            };
            left = left.saturating_sub(1);
            self.record_attempt(&upstream, &permit);
            let (health, result) = match self.attempt(&upstream, left == 0).await {
                Attempt::Responded(answer) => {
                    return Ok(self.respond(&upstream, answer, Some(permit), began));
                }
                Attempt::TryNext(health, result) => (health, result),
                Attempt::UpstreamError(health, result) => {
                    permit.finish(Report::done_at(Cost(0)).target(health));
                    return self.give_up(result, began);
                }
                Attempt::Failed(report, problem) => {
                    permit.finish(report);
                    return Err(problem);
                }
                Attempt::Lost(report, problem) => {
                    permit.finish(report);
                    self.maybe_generated = true;
                    return Err(problem);
                }
            };
            if left == 0 {
                permit.finish(Report::done_at(Cost(0)).target(health));
                return self.give_up(result, began);
            }
            match permit.reacquire(Report::elsewhere().target(health)).await {
                Ok(next) => permit = next,
                // No permit for another upstream in time: the client gets the result of this one.
                Err(_) => return self.give_up(result, began),
            }
        }
    }

    async fn attempt(&mut self, upstream: &Arc<Upstream>, last: bool) -> Attempt {
        let most = self.active.config.request_timeout;
        // The last attempt takes the request; earlier ones copy it, since it may be sent again.
        let forward = match last {
            true => self.forward.take(),
            false => self.forward.clone(),
        };
        // From here on the upstream may generate. If the client disconnects now, `drop` books the
        // usage.
        self.awaiting_response = true;
        let answer = upstream
            .call(&self.context.client_pool, forward, most)
            .await;
        self.awaiting_response = false;
        let metrics = &upstream.metrics;
        let answer = match answer {
            Ok(answer) => answer,
            Err(failure) => {
                metrics.failed.fetch_add(1, Ordering::Relaxed);
                tracing::warn!(
                    upstream = upstream.name(),
                    request = self.response_headers.id,
                    "{failure}"
                );
                return failed(upstream, &failure);
            }
        };
        let status = answer.status();
        let hints = read_hints(status, answer.headers());
        self.shared.learn_from(upstream, &hints);
        match status.as_u16() {
            429 => {
                metrics.overloaded.fetch_add(1, Ordering::Relaxed);
                let rest = hints.retry_after.unwrap_or(upstream.settings.suspend_for);
                Attempt::TryNext(
                    Health::Overloaded(rest),
                    UnservedResult::UpstreamResponse(upstream.clone(), Box::new(answer)),
                )
            }
            error @ 500.. => {
                metrics.failed.fetch_add(1, Ordering::Relaxed);
                let health = self.health_after(upstream, error, hints.retry_after);
                let result = UnservedResult::UpstreamResponse(upstream.clone(), Box::new(answer));
                // A 503 says that the upstream has not begun. Any other error may come after the
                // work.
                match error == 503 || upstream.settings.retry_on.contains(&error) {
                    true => Attempt::TryNext(health, result),
                    false => Attempt::UpstreamError(health, result),
                }
            }
            401 | 403 => {
                metrics.failed.fetch_add(1, Ordering::Relaxed);
                tracing::error!(upstream = upstream.name(), %status, "upstream rejects the credentials: set its `api_key`");
                let message = format!(
                    "upstream `{}` rejects the gateway's own credentials ({status}): the operator must correct its `api_key`",
                    upstream.name()
                );
                let problem =
                    Problem::new(StatusCode::BAD_GATEWAY, "upstream_credentials", message);
                // The prompt or the model may be the reason, so this says nothing about the
                // upstream's health.
                Attempt::Failed(Report::done_at(Cost(0)).target(Health::Unknown), problem)
            }
            status => {
                metrics.answered.fetch_add(1, Ordering::Relaxed);
                if status < 400 {
                    let tenant = &self.principal.tenant;
                    self.shared.faults.answered(upstream.target, tenant);
                }
                Attempt::Responded(answer)
            }
        }
    }

    /// Health of an upstream after it responded with an error.
    fn health_after(
        &self,
        upstream: &Upstream,
        status: u16,
        retry_after: Option<Duration>,
    ) -> Health {
        // An upstream that names a time is suspended for exactly that time.
        if let (503 | 529, Some(rest)) = (status, retry_after) {
            return Health::Overloaded(rest);
        }
        let (target, tenant) = (upstream.target, &self.principal.tenant);
        let faults = &self.shared.faults;
        faults.failed(target, &upstream.settings, tenant, Instant::now())
    }

    /// Records the attempt in the history. The first attempt also ends the wait.
    fn record_attempt(&mut self, upstream: &Upstream, permit: &Permit) {
        self.response_headers
            .upstream
            .clone_from(&upstream.name_header);
        let (waited, reason) = (self.response_headers.waited, self.response_headers.reason);
        self.shared.history.update(self.number, |entry| {
            entry.stage = Stage::Running;
            (entry.waited, entry.reason) = (Some(waited), reason);
            entry.aged |= permit.aged();
            entry.upstreams.push(upstream.label.clone());
        });
    }

    /// No other upstream is left: the client gets the result of the last attempt.
    fn give_up(
        &mut self,
        result: UnservedResult,
        began: Instant,
    ) -> Result<Response<GatewayBody>, Problem> {
        match result {
            UnservedResult::Problem(problem) => Err(problem),
            UnservedResult::UpstreamResponse(upstream, mut answer) => {
                let overloaded = answer.status() == StatusCode::TOO_MANY_REQUESTS;
                self.response_headers.reason = if overloaded {
                    "upstream_overloaded"
                } else {
                    "upstream_failed"
                };
                // The upstream is suspended for this long, so an earlier retry would not reach it.
                if overloaded && !answer.headers().contains_key(RETRY_AFTER) {
                    let rest = upstream.settings.suspend_for.as_secs().max(1);
                    answer
                        .headers_mut()
                        .insert(RETRY_AFTER, HeaderValue::from(rest));
                }
                Ok(self.respond(&upstream, *answer, None, began))
            }
        }
    }

    /// Builds the response to the client, with the permit inside its body.
    fn respond(
        &mut self,
        upstream: &Arc<Upstream>,
        answer: UpstreamResponse,
        permit: Option<Permit>,
        began: Instant,
    ) -> Response<GatewayBody> {
        self.disconnect_guard.answered = true;
        let (parts, body) = answer.into_parts();
        let content = parts.headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes);
        let in_flight = InFlight {
            shared: self.shared.clone(),
            upstream: upstream.clone(),
            permit,
            number: self.number,
            dialect: self.dialect(),
            tenant: self.principal.tenant.clone(),
            class: self.class,
            model: std::mem::take(&mut self.summary.model),
            prompt: self.summary.prompt,
            expected_output: self.expected(),
            status: parts.status.as_u16(),
            events: content.is_some_and(|content| content.starts_with(b"text/event-stream")),
            began,
            settled: false,
        };
        let limits = Limits {
            idle: upstream.settings.idle_timeout,
            client: self.active.config.client_timeout,
            whole: self.active.config.request_timeout,
        };
        let mut response = Response::new(GatewayBody::Relay(Relay::new(body, in_flight, limits)));
        *response.status_mut() = parts.status;
        *response.headers_mut() = parts.headers;
        clean_response_headers(response.headers_mut());
        self.response_headers
            .write(self.forward.endpoint.dialect(), response.headers_mut());
        response
    }
}

fn failed(upstream: &Upstream, failure: &CallError) -> Attempt {
    let message = format!("upstream `{}` {failure}", upstream.name());
    let problem = |status, reason| Problem::new(status, reason, message);
    match failure {
        CallError::Connect(_) => {
            let problem = problem(StatusCode::SERVICE_UNAVAILABLE, "no_upstream");
            Attempt::TryNext(Health::Fault, UnservedResult::Problem(problem))
        }
        CallError::Timeout(_) => {
            let problem = problem(StatusCode::GATEWAY_TIMEOUT, "upstream_timeout");
            match upstream.settings.retry_on_timeout {
                true => Attempt::TryNext(Health::Fault, UnservedResult::Problem(problem)),
                false => Attempt::Lost(Report::failed().target(Health::Fault), problem),
            }
        }
        CallError::Broken(_) => Attempt::Lost(
            Report::failed().target(Health::Fault),
            problem(StatusCode::BAD_GATEWAY, "upstream_broke_off"),
        ),
    }
}
