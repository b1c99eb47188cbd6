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
use super::held::Held;
use super::passage::{Passage, no_upstream};
use super::relay::{Limits, Relay};
use crate::books::Stage;
use crate::upstream::{Answer, Failure, Upstream, clean_answer, read_hints};
use crate::wire::Problem;

/// The result of an upstream that did not serve the request. The client gets it if no other
/// upstream does.
enum Returned {
    Answer(Arc<Upstream>, Box<Answer>),
    Problem(Problem),
}

/// Outcome of one attempt.
enum Attempt {
    /// The upstream responds, successfully or with a client error.
    Answered(Answer),
    /// Nothing was generated: another upstream may try.
    Elsewhere(Health, Returned),
    /// The upstream responds with an error, and something may have been generated. The client gets
    /// the error.
    Erred(Health, Returned),
    /// Final: no other upstream would do better.
    Failed(Report, Problem),
    /// Final: the upstream has received the request and may have generated something.
    Lost(Report, Problem),
}

impl Passage {
    /// Tries upstreams until one responds or none is left.
    pub(super) async fn attempts(
        &mut self,
        mut permit: Permit,
    ) -> Result<Response<GatewayBody>, Problem> {
        let began = Instant::now();
        // At most one attempt per upstream of the group.
        let mut left = self.group.len();
        loop {
            // A reload may have removed the upstream since the permit was granted.
            let plan = self.shared.plan.load_full();
            let Some(upstream) = plan.upstream(permit.target()).cloned() else {
                permit.finish(Report::done_at(Cost(0)).target(Health::Unknown));
                return Err(no_upstream());
            };
            left = left.saturating_sub(1);
            self.ask(&upstream, &permit);
            let (health, returned) = match self.attempt(&upstream, left == 0).await {
                Attempt::Answered(answer) => {
                    return Ok(self.respond(&upstream, answer, Some(permit), began));
                }
                Attempt::Elsewhere(health, returned) => (health, returned),
                Attempt::Erred(health, returned) => {
                    permit.finish(Report::done_at(Cost(0)).target(health));
                    return self.give_up(returned, began);
                }
                Attempt::Failed(report, problem) => {
                    permit.finish(report);
                    return Err(problem);
                }
                Attempt::Lost(report, problem) => {
                    permit.finish(report);
                    self.lost = true;
                    return Err(problem);
                }
            };
            if left == 0 {
                permit.finish(Report::done_at(Cost(0)).target(health));
                return self.give_up(returned, began);
            }
            match permit.reacquire(Report::elsewhere().target(health)).await {
                Ok(next) => permit = next,
                // No permit for another upstream in time: the client gets the result of this one.
                Err(_) => return self.give_up(returned, began),
            }
        }
    }

    async fn attempt(&mut self, upstream: &Arc<Upstream>, last: bool) -> Attempt {
        let most = self.plan.config.request_timeout;
        // The last attempt takes the request; earlier ones copy it, since it may be sent again.
        let forward = match last {
            true => self.forward.take(),
            false => self.forward.clone(),
        };
        // From here on the upstream may generate. If the client disconnects now, `drop` books the
        // usage.
        self.asking = true;
        let answer = upstream.call(&self.desk.links, forward, most).await;
        self.asking = false;
        let times = &upstream.times;
        let answer = match answer {
            Ok(answer) => answer,
            Err(failure) => {
                times.failed.fetch_add(1, Ordering::Relaxed);
                tracing::warn!(
                    upstream = upstream.name(),
                    request = self.marks.id,
                    "{failure}"
                );
                return failed(upstream, &failure);
            }
        };
        let status = answer.status();
        let hints = read_hints(status, answer.headers());
        self.shared.hear(upstream, &hints);
        match status.as_u16() {
            429 => {
                times.overloaded.fetch_add(1, Ordering::Relaxed);
                let rest = hints.retry_after.unwrap_or(upstream.settings.suspend_for);
                Attempt::Elsewhere(
                    Health::Overloaded(rest),
                    Returned::Answer(upstream.clone(), Box::new(answer)),
                )
            }
            error @ 500.. => {
                times.failed.fetch_add(1, Ordering::Relaxed);
                let health = self.health_after(upstream, error, hints.retry_after);
                let returned = Returned::Answer(upstream.clone(), Box::new(answer));
                // A 503 says that the upstream has not begun. Any other error may come after the
                // work.
                match error == 503 || upstream.settings.retry_on.contains(&error) {
                    true => Attempt::Elsewhere(health, returned),
                    false => Attempt::Erred(health, returned),
                }
            }
            401 | 403 => {
                times.failed.fetch_add(1, Ordering::Relaxed);
                tracing::error!(upstream = upstream.name(), %status, "refuses our credentials: set its `api_key`");
                let message = format!(
                    "the upstream `{}` refuses the gateway's own credentials ({status}): whoever runs this gateway must mend its `api_key`",
                    upstream.name()
                );
                let problem =
                    Problem::new(StatusCode::BAD_GATEWAY, "upstream_credentials", message);
                // The prompt or the model may be the reason, so this says nothing about the
                // upstream's health.
                Attempt::Failed(Report::done_at(Cost(0)).target(Health::Unknown), problem)
            }
            status => {
                times.answered.fetch_add(1, Ordering::Relaxed);
                if status < 400 {
                    let tenant = &self.caller.tenant;
                    self.shared.faults.answered(upstream.target, tenant);
                }
                Attempt::Answered(answer)
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
        let (target, tenant) = (upstream.target, &self.caller.tenant);
        let faults = &self.shared.faults;
        faults.failed(target, &upstream.settings, tenant, Instant::now())
    }

    /// Records the attempt in the history. The first attempt also ends the wait.
    fn ask(&mut self, upstream: &Upstream, permit: &Permit) {
        self.marks.upstream.clone_from(&upstream.mark);
        let (waited, reason) = (self.marks.waited, self.marks.reason);
        self.shared.journal.change(self.number, |entry| {
            entry.stage = Stage::Running;
            (entry.waited, entry.reason) = (Some(waited), reason);
            entry.aged |= permit.aged();
            entry.upstreams.push(upstream.label.clone());
        });
    }

    /// No other upstream is left: the client gets the result of the last attempt.
    fn give_up(
        &mut self,
        returned: Returned,
        began: Instant,
    ) -> Result<Response<GatewayBody>, Problem> {
        match returned {
            Returned::Problem(problem) => Err(problem),
            Returned::Answer(upstream, mut answer) => {
                let overloaded = answer.status() == StatusCode::TOO_MANY_REQUESTS;
                self.marks.reason = if overloaded {
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
        answer: Answer,
        permit: Option<Permit>,
        began: Instant,
    ) -> Response<GatewayBody> {
        self.presence.answered = true;
        let (parts, body) = answer.into_parts();
        let content = parts.headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes);
        let held = Held {
            shared: self.shared.clone(),
            upstream: upstream.clone(),
            permit,
            number: self.number,
            dialect: self.dialect(),
            tenant: self.caller.tenant.clone(),
            class: self.class,
            model: std::mem::take(&mut self.ask.model),
            prompt: self.ask.prompt,
            expected: self.expected(),
            status: parts.status.as_u16(),
            events: content.is_some_and(|content| content.starts_with(b"text/event-stream")),
            began,
            settled: false,
        };
        let limits = Limits {
            idle: upstream.settings.idle_timeout,
            client: self.plan.config.client_timeout,
            whole: self.plan.config.request_timeout,
        };
        let mut response = Response::new(GatewayBody::Relay(Relay::new(body, held, limits)));
        *response.status_mut() = parts.status;
        *response.headers_mut() = parts.headers;
        clean_answer(response.headers_mut());
        self.marks
            .write(self.forward.endpoint.dialect(), response.headers_mut());
        response
    }
}

fn failed(upstream: &Upstream, failure: &Failure) -> Attempt {
    let message = format!("the upstream `{}` {failure}", upstream.name());
    let problem = |status, reason| Problem::new(status, reason, message);
    match failure {
        Failure::Connect(_) => {
            let problem = problem(StatusCode::SERVICE_UNAVAILABLE, "no_upstream");
            Attempt::Elsewhere(Health::Fault, Returned::Problem(problem))
        }
        Failure::Timeout(_) => {
            let problem = problem(StatusCode::GATEWAY_TIMEOUT, "upstream_timeout");
            match upstream.settings.retry_on_timeout {
                true => Attempt::Elsewhere(Health::Fault, Returned::Problem(problem)),
                false => Attempt::Lost(Report::failed().target(Health::Fault), problem),
            }
        }
        Failure::Broken(_) => Attempt::Lost(
            Report::failed().target(Health::Fault),
            problem(StatusCode::BAD_GATEWAY, "upstream_broke_off"),
        ),
    }
}
