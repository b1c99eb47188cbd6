//! Attempts: sends a granted request to one upstream after another until one responds.
//!
//! A request goes to another upstream only if nothing can have been generated: the connection
//! failed, or the upstream rejected the request with 429 or 503. After other errors and after a
//! timeout this happens only if the operator configured it, because a response may be generated and
//! paid for twice.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use headworks_core::{Cost, TargetId};
use headworks_pool::{Health, Permit, Report};
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use smallvec::SmallVec;

use super::body::GatewayBody;
use super::call_permit::CallPermit;
use super::in_flight::{End, InFlight};
use super::relay::{Limits, Relay};
use super::request::{DEFAULT_RETRY, ScheduledRequest, no_upstream};
use crate::history::Stage;
use crate::upstream::{
    CallError, Probe, Upstream, UpstreamResponse, clean_response_headers, read_hints, sort_by_turn,
};
use crate::wire::Problem;

/// The result of an upstream that did not serve the request. The client gets it if no other
/// upstream does.
enum UnservedResult {
    UpstreamResponse(Arc<Upstream>, Box<UpstreamResponse>),
    Problem(Problem),
}

impl UnservedResult {
    fn response(upstream: &Arc<Upstream>, answer: UpstreamResponse) -> UnservedResult {
        UnservedResult::UpstreamResponse(upstream.clone(), Box::new(answer))
    }
}

impl From<Problem> for UnservedResult {
    fn from(problem: Problem) -> UnservedResult {
        UnservedResult::Problem(problem)
    }
}

/// Outcome of one attempt.
enum Attempt {
    /// The upstream responds, successfully or with a client error.
    Responded(UpstreamResponse),
    /// Nothing was generated: another upstream may try.
    TryNext(Health, UnservedResult),
    /// Something may have been generated, so no other upstream may try.
    Final(Health, UnservedResult),
    /// The upstream has received the request and may have generated something, but did not respond.
    Lost(Problem),
    /// The client had left, and no response came.
    Abandoned,
}

impl ScheduledRequest {
    /// Tries upstreams until one responds or none is left.
    pub(crate) async fn attempts(
        &mut self,
        permit: Permit,
    ) -> Result<Response<GatewayBody>, Problem> {
        let mut permit = CallPermit::new(permit, self);
        let began = Instant::now();
        let (mut result, mut health) = (None, Health::Unknown);
        loop {
            let Some((upstream, probe)) = self.choose(permit.target()) else {
                // Nothing was generated, so the whole charge is returned.
                let health = std::mem::replace(&mut health, Health::Unknown);
                let elsewhere = Report::elsewhere().target(health);
                let since = self.shared.permits.now();
                let next = match (permit.take().reacquire(elsewhere).await, result.take()) {
                    (Ok(next), _) => next,
                    (Err(_), Some(result)) => return self.give_up(result, began),
                    (Err(_), None) => self.reschedule().await?,
                };
                self.record_wait(since);
                permit = CallPermit::new(next, self);
                continue;
            };
            self.tried.push(upstream.id);
            self.record_attempt(&upstream, permit.aged());
            let attempt = self.attempt(&upstream).await;
            drop(probe);
            health = match attempt {
                Attempt::Responded(answer) => {
                    return Ok(self.respond(&upstream, answer, Some(permit.take()), began));
                }
                Attempt::TryNext(health, unserved) => {
                    result = Some(unserved);
                    health
                }
                Attempt::Final(health, unserved) => {
                    permit
                        .take()
                        .finish(Report::done_at(Cost(0)).target(health));
                    return self.give_up(unserved, began);
                }
                Attempt::Lost(problem) => {
                    permit.take().finish(Report::failed());
                    self.maybe_generated = true;
                    return Err(problem);
                }
                Attempt::Abandoned => return Err(no_upstream()),
            };
            // Nobody waits for the response of another upstream.
            if self.progress.is_abandoned() {
                permit
                    .take()
                    .finish(Report::done_at(Cost(0)).target(health));
                return self.give_up(result.unwrap_or_else(|| no_upstream().into()), began);
            }
            // Another upstream of the same pool needs no other permit.
            if !self.reachable(permit.target(), Instant::now()).is_empty() {
                continue;
            }
            if self.left().all(|left| left.target == permit.target()) {
                permit
                    .take()
                    .finish(Report::done_at(Cost(0)).target(health));
                return self.give_up(result.unwrap_or_else(|| no_upstream().into()), began);
            }
            let elsewhere = Report::elsewhere().target(health);
            let since = self.shared.permits.now();
            match permit.take().reacquire(elsewhere).await {
                Ok(next) => {
                    self.record_wait(since);
                    permit = CallPermit::new(next, self);
                }
                // No permit for another upstream in time: the client gets the result of this one.
                Err(_) => {
                    return self.give_up(result.unwrap_or_else(|| no_upstream().into()), began);
                }
            }
        }
    }

    /// The upstream to call at `target`, unless a reload has removed it, or it has been suspended
    /// since the request was queued.
    fn choose(&self, target: TargetId) -> Option<(Arc<Upstream>, Option<Probe>)> {
        let (active, now) = (self.shared.active.load(), Instant::now());
        let mut at_target = self.reachable(target, now);
        sort_by_turn(&mut at_target);
        // Then those that are avoided: the permit may have been granted because one of them can be
        // called, and without a call the same permit would be asked for again at once.
        let avoided = self.left().filter(|upstream| upstream.target == target);
        at_target
            .iter()
            .copied()
            .chain(avoided)
            .find_map(|upstream| {
                let upstream = active.upstream(upstream.id)?;
                let probe = upstream.begin(self.viewpoint(), now).ok()?;
                upstream
                    .connects
                    .begin(upstream.settings.suspend_rule(), now);
                Some((upstream.clone(), probe))
            })
    }

    /// Upstreams of a pool that were not called yet. One whose server cannot be reached is left
    /// out, unless that is true of the whole pool: then the scheduler decides when it is called.
    fn reachable(&self, target: TargetId, now: Instant) -> SmallVec<[&Arc<Upstream>; 2]> {
        let upstreams = self.group.iter().filter_map(|id| self.active.upstream(*id));
        let mut of_pool = upstreams.filter(|upstream| upstream.target == target);
        let is_up = |upstream: &Arc<Upstream>| upstream.connects.down_for(now).is_none();
        let some_are_up = of_pool.any(is_up);
        let left = self.left().filter(|upstream| upstream.target == target);
        left.filter(|upstream| !some_are_up || is_up(upstream))
            .collect()
    }

    async fn attempt(&mut self, upstream: &Arc<Upstream>) -> Attempt {
        let most = self.active.config.request_timeout;
        // The last attempt takes the headers; earlier ones copy them, since they may be sent again.
        let is_last = self.left().next().is_none();
        let forward = match is_last {
            true => self.forward.take(),
            false => self.forward.clone(),
        };
        self.called = Instant::now();
        let answer = upstream
            .call(&self.context.client_pool, forward, most, &self.progress)
            .await;
        let metrics = &upstream.metrics;
        if !matches!(answer, Err(CallError::Connect(_) | CallError::NoDescriptor)) {
            upstream.connects.reached();
        }
        let answer = match answer {
            Ok(answer) => answer,
            // The upstream stopped because it was told to. If it had the request, `drop` books it.
            Err(failure) if self.progress.is_abandoned() => {
                let is_sent = matches!(failure, CallError::Timeout(_) | CallError::Broken(_));
                self.progress.set_sent(is_sent);
                return Attempt::Abandoned;
            }
            Err(failure) => {
                metrics.failed.fetch_add(1, Ordering::Relaxed);
                tracing::warn!(
                    upstream = upstream.name(),
                    request = self.response_headers.id,
                    "{failure}"
                );
                return self.failed(upstream, &failure);
            }
        };
        let status = answer.status();
        let (hints, now) = (read_hints(status, answer.headers()), Instant::now());
        upstream.limited(self.viewpoint(), &hints, now);
        if hints.overloaded {
            let rest = hints.retry_after.unwrap_or(upstream.settings.suspend_for);
            upstream.health.overloaded(self.viewpoint(), rest, now);
        }
        self.shared.learn_from(upstream, &hints, now);
        match status.as_u16() {
            429 => {
                metrics.overloaded.fetch_add(1, Ordering::Relaxed);
                Attempt::TryNext(Health::Fine, UnservedResult::response(upstream, answer))
            }
            // A server that gives up waiting may have generated something.
            error @ (408 | 500..) => {
                metrics.failed.fetch_add(1, Ordering::Relaxed);
                match hints.retry_after.filter(|_| matches!(error, 503 | 529)) {
                    // An upstream that names a time is suspended for exactly that time.
                    Some(rest) => upstream.health.overloaded(self.viewpoint(), rest, now),
                    None => self.record_fault(upstream),
                }
                let refuses = is_refusal(answer.headers());
                let result = UnservedResult::response(upstream, answer);
                // A 503 with a refusal says that the upstream has not begun. Any other error may
                // come after the work, also a 503 of a proxy that lost the upstream.
                let refused = error == 503 && refuses;
                match refused || upstream.settings.retry_on.contains(&error) {
                    true => Attempt::TryNext(Health::Fine, result),
                    false => Attempt::Final(Health::Fine, result),
                }
            }
            401 | 403 => {
                metrics.failed.fetch_add(1, Ordering::Relaxed);
                // Clients can cause a 403, so it must not fill the log.
                if upstream.metrics.may_log_refusal(now) {
                    tracing::warn!(
                        upstream = upstream.name(),
                        %status,
                        "the upstream refuses requests: its `api_key` is wrong, or it does not permit their content or model"
                    );
                }
                // The prompt or the model may be the reason, so this says nothing about the
                // upstream's health.
                Attempt::Final(Health::Fine, refused(upstream.name(), status).into())
            }
            status => {
                metrics.answered.fetch_add(1, Ordering::Relaxed);
                if status < 400 {
                    upstream.health.answered(self.viewpoint(), now);
                }
                Attempt::Responded(answer)
            }
        }
    }

    /// Records that the upstream gave no usable response.
    fn record_fault(&self, upstream: &Arc<Upstream>) {
        let faults = &self.shared.faults;
        faults.failed(upstream, self.viewpoint(), self.body_key(), Instant::now());
    }

    /// Classifies a call without a response.
    fn failed(&self, upstream: &Arc<Upstream>, failure: &CallError) -> Attempt {
        let message = format!("upstream `{}` {failure}", upstream.name());
        let problem = |status, reason| Problem::new(status, reason, message);
        match failure {
            CallError::Connect(_) => {
                let rule = upstream.settings.suspend_rule();
                upstream.connects.failed(rule, Instant::now());
                let mut upstreams = self.active.upstreams();
                let is_reachable = |other: &Arc<Upstream>| {
                    other.target == upstream.target && !other.connects.is_failing()
                };
                // The fault is the pool's only if none of its servers can be reached.
                let health = match upstreams.any(is_reachable) {
                    true => Health::Unknown,
                    false => Health::Fault,
                };
                let problem = problem(StatusCode::SERVICE_UNAVAILABLE, "no_upstream");
                Attempt::TryNext(health, problem.into())
            }
            CallError::NoDescriptor => {
                let problem = problem(StatusCode::SERVICE_UNAVAILABLE, "no_upstream");
                Attempt::Final(Health::Unknown, problem.retry_in(DEFAULT_RETRY).into())
            }
            CallError::Timeout(_) => {
                self.record_fault(upstream);
                let problem = problem(StatusCode::GATEWAY_TIMEOUT, "upstream_timeout");
                match upstream.settings.retry_on_timeout {
                    true => Attempt::TryNext(Health::Unknown, problem.into()),
                    false => Attempt::Lost(problem),
                }
            }
            CallError::Broken(_) => {
                self.record_fault(upstream);
                Attempt::Lost(problem(StatusCode::BAD_GATEWAY, "upstream_broke_off"))
            }
        }
    }

    /// Records the attempt in the history. The first attempt also ends the wait.
    fn record_attempt(&mut self, upstream: &Upstream, aged: bool) {
        self.response_headers
            .upstream
            .clone_from(&upstream.name_header);
        let (waited, reason) = (self.response_headers.waited, self.response_headers.reason);
        self.shared.history.update(self.number, |entry| {
            entry.stage = Stage::Running;
            (entry.waited, entry.reason) = (Some(waited), reason);
            entry.aged |= aged;
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
            unread: self.unread_output(self.called),
            choices: self.summary.choices,
            status: parts.status.as_u16(),
            events: content.is_some_and(|content| content.starts_with(b"text/event-stream")),
            began,
            left: self.progress.is_abandoned().then_some(End::Disconnected),
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

/// The response to a request whose upstream says that it is not permitted.
fn refused(upstream: &str, status: StatusCode) -> Problem {
    let (reason, message) = match status {
        StatusCode::UNAUTHORIZED => (
            "upstream_credentials",
            format!(
                "upstream `{upstream}` rejects the gateway's own credentials ({status}): the operator must correct its `api_key`"
            ),
        ),
        _ => (
            "upstream_refused",
            format!(
                "upstream `{upstream}` does not permit this request ({status}): its content or model may be forbidden, or the `api_key` of the upstream lacks a permission"
            ),
        ),
    };
    Problem::new(StatusCode::BAD_GATEWAY, reason, message).never()
}

/// Whether an error response is the API's own: a JSON body, or a time at which to return.
fn is_refusal(headers: &HeaderMap) -> bool {
    let content = headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes);
    let is_json = content.is_some_and(|content| content.windows(4).any(|part| part == b"json"));
    is_json || headers.contains_key(RETRY_AFTER)
}
