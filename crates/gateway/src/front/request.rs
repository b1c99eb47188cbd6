//! A scheduled request: from its admission to the permit, and how the wait ends.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use headworks_core::{
    Class, Cost, Job, Key, LONGEST, Reason, TargetId, TargetState, Time, Unservable, View,
};
use headworks_h1::CallProgress;
use headworks_pool::{Acquire, Denied, EndReason, Permit};
use headworks_service::config::format_duration;
use http::{Response, StatusCode};
use jiff::Timestamp;
use smallvec::SmallVec;

use super::body::GatewayBody;
use super::progress;
use super::response_headers::ResponseHeaders;
use super::route::ServeContext;
use super::running::RunningRequest;
use super::unread_output::UnreadOutput;
use crate::active_config::ActiveConfig;
use crate::gates::{WaitingRequest, reached_limits};
use crate::history::{HistoryEntry, Stage};
use crate::keys::Principal;
use crate::retry_hints::{Ages, Load, Rejection, TenantLoad};
use crate::shared::{DelayedCounts, DelayedGuard, QueueCounts, QueuedGuard, Shared};
use crate::upstream::{ForwardedRequest, Upstream, UpstreamId, Viewpoint, Wait};
use crate::wire::{Dialect, Problem, RequestSummary, Usage};

/// Retry hint where nothing is known, and during shutdown.
pub(crate) const DEFAULT_RETRY: Duration = Duration::from_secs(1);

/// Bytes at each end of a body by which a retry is recognised.
const MAX_COMPARED: usize = 32 << 10;

/// A request that is queued or running. Boxed, because it moves from one future to the next.
pub(crate) struct ScheduledRequest {
    pub(crate) context: Arc<ServeContext>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) active: Arc<ActiveConfig>,
    pub(crate) number: u64,
    pub(crate) principal: Arc<Principal>,
    pub(crate) class: Class,
    pub(crate) summary: RequestSummary,
    pub(crate) estimate: u64,
    /// Most tokens that the request may cost, as its own limits say. Not capped like the estimate.
    pub(crate) max_tokens: u64,
    pub(crate) arrived: Time,
    /// End of the wait: by the queue timeout, or earlier by the timeout that the client announced.
    pub(crate) deadline: Time,
    pub(crate) forward: ForwardedRequest,
    pub(crate) group: Vec<UpstreamId>,
    /// Upstreams that were called and did not serve the request.
    pub(crate) tried: SmallVec<[UpstreamId; 2]>,
    pub(crate) response_headers: ResponseHeaders,
    pub(crate) disconnect_guard: DisconnectGuard,
    /// Set while the request waits for the end of a suspension.
    pub(crate) delayed_guard: Option<DelayedGuard>,
    /// When the last call to an upstream began.
    pub(crate) called: Instant,
    /// How far the current call to an upstream got.
    pub(crate) progress: Arc<CallProgress>,
    /// Whether an upstream received the request and never responded.
    pub(crate) maybe_generated: bool,
}

/// Books the usage of a client that disconnects before the response begins.
impl Drop for ScheduledRequest {
    fn drop(&mut self) {
        // An upstream that does not have the whole request generates nothing.
        if !self.progress.is_sent() {
            return;
        }
        let output = self
            .unread_output(self.called)
            .for_leaver(self.summary.stream);
        let usage = Usage {
            input: Some(self.summary.prompt),
            output: Some(output),
        };
        let (shared, tenant) = (&self.shared, &self.principal.tenant);
        // Without a response the model may not exist, so it is not named.
        shared
            .ledger
            .ended(tenant, self.class, "", usage, shared.today());
        self.disconnect_guard.tokens = usage.total();
    }
}

impl ScheduledRequest {
    /// Estimated tokens of the response.
    pub(crate) fn expected(&self) -> u64 {
        self.estimate.saturating_sub(self.summary.prompt)
    }

    /// Output to book for a response that is not read to its end. The upstream was called at
    /// `called`.
    pub(crate) fn unread_output(&self, called: Instant) -> UnreadOutput {
        let RequestSummary {
            prompt, choices, ..
        } = self.summary;
        let limit = self.summary.upper_bound(self.forward.endpoint, u64::MAX);
        let most = limit.saturating_sub(prompt);
        // Short responses in the past do not make it cheap to leave before a long one.
        let usual = self.active.config.default_output_tokens;
        let expected = self.expected().max(usual.saturating_mul(choices));
        UnreadOutput::new((expected, most), choices, called)
    }

    pub(crate) fn dialect(&self) -> Dialect {
        self.forward.endpoint.dialect()
    }

    /// Waits for a permit, calls an upstream, and returns the response.
    pub(crate) async fn serve(mut self: Box<Self>) -> Response<GatewayBody> {
        self.record_arrival();
        let mut acquire = match self.acquire() {
            Ok(acquire) => acquire,
            Err(problem) => return self.reject(&problem),
        };
        // Most requests are granted at once: they skip the bookkeeping of the queue.
        let at_once = poll_fn(|cx| Poll::Ready(Pin::new(&mut acquire).poll(cx))).await;
        if let Poll::Ready(permit_result) = at_once {
            return self.proceed(permit_result).await;
        }
        let queued_guard = match self.enqueue() {
            Ok(queued_guard) => queued_guard,
            Err(problem) => return self.reject(&problem),
        };
        if self.active.config.queue_progress && self.summary.stream {
            return progress::respond(self, acquire, queued_guard);
        }
        self.wait(acquire, queued_guard).await
    }

    /// Waits for the permit, then proceeds.
    pub(crate) async fn wait(
        self: Box<Self>,
        acquire: Acquire,
        queued_guard: QueuedGuard,
    ) -> Response<GatewayBody> {
        let permit_result = acquire.await;
        drop(queued_guard);
        self.proceed(permit_result).await
    }

    async fn proceed(
        mut self: Box<Self>,
        permit_result: Result<Permit, Denied>,
    ) -> Response<GatewayBody> {
        let permit = match permit_result {
            // A reload has removed all upstreams of the group.
            Err(denied) if lost_upstreams(&denied) && self.regroup() => self.reschedule().await,
            Err(denied) => Err(self.rejection(&denied)),
            Ok(permit) => Ok(permit),
        };
        match permit {
            Ok(permit) => {
                self.record_grant(&permit);
                RunningRequest::new(self, permit).await
            }
            Err(problem) => self.reject(&problem),
        }
    }

    /// Determines the upstreams anew if the configuration has changed. Returns whether there are
    /// any that the request has not known before.
    pub(crate) fn regroup(&mut self) -> bool {
        let active = self.shared.active.load_full();
        if Arc::ptr_eq(&active, &self.active) {
            return false;
        }
        let group = active.group(self.dialect(), &self.summary.model);
        self.group = active.that_fit(group, self.max_tokens);
        self.active = active;
        !self.group.is_empty()
    }

    /// Waits for another permit: no upstream of the group could be called with the first one.
    pub(crate) async fn reschedule(&mut self) -> Result<Permit, Problem> {
        loop {
            if let Some(Wait::Probe(outcome)) = self.wait_for() {
                // In the meantime the request is delayed in the scheduler, so that it expires like
                // all others. Its deadline comes before its start.
                self.join_delayed(None)?;
                let delayed = self.submit(self.left(), self.deadline)?;
                tokio::select! {
                    biased;
                    () = outcome.wait() => {}
                    ended = delayed => {
                        let expired = Denied::Ended(EndReason::Expired);
                        let denied = ended.err().unwrap_or(expired);
                        return Err(self.rejection(&denied));
                    }
                }
            }
            match self.acquire()?.await {
                Err(denied) if lost_upstreams(&denied) && self.regroup() => {}
                result => return result.map_err(|denied| self.rejection(&denied)),
            }
        }
    }

    pub(crate) fn viewpoint(&self) -> Viewpoint<'_> {
        Viewpoint {
            model: &self.summary.model,
            tenant: &self.principal.tenant,
            tokens: self.estimate,
        }
    }

    /// The earliest event that lets an upstream be called; `None` if one can be called now.
    fn wait_for(&self) -> Option<Wait> {
        let (mut earliest, now) = (None, Instant::now());
        for upstream in self.left() {
            let wait = upstream.wait(self.viewpoint(), now)?;
            earliest = match (earliest, wait) {
                (Some(Wait::Until(one)), Wait::Until(other)) => Some(Wait::Until(one.min(other))),
                (Some(probe @ Wait::Probe(_)), _) => Some(probe),
                (_, wait) => Some(wait),
            };
        }
        earliest
    }

    /// Upstreams of the group that were not called yet.
    pub(crate) fn left(&self) -> impl Iterator<Item = &Arc<Upstream>> {
        let left = self.group.iter().filter(|id| !self.tried.contains(id));
        left.filter_map(|id| self.active.upstream(*id))
    }

    /// Enters the queue for the upstreams that are ready. If none is, the request is delayed until
    /// the first one may be called.
    fn acquire(&mut self) -> Result<Acquire, Problem> {
        let permits = &self.shared.permits;
        let (now, wait) = (Instant::now(), self.wait_for());
        self.delayed_guard = None;
        let is_ready = |upstream: &&Arc<Upstream>| {
            wait.is_some() || upstream.wait(self.viewpoint(), now).is_none()
        };
        let start = match wait {
            Some(Wait::Until(until)) => permits.now() + until.saturating_duration_since(now),
            _ => permits.now(),
        };
        let left = start.since(permits.now());
        if start > self.deadline {
            return Err(self.suspended(left));
        }
        let acquire = self.submit(self.left().filter(is_ready), start)?;
        if !left.is_zero() {
            self.join_delayed(Some(left))?;
        }
        Ok(acquire)
    }

    /// Counts the request among those of its tenant that wait for the end of a suspension, in
    /// `left` if that is known. A tenant may have as many as the queues of all classes hold.
    fn join_delayed(&mut self, left: Option<Duration>) -> Result<(), Problem> {
        let config = &self.active.config;
        let levels = usize::from(config.scheduler_priority_levels);
        let most = config.scheduler_max_queue_depth.saturating_mul(levels);
        self.delayed_guard = None;
        let joined = DelayedCounts::join(&self.shared, &self.principal.tenant, most);
        self.delayed_guard = Some(joined.ok_or_else(|| {
            let after = left.unwrap_or(DEFAULT_RETRY).clamp(DEFAULT_RETRY, LONGEST);
            let message = format!(
                "{most} requests of this tenant wait for the end of a suspension; retry in {:.1} s",
                after.as_secs_f64()
            );
            Problem::new(StatusCode::TOO_MANY_REQUESTS, "full", message).retry_in(after)
        })?);
        Ok(())
    }

    /// Submits the request to the scheduler, to be granted by one of `upstreams` from `start` on.
    fn submit<'a>(
        &self,
        upstreams: impl Iterator<Item = &'a Arc<Upstream>>,
        start: Time,
    ) -> Result<Acquire, Problem> {
        let targets: SmallVec<[TargetId; 4]> = upstreams.map(|upstream| upstream.target).collect();
        let targets = self.shared.target_set(&targets).ok_or_else(no_upstream)?;
        let (bookings, tenant) = (&self.shared.bookings, &*self.principal.tenant);
        let booking = match bookings.has_any(tenant) {
            true => bookings.claim(tenant, self.fingerprint(), Instant::now()),
            false => None,
        };
        let job = Job::new(())
            .class(self.class)
            .flow(self.shared.seed.flow(&tenant))
            .cost(self.cost())
            .targets(targets)
            .booking(booking)
            .start_at(start)
            .expire_at(self.deadline);
        Ok(self.shared.permits.acquire(job))
    }

    /// Cost for the scheduler: the estimate, which is capped. A request beyond the context limit
    /// keeps its full size, so that the scheduler rejects it for good.
    fn cost(&self) -> Cost {
        let context = self.active.config.scheduler_max_context_length;
        match context > 0 && self.max_tokens > context {
            true => Cost(self.max_tokens),
            false => Cost(self.estimate),
        }
    }

    /// Identifies a retry of the tenant: the same class and body.
    fn fingerprint(&self) -> Key {
        self.shared.seed.key(&(self.class.0, self.body_key().0))
    }

    /// Identifies the body. Of a large one, the length and both ends count: all of it would occupy
    /// the thread for too long.
    pub(crate) fn body_key(&self) -> Key {
        let body = &self.forward.body[..];
        let start = &body[..body.len().min(MAX_COMPARED)];
        let end = &body[body.len().saturating_sub(MAX_COMPARED)..];
        self.shared.seed.key(&(body.len(), start, end))
    }

    /// Enters the queue and records what the request waits for.
    fn enqueue(&mut self) -> Result<QueuedGuard, Problem> {
        let (queued_guard, before) = QueueCounts::join(&self.shared, self.class);
        let view = self.shared.permits.inspect();
        self.response_headers.position = before + 1;
        if let Some(until) = self.all_suspended(&view) {
            return Err(self.suspended(until));
        }
        // Over HTTP/2, the headers share a buffer with other streams. A request that is queued
        // copies them, so that it does not keep that buffer alive.
        self.forward.detach();
        let pools: SmallVec<[TargetId; 1]> = self.left().map(|upstream| upstream.target).collect();
        let held_by = Some(self.held_by(&view, &pools));
        let (urgent, same) = self.ahead(&view);
        let expected_wait = match self.wait_for() {
            Some(Wait::Until(until)) => until.saturating_duration_since(Instant::now()),
            _ => self
                .shared
                .retry_hints
                .grant_in(&self.load_with(Default::default()), (urgent + same).max(1)),
        };
        let position = before + 1;
        self.shared.history.update(self.number, |entry| {
            (entry.position, entry.held_by) = (position, held_by);
            (entry.expected_wait, entry.pools) = (Some(expected_wait), pools);
        });
        Ok(queued_guard)
    }

    fn suspended(&self, until: Duration) -> Problem {
        let message = format!(
            "all upstreams for `{}` are suspended for another {}, longer than this request can wait",
            self.summary.model,
            format_duration(Duration::from_secs(until.as_secs() + 1))
        );
        let status = StatusCode::SERVICE_UNAVAILABLE;
        // SDKs obey no longer time, and would retry at once.
        Problem::new(status, "upstreams_suspended", message).retry_in(until.min(LONGEST))
    }

    /// Time until the first upstream of the group is usable again, if all are suspended for longer
    /// than this request can wait.
    fn all_suspended(&self, view: &View) -> Option<Duration> {
        let now = self.shared.permits.now();
        let suspension =
            |upstream: &Arc<Upstream>| match view.targets.get(upstream.target.index())?.state {
                TargetState::Suspended { until } => Some(until.since(now)),
                _ => None,
            };
        let suspensions: Option<Vec<Duration>> = self.left().map(suspension).collect();
        let left = self.deadline.since(now);
        let shortest = suspensions?.into_iter().min();
        shortest.filter(|suspension| *suspension > left)
    }

    /// Describes in words what blocks the request.
    fn held_by(&self, view: &View, pools: &[TargetId]) -> String {
        let waiting = WaitingRequest {
            tenant: &self.principal.tenant,
            pools,
            cost: self.cost(),
        };
        let gate = match self.wait_for() {
            Some(Wait::Until(until)) => {
                let left = until.saturating_duration_since(Instant::now());
                let model = &self.summary.model;
                format!(
                    "all upstreams for `{model}` are suspended for another {}",
                    format_duration(Duration::from_secs(left.as_secs() + 1))
                )
            }
            Some(Wait::Probe(_)) => {
                let model = &self.summary.model;
                format!("one request probes the suspended upstream for `{model}`")
            }
            None => match reached_limits(&self.shared, waiting).join(" and ") {
                none if none.is_empty() => "other requests are ahead of it".to_owned(),
                reached => reached,
            },
        };
        let (urgent, same) = self.ahead(view);
        format!(
            "{gate}; {} running, {urgent} queued in more urgent classes, {} ahead in its own",
            view.running,
            same.saturating_sub(1)
        )
    }

    /// Requests that are queued in more urgent classes, and in its own.
    fn ahead(&self, view: &View) -> (u64, u64) {
        let class = usize::from(self.class.0).min(view.classes.len() - 1);
        let urgent = view.classes[..class].iter().map(|class| class.waiting);
        (urgent.sum(), view.classes[class].waiting)
    }

    fn record_grant(&mut self, permit: &Permit) {
        self.delayed_guard = None;
        self.response_headers.waited = match self.response_headers.position {
            0 => permit.waited(),
            // A permit does not count the time in which the request was delayed.
            _ => self.shared.permits.now().since(self.arrived),
        };
        self.response_headers.reason = match (permit.aged(), self.response_headers.position) {
            (true, _) => "aged",
            (_, 0) => "granted",
            _ => "queued",
        };
    }

    /// Adds a wait for another permit, since that time.
    pub(crate) fn record_wait(&mut self, since: Time) {
        let waited = self.shared.permits.now().since(since);
        self.response_headers.waited += waited;
        if waited >= Duration::from_millis(1) && self.response_headers.reason == "granted" {
            self.response_headers.reason = "queued";
        }
    }

    /// Translates a denial of the scheduler into an error response, and remembers the booking for a
    /// retry.
    fn rejection(&self, rejection: &Denied) -> Problem {
        let after = self.retry_after(rejection);
        if let Some(booking) = rejection.booking() {
            let (bookings, tenant) = (&self.shared.bookings, &self.principal.tenant);
            let when = (after, Instant::now());
            bookings.remember(tenant, self.fingerprint(), booking, when);
        }
        let busy = |reason, message: &str| {
            let message = format!("{message}; retry in {:.1} s", after.as_secs_f64());
            Problem::new(StatusCode::TOO_MANY_REQUESTS, reason, message).retry_in(after)
        };
        match rejection {
            Denied::Refused { reason, .. } => match reason {
                Reason::Full | Reason::TargetFull | Reason::DelayedFull => busy(
                    reason.name(),
                    &format!("the queue of class {} is full", self.class),
                ),
                Reason::DeadlineUnreachable => busy(
                    reason.name(),
                    "deadline unreachable: the wait would exceed the timeout of the request or of its client",
                ),
                Reason::Suspended => self.suspended(after),
                Reason::TooLarge => too_large(self.max_tokens),
                Reason::NoTarget => no_upstream(),
                Reason::Draining => stopping(),
                other => busy(other.name(), "the request cannot be queued now"),
            },
            Denied::Ended(EndReason::Shed { .. }) => busy(
                "shed",
                "shed: the queue is full, and another tenant is below its share",
            ),
            Denied::Ended(EndReason::Expired) => {
                busy("expired", "the request expired in the queue")
            }
            Denied::Ended(EndReason::Unservable(Unservable::TooLarge)) => {
                too_large(self.max_tokens)
            }
            Denied::Ended(EndReason::Returned) => stopping(),
            Denied::Ended(_) | Denied::WouldWait => no_upstream(),
            _ => no_upstream(),
        }
    }

    /// When a rejected client should retry.
    fn retry_after(&self, denied: &Denied) -> Duration {
        let told = denied.retry_after();
        let reason = match denied {
            Denied::Refused { reason, .. } => Some(*reason),
            _ => None,
        };
        let rejection = match (denied, reason) {
            (_, Some(Reason::Full)) | (Denied::Ended(EndReason::Shed { .. }), _) => {
                let booked = denied.booking().is_some();
                Rejection::Full { booked }
            }
            (_, Some(Reason::DeadlineUnreachable)) => Rejection::Unreachable {
                ahead: self.queued_before(),
                patience: self.deadline.since(self.arrived),
            },
            (Denied::Ended(EndReason::Expired), _) => Rejection::Expired {
                ahead: self.queued_before(),
            },
            // A request that cannot be delayed waits for its upstreams elsewhere.
            (_, Some(Reason::DelayedFull)) => match self.wait_for() {
                Some(Wait::Until(until)) => {
                    let left = until.saturating_duration_since(Instant::now());
                    return left.min(LONGEST);
                }
                _ => return DEFAULT_RETRY,
            },
            _ => return told.unwrap_or(DEFAULT_RETRY),
        };
        self.shared.retry_hints.after(rejection, told, &self.load())
    }

    /// The state of the scheduler, for estimates.
    fn load(&self) -> Load {
        self.load_with(self.running_times())
    }

    /// The same with known running times. Without any, estimates go by the mean time: finding them
    /// visits the whole history, which a request that merely waits must not cost.
    fn load_with(&self, (running, own): (Ages, Ages)) -> Load {
        let in_force = self.shared.in_force.load();
        let tenant: &str = &self.principal.tenant;
        let flow = self.shared.seed.flow(&tenant);
        let view = self.shared.permits.flow(flow);
        let settings = in_force.flow(flow);
        Load {
            now: self.shared.permits.now(),
            running: self.shared.permits.inspect().running,
            ages: running,
            output: self.expected(),
            cost: self.cost(),
            limits: in_force.limits,
            tenant: TenantLoad {
                flow,
                weight: settings.weight,
                waiting: view.as_ref().map_or(0, |view| view.waiting),
                running: view.as_ref().map_or(0, |view| view.running.into()),
                ages: own,
                limits: settings.limits,
            },
        }
    }

    /// Requests that are queued in this class and in more urgent ones.
    fn queued_before(&self) -> u64 {
        let view = self.shared.permits.inspect();
        let classes = view.classes.iter().take(usize::from(self.class.0) + 1);
        classes.map(|class| class.waiting).sum()
    }

    /// How long requests have been at upstreams: of all tenants, and of this one.
    fn running_times(&self) -> (Ages, Ages) {
        let now = Timestamp::now();
        let (mut all, mut own) = (Ages::default(), Ages::default());
        for entry in &*self.shared.history.running() {
            let age = Duration::try_from(now.duration_since(entry.granted)).unwrap_or_default();
            all.add(age);
            if entry.tenant == self.principal.tenant {
                own.add(age);
            }
        }
        (all, own)
    }

    fn record_arrival(&self) {
        if let Some(log) = &self.shared.log {
            log.arrived(self.class, &self.principal.tenant, self.estimate);
        }
        self.shared.history.insert(HistoryEntry {
            number: self.number,
            arrived: Timestamp::now(),
            tenant: self.principal.tenant.clone(),
            class: self.class,
            model: self.summary.model.clone(),
            stage: Stage::Waiting,
            estimate: self.estimate,
            tokens: None,
            position: 0,
            held_by: None,
            expected_wait: None,
            pools: SmallVec::new(),
            waited: None,
            aged: false,
            upstreams: SmallVec::new(),
            status: None,
            reason: "waiting",
            took: None,
        });
    }

    /// Rejects the request before it reached an upstream.
    fn reject(&mut self, problem: &Problem) -> Response<GatewayBody> {
        let (shared, tenant) = (&self.shared, &self.principal.tenant);
        shared.ledger.refused(tenant, self.class, shared.today());
        self.response_headers.waited = shared.permits.now().since(self.arrived);
        self.end(Stage::Refused, problem)
    }

    /// Fails the request: no upstream responded.
    pub(crate) fn fail(&mut self, problem: &Problem) -> Response<GatewayBody> {
        let (shared, tenant) = (&self.shared, &self.principal.tenant);
        let usage = Usage {
            // An upstream that received the request has at least read the prompt.
            input: self.maybe_generated.then_some(self.summary.prompt),
            output: None,
        };
        shared
            .ledger
            .ended(tenant, self.class, "", usage, shared.today());
        self.end(Stage::Failed, problem)
    }

    fn end(&mut self, stage: Stage, problem: &Problem) -> Response<GatewayBody> {
        self.disconnect_guard.answered = true;
        let (status, reason) = (problem.status.as_u16(), problem.reason);
        self.shared.history.update(self.number, |entry| {
            (entry.stage, entry.status, entry.reason) = (stage, Some(status), reason);
        });
        if let Some(log) = &self.shared.log {
            log.ended(&self.response_headers.id, reason, status, None);
        }
        tracing::debug!(
            request = self.response_headers.id,
            reason,
            status,
            "rejected: {}",
            problem.message
        );
        self.response_headers
            .error_response(self.dialect(), problem)
    }
}

/// Whether a denial says that no upstream of the group exists any more.
fn lost_upstreams(denied: &Denied) -> bool {
    match denied {
        Denied::Refused { reason, .. } => *reason == Reason::NoTarget,
        Denied::Ended(EndReason::Unservable(reason)) => *reason == Unservable::NoTarget,
        _ => false,
    }
}

pub(crate) fn too_large(tokens: u64) -> Problem {
    let message = format!(
        "about {tokens} tokens of prompt and response exceed the limit of one request: shorten the prompt or lower `max_tokens`"
    );
    Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", message).never()
}

pub(crate) fn no_upstream() -> Problem {
    let message = "no upstream can serve this request: /admin/scheduler/stats shows their state";
    Problem::new(StatusCode::SERVICE_UNAVAILABLE, "no_upstream", message)
}

fn stopping() -> Problem {
    let message = "the gateway is shutting down";
    Problem::new(StatusCode::SERVICE_UNAVAILABLE, "draining", message).retry_in(DEFAULT_RETRY)
}

/// Records in the history that a client disconnected before it had a response.
pub(crate) struct DisconnectGuard {
    pub(crate) shared: Arc<Shared>,
    pub(crate) number: u64,
    pub(crate) answered: bool,
    /// Tokens booked for a client that disconnected.
    pub(crate) tokens: Option<u64>,
}

impl Drop for DisconnectGuard {
    fn drop(&mut self) {
        if self.answered {
            return;
        }
        self.shared.history.update(self.number, |entry| {
            (entry.stage, entry.reason) = (Stage::Left, "client_left");
            entry.tokens = self.tokens;
        });
        if let Some(log) = &self.shared.log {
            let id = self.shared.history.ids.name(self.number);
            log.ended(&id, "client_left", 0, self.tokens);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use headworks_core::TargetSet;
    use headworks_pool::Report;
    use headworks_service::outbound::{Outbound, OutboundConfig};

    use super::*;
    use crate::GatewayConfig;

    const SLOTS: u32 = 10;
    const REQUESTS: u32 = 60;

    /// Neither a poll of the queue nor a wake-up in vain: they would slow short requests.
    #[tokio::test]
    async fn a_queued_request_is_woken_once() {
        let config = GatewayConfig {
            scheduler_max_concurrent: SLOTS,
            scheduler_max_rps: 0.0,
            scheduler_max_tokens_per_sec: 0.0,
            ..GatewayConfig::default()
        };
        let outbound = Outbound::new(&OutboundConfig::default()).unwrap();
        let shared = Shared::new(&Arc::new(config), None, None, outbound).unwrap();
        let polls = Arc::new(AtomicU32::new(0));
        let mut requests = tokio::task::JoinSet::new();
        for _ in 0..REQUESTS {
            let (shared, polls) = (shared.clone(), polls.clone());
            requests.spawn(async move {
                let targets = TargetSet::from(TargetId::new(0));
                let mut acquire = shared.permits.acquire(Job::new(()).targets(targets));
                let permit = poll_fn(|cx| {
                    polls.fetch_add(1, Ordering::Relaxed);
                    Pin::new(&mut acquire).poll(cx)
                });
                let permit = permit.await.unwrap();
                // Others come in the meantime.
                tokio::task::yield_now().await;
                permit.finish(Report::done());
            });
        }
        requests.join_all().await;
        let once = SLOTS + 2 * (REQUESTS - SLOTS);
        assert_eq!(polls.load(Ordering::Relaxed), once);
    }
}
