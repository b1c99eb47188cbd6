//! A scheduled request: from its admission to the permit, and how the wait ends.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use headworks_core::{Class, Cost, Job, Key, Reason, TargetId, TargetState, View};
use headworks_pool::{Acquire, Denied, EndReason, Permit};
use headworks_service::config::show_duration;
use http::{Response, StatusCode};
use jiff::Timestamp;
use smallvec::SmallVec;

use super::body::GatewayBody;
use super::marks::Marks;
use super::progress;
use super::route::Desk;
use crate::books::{Entry, Stage};
use crate::keys::Caller;
use crate::plan::Plan;
use crate::shared::{Shared, Waiting, WaitingGuard};
use crate::upstream::Forward;
use crate::wire::{Ask, Dialect, Problem, Usage};

/// Retry hint where the scheduler gives none: after an expired wait, and during shutdown.
const SOON: Duration = Duration::from_secs(1);

/// A request that is queued or running. Boxed, because it moves from one future to the next.
pub(super) struct Passage {
    pub(super) desk: Arc<Desk>,
    pub(super) shared: Arc<Shared>,
    pub(super) plan: Arc<Plan>,
    pub(super) number: u64,
    pub(super) caller: Arc<Caller>,
    pub(super) class: Class,
    pub(super) ask: Ask,
    pub(super) estimate: u64,
    /// Most tokens that the request may cost, as its own limits say. Not capped like the estimate.
    pub(super) most: u64,
    /// Timeout that the client announced.
    pub(super) patience: Duration,
    /// Whether the client says that this is a retry.
    pub(super) is_retry: bool,
    pub(super) forward: Forward,
    pub(super) group: Vec<TargetId>,
    pub(super) marks: Marks,
    pub(super) presence: Presence,
    /// Whether an upstream has the request and has not responded yet.
    pub(super) asking: bool,
    /// Whether an upstream received the request and never responded.
    pub(super) lost: bool,
}

/// Books the usage of a client that disconnects before the response begins.
impl Drop for Passage {
    fn drop(&mut self) {
        if !self.asking {
            return;
        }
        // A stream stops when its connection closes, and nothing of it was relayed. Any other
        // response is generated to its end.
        let output = match self.ask.stream {
            true => 0,
            false => self.expected(),
        };
        let usage = Usage {
            input: Some(self.ask.prompt),
            output: Some(output),
        };
        let (shared, tenant) = (&self.shared, &self.caller.tenant);
        // Without a response the model may not exist, so it is not named.
        shared
            .ledger
            .ended(tenant, self.class, "", usage, shared.today());
        self.presence.tokens = usage.total();
    }
}

impl Passage {
    /// Estimated tokens of the response.
    pub(super) fn expected(&self) -> u64 {
        self.estimate.saturating_sub(self.ask.prompt)
    }

    pub(super) fn dialect(&self) -> Dialect {
        self.forward.endpoint.dialect()
    }

    /// Waits for a permit, calls an upstream, and returns the response.
    pub(super) async fn go(mut self: Box<Self>) -> Response<GatewayBody> {
        self.write_arrival();
        let mut acquire = match self.acquire() {
            Ok(acquire) => acquire,
            Err(problem) => return self.refuse(&problem),
        };
        // Most requests are granted at once: they skip the bookkeeping of the queue.
        let at_once = poll_fn(|cx| Poll::Ready(Pin::new(&mut acquire).poll(cx))).await;
        if let Poll::Ready(word) = at_once {
            return self.proceed(word).await;
        }
        let place = match self.queue() {
            Ok(place) => place,
            Err(problem) => return self.refuse(&problem),
        };
        if self.plan.config.queue_progress && self.ask.stream {
            return progress::respond(self, acquire, place);
        }
        self.wait(acquire, place).await
    }

    /// Waits for the permit, then proceeds.
    pub(super) async fn wait(
        self: Box<Self>,
        acquire: Acquire,
        place: WaitingGuard,
    ) -> Response<GatewayBody> {
        let word = acquire.await;
        drop(place);
        self.proceed(word).await
    }

    async fn proceed(mut self: Box<Self>, word: Result<Permit, Denied>) -> Response<GatewayBody> {
        match word {
            Ok(permit) => {
                self.granted(&permit);
                // Boxed, so that a queued request does not hold the space that only a running one
                // needs.
                match Box::pin(self.attempts(permit)).await {
                    Ok(response) => response,
                    Err(problem) => self.fail(&problem),
                }
            }
            Err(denied) => {
                let problem = self.denied(&denied);
                self.refuse(&problem)
            }
        }
    }

    fn acquire(&self) -> Result<Acquire, Problem> {
        let permits = &self.shared.permits;
        let targets = self.shared.set_of(&self.group).ok_or_else(no_upstream)?;
        let timeout = self.plan.queue_timeout(self.class);
        // Only a retry can have a booking, so other requests are spared the hash of their body.
        let booking = self
            .is_retry
            .then(|| {
                self.shared
                    .bookings
                    .claim(self.fingerprint(), Instant::now())
            })
            .flatten();
        let tenant: &str = &self.caller.tenant;
        let job = Job::new(())
            .class(self.class)
            .flow(self.shared.seed.flow(&tenant))
            .cost(self.cost())
            .targets(targets)
            .booking(booking)
            .expire_at(permits.now() + timeout.min(self.patience));
        Ok(permits.acquire(job))
    }

    /// Cost for the scheduler: the estimate, which is capped. A request beyond the context limit
    /// keeps its full size, so that the scheduler rejects it for good.
    fn cost(&self) -> Cost {
        let context = self.plan.config.scheduler_max_context_length;
        match context > 0 && self.most > context {
            true => Cost(self.most),
            false => Cost(self.estimate),
        }
    }

    /// Identifies a retry: the same tenant, class and body.
    fn fingerprint(&self) -> Key {
        let tenant: &str = &self.caller.tenant;
        self.shared
            .seed
            .key(&(tenant, self.class.0, &self.forward.body[..]))
    }

    /// Enters the queue and records what the request waits for.
    fn queue(&mut self) -> Result<WaitingGuard, Problem> {
        let (place, before) = Waiting::join(&self.shared, self.class);
        let view = self.shared.permits.inspect();
        self.marks.position = before + 1;
        if let Some(until) = self.all_suspended(&view) {
            return Err(self.suspended(until));
        }
        // Over HTTP/2, headers and body share a buffer with other streams. A request that is queued
        // copies them, so that it does not keep that buffer alive.
        self.forward.compact();
        let held_by = Some(self.held_by(&view));
        let position = before + 1;
        self.shared.journal.change(self.number, |entry| {
            (entry.position, entry.held_by) = (position, held_by);
        });
        Ok(place)
    }

    fn suspended(&self, until: Duration) -> Problem {
        let message = format!(
            "all upstreams for `{}` are suspended for another {}, longer than this request can wait",
            self.ask.model,
            show_duration(Duration::from_secs(until.as_secs() + 1))
        );
        let status = StatusCode::SERVICE_UNAVAILABLE;
        Problem::new(status, "upstreams_suspended", message).retry_in(until)
    }

    /// Time until the first upstream of the group is usable again, if all are suspended for longer
    /// than this request can wait.
    fn all_suspended(&self, view: &View) -> Option<Duration> {
        let now = self.shared.permits.now();
        let rest = |target: &TargetId| match view.targets.get(target.index())?.state {
            TargetState::Suspended { until } => Some(until.since(now)),
            _ => None,
        };
        let rests: Option<Vec<Duration>> = self.group.iter().map(rest).collect();
        let patience = self.patience.min(self.plan.queue_timeout(self.class));
        rests?.into_iter().min().filter(|rest| *rest > patience)
    }

    /// Describes in words what blocks the request.
    fn held_by(&self, view: &View) -> String {
        let most = self.plan.config.scheduler_max_concurrent;
        let ahead = |classes: &[headworks_core::ClassView]| {
            classes.iter().map(|class| class.waiting).sum::<u64>()
        };
        let class = usize::from(self.class.0).min(view.classes.len() - 1);
        let (urgent, same) = (ahead(&view.classes[..class]), view.classes[class].waiting);
        let cost = self.estimate as f64;
        let gate = match view.levels {
            _ if view.running >= u64::from(most) => format!("all {most} slots were taken"),
            (Some(requests), _) if requests < 1.0 => "the rate of requests was used up".to_owned(),
            (_, Some(tokens)) if tokens < cost => {
                format!("the rate of tokens was used up: {tokens:.0} free, {cost:.0} needed")
            }
            _ => "a limit of its tenant or of its upstreams was reached".to_owned(),
        };
        format!(
            "{gate}; {} running, {urgent} waiting in more urgent classes, {} before it in its own",
            view.running,
            same.saturating_sub(1)
        )
    }

    fn granted(&mut self, permit: &Permit) {
        self.marks.waited = permit.waited();
        self.marks.reason = match (permit.aged(), self.marks.position) {
            (true, _) => "aged",
            (_, 0) => "granted",
            _ => "queued",
        };
    }

    /// Translates a denial of the scheduler into an error response, and remembers the booking for a
    /// retry.
    fn denied(&self, denied: &Denied) -> Problem {
        let after = denied.retry_after().unwrap_or(SOON);
        if let Some(booking) = denied.booking() {
            self.shared
                .bookings
                .remember(self.fingerprint(), booking, after, Instant::now());
        }
        let busy = |reason, message: &str| {
            let message = format!("{message}; come back in {:.1} s", after.as_secs_f64());
            Problem::new(StatusCode::TOO_MANY_REQUESTS, reason, message).retry_in(after)
        };
        match denied {
            Denied::Refused { reason, .. } => match reason {
                Reason::Full | Reason::TargetFull | Reason::DelayedFull => busy(
                    reason.name(),
                    &format!("the queue of class {} is full", self.class),
                ),
                Reason::DeadlineUnreachable => busy(
                    reason.name(),
                    "the wait would be longer than this request, or its client, can wait",
                ),
                Reason::Suspended => self.suspended(after),
                Reason::TooLarge => self.too_large(),
                Reason::NoTarget => no_upstream(),
                Reason::Draining => stopping(),
                other => busy(other.name(), "the request cannot be queued now"),
            },
            Denied::Ended(EndReason::Shed { .. }) => busy(
                "shed",
                "the queue is full and another tenant had less than its share of it",
            ),
            Denied::Ended(EndReason::Expired) => busy(
                "expired",
                "the request waited as long as it could without getting its turn",
            ),
            Denied::Ended(EndReason::Unservable(headworks_core::Unservable::TooLarge)) => {
                self.too_large()
            }
            Denied::Ended(EndReason::Returned) => stopping(),
            Denied::Ended(_) | Denied::WouldWait => no_upstream(),
            _ => no_upstream(),
        }
    }

    fn too_large(&self) -> Problem {
        let message = format!(
            "about {} tokens, prompt and answer, are more than one request may have: shorten the prompt or lower `max_tokens`",
            self.most
        );
        Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", message).never()
    }

    fn write_arrival(&self) {
        if let Some(log) = &self.shared.log {
            log.arrived(self.class, &self.caller.tenant, self.estimate);
        }
        self.shared.journal.write(Entry {
            number: self.number,
            arrived: Timestamp::now(),
            tenant: self.caller.tenant.clone(),
            class: self.class,
            model: self.ask.model.clone(),
            stage: Stage::Waiting,
            estimate: self.estimate,
            tokens: None,
            position: 0,
            held_by: None,
            waited: None,
            aged: false,
            upstreams: SmallVec::new(),
            status: None,
            reason: "waiting",
            took: None,
        });
    }

    /// Rejects the request before it reached an upstream.
    fn refuse(&mut self, problem: &Problem) -> Response<GatewayBody> {
        let (shared, tenant) = (&self.shared, &self.caller.tenant);
        shared.ledger.refused(tenant, self.class, shared.today());
        self.end(Stage::Refused, problem)
    }

    /// Fails the request: no upstream responded.
    fn fail(&mut self, problem: &Problem) -> Response<GatewayBody> {
        let (shared, tenant) = (&self.shared, &self.caller.tenant);
        let usage = Usage {
            // An upstream that received the request has at least read the prompt.
            input: self.lost.then_some(self.ask.prompt),
            output: None,
        };
        shared
            .ledger
            .ended(tenant, self.class, "", usage, shared.today());
        self.end(Stage::Failed, problem)
    }

    fn end(&mut self, stage: Stage, problem: &Problem) -> Response<GatewayBody> {
        self.presence.answered = true;
        let (status, reason) = (problem.status.as_u16(), problem.reason);
        self.shared.journal.change(self.number, |entry| {
            (entry.stage, entry.status, entry.reason) = (stage, Some(status), reason);
        });
        if let Some(log) = &self.shared.log {
            log.ended(&self.marks.id, reason, status, None);
        }
        tracing::debug!(
            request = self.marks.id,
            reason,
            status,
            "refused: {}",
            problem.message
        );
        self.marks.refuse(self.dialect(), problem)
    }
}

pub(super) fn no_upstream() -> Problem {
    let message =
        "no upstream is left that could serve this; its state is in the gateway's statistics";
    Problem::new(StatusCode::SERVICE_UNAVAILABLE, "no_upstream", message)
}

fn stopping() -> Problem {
    let message = "the gateway is being stopped";
    Problem::new(StatusCode::SERVICE_UNAVAILABLE, "draining", message).retry_in(SOON)
}

/// Records in the history that a client disconnected before it had a response.
pub(super) struct Presence {
    pub(super) shared: Arc<Shared>,
    pub(super) number: u64,
    pub(super) answered: bool,
    /// Tokens booked for a client that disconnected.
    pub(super) tokens: Option<u64>,
}

impl Drop for Presence {
    fn drop(&mut self) {
        if self.answered {
            return;
        }
        self.shared.journal.change(self.number, |entry| {
            (entry.stage, entry.reason) = (Stage::Left, "client_left");
            entry.tokens = self.tokens;
        });
        if let Some(log) = &self.shared.log {
            let id = self.shared.journal.ids.name(self.number);
            log.ended(&id, "client_left", 0, self.tokens);
        }
    }
}
