//! The part behind the lock.
//!
//! No code of the pool's users runs here: payloads are not dropped, wakers not cloned, called or
//! dropped, tokens not cancelled, listeners not called. All of that is put into [`After`] and
//! happens when the lock is released. Otherwise a payload whose `drop` calls the pool would
//! deadlock its runtime.

use super::scaling::Scaling;
use super::waiter::{Message, Task, Waiter, WaiterId, Work};
use crate::notice::{Cancel, Denied, EndReason, Notice};
use headworks_core::{
    Cancelled, Core, Event, Job, Lease, Outcome, Reason, Refused, Settled, Ticket, Time, Verdict,
};
use slab::Slab;
use std::task::Waker;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

/// The kind of runners that granted jobs are handed to. All jobs of a pool have the same kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Runners {
    /// Workers: a job is leased when one is idle.
    Workers,
    /// Callers: every waiting job has one.
    Callers,
}

/// The part behind the lock.
#[derive(Debug)]
pub(super) struct State<P> {
    pub(super) core: Core<Task<P>>,
    pub(super) runners: Runners,
    pub(super) waiters: Slab<Waiter<P>>,
    /// By job, the waiter that runs it.
    running: Vec<Option<WaiterId>>,
    /// Workers without work; the last to come goes first, so that the others can be stopped.
    pub(super) idle: Vec<WaiterId>,
    /// Waiters for the last job to end.
    pub(super) drained: Vec<WaiterId>,
    pub(super) workers: usize,
    /// When the timer will call.
    pub(super) armed: Option<Time>,
    pub(super) timer: Option<Waker>,
    pub(super) closed: bool,
    pub(super) scaling: Scaling,
    pub(super) after: After<P>,
}

/// Actions for when the lock is released.
#[derive(Debug)]
pub(super) struct After<P> {
    pub(super) wake: Vec<Waker>,
    pub(super) notices: Vec<Notice<P>>,
    pub(super) ended: Vec<(oneshot::Sender<EndReason>, EndReason)>,
    pub(super) cancel: Vec<CancellationToken>,
}

impl<P> Default for After<P> {
    fn default() -> Self {
        After {
            wake: Vec::new(),
            notices: Vec::new(),
            ended: Vec::new(),
            cancel: Vec::new(),
        }
    }
}

impl<P> After<P> {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.wake.is_empty()
            && self.notices.is_empty()
            && self.ended.is_empty()
            && self.cancel.is_empty()
    }
}

impl<P> State<P> {
    pub(super) fn new(core: Core<Task<P>>, runners: Runners, scaling: Scaling) -> Self {
        State {
            core,
            runners,
            waiters: Slab::new(),
            running: Vec::new(),
            idle: Vec::new(),
            drained: Vec::new(),
            workers: 0,
            armed: None,
            timer: None,
            closed: false,
            scaling,
            after: After::default(),
        }
    }

    /// Submits a caller's job, and makes the waiter that it waits in.
    pub(super) fn enter(
        &mut self,
        now: Time,
        job: Job<()>,
        may_wait: bool,
    ) -> Result<(WaiterId, Ticket), Denied> {
        let waiter = WaiterId(self.waiters.insert(Waiter::default()));
        let job = job.map(|()| Task::Caller(waiter));
        let admitted = match may_wait {
            true => self.core.submit(now, job),
            false => self.core.submit_without_shedding(now, job),
        };
        admitted.map(|ticket| (waiter, ticket)).map_err(|refused| {
            self.waiters.remove(waiter.0);
            let Refused {
                reason,
                retry_after,
                booking,
                ..
            } = refused;
            match reason {
                // A full queue and a busy slot are the same answer to a caller that does not wait,
                // and neither books a place.
                Reason::Full | Reason::TargetFull if !may_wait => Denied::WouldWait,
                _ => Denied::Refused {
                    reason,
                    retry_after,
                    booking,
                },
            }
        })
    }

    /// Grants as far as there is somebody to run it, passes on what happened, and sees that the
    /// timer calls in time.
    #[inline(always)]
    pub(super) fn pump(&mut self, now: Time) {
        // A job is leased only when somebody can run it: a lease without a runner would hold a
        // slot.
        while self.runners == Runners::Callers || !self.idle.is_empty() {
            match self.core.next(now) {
                Some(lease) => self.hand_over(lease),
                None => break,
            }
        }
        self.pass_events_on();
        let wake = self.core.wake_at();
        // Woken only if the timer would sleep too long. A time that moved later costs one early
        // wake-up, not one per call.
        let sooner = wake.is_some_and(|wake| self.armed.is_none_or(|armed| wake < armed));
        if sooner {
            self.armed = wake;
        }
        if sooner || self.wants_scaling() {
            self.after.wake.extend(self.timer.take());
        }
    }

    fn hand_over(&mut self, lease: Lease<Task<P>>) {
        let waiter = match lease.payload {
            Task::Caller(waiter) => waiter,
            Task::Work(_) => self.idle.pop().expect("work is leased for an idle worker"),
        };
        self.begin(waiter, &lease);
        self.notify(waiter, Message::Granted(lease));
    }

    /// Work for a worker that asks. Without work, the worker is idle.
    #[inline(always)]
    pub(super) fn next_for(&mut self, now: Time, waiter: WaiterId) -> Option<Message<P>> {
        if let Some(message) = self.waiters[waiter.0].message.take() {
            return Some(message);
        }
        if self.closed {
            return Some(Message::Leave);
        }
        if let Some(lease) = self.core.next(now) {
            self.begin(waiter, &lease);
            return Some(Message::Granted(lease));
        }
        if !self.idle.contains(&waiter) {
            self.idle.push(waiter);
        }
        None
    }

    #[inline(always)]
    fn begin(&mut self, id: WaiterId, lease: &Lease<Task<P>>) {
        let slot = lease.ticket.slot();
        if self.running.len() <= slot {
            self.running.resize(slot + 1, None);
        }
        self.running[slot] = Some(id);
        let waiter = &mut self.waiters[id.0];
        waiter.running = Some(lease.ticket);
        waiter.cancelled = false;
        // The token of the job before is not this job's. Clones of it live on.
        waiter.token = None;
    }

    #[inline]
    pub(super) fn notify(&mut self, id: WaiterId, message: Message<P>) {
        let waiter = &mut self.waiters[id.0];
        waiter.message = Some(message);
        self.after.wake.extend(waiter.waker.take());
    }

    /// A worker's job is over, or goes back into the core. Returns a payload that nobody needs any
    /// more, to be dropped without the lock.
    #[inline(always)]
    pub(super) fn finish(
        &mut self,
        now: Time,
        lease: Lease<Task<P>>,
        outcome: Outcome,
        verdict: Verdict,
    ) -> Option<P> {
        let ticket = lease.ticket;
        let mut unused = None;
        match self.core.finish(now, lease, outcome, verdict) {
            Settled::Elsewhere | Settled::Delayed(_) => {}
            Settled::Done(Task::Work(Work { payload, watcher })) => {
                let ended = watcher.map(|watcher| (watcher, EndReason::Done));
                self.after.ended.extend(ended);
                unused = Some(payload);
            }
            Settled::Stale(Task::Work(Work { payload, watcher })) => {
                // Not dropped under the lock: that wakes the task that awaits the handle.
                let ended = watcher.map(|watcher| (watcher, EndReason::Failed));
                self.after.ended.extend(ended);
                unused = Some(payload);
            }
            Settled::Failed(task) => self.end(ticket, task, EndReason::Failed),
            Settled::Merged(task) => self.end(ticket, task, EndReason::Merged),
            Settled::Cancelled(task) => self.end(ticket, task, EndReason::Cancelled),
            Settled::Returned(task) => self.end(ticket, task, EndReason::Returned),
            Settled::Done(Task::Caller(_)) | Settled::Stale(Task::Caller(_)) => {
                unreachable!("callers give their leases back themselves")
            }
        }
        self.check_drained();
        unused
    }

    /// Passes on what the core has to tell.
    #[inline]
    pub(super) fn pass_events_on(&mut self) {
        while let Some(event) = self.core.poll_event() {
            self.pass_on(event);
        }
    }

    #[cold]
    fn pass_on(&mut self, event: Event<Task<P>>) {
        match event {
            Event::Expired { ticket, job } => self.end(ticket, job.payload, EndReason::Expired),
            Event::Shed {
                ticket,
                job,
                retry_after,
                booking,
            } => {
                let reason = EndReason::Shed {
                    retry_after,
                    booking,
                };
                self.end(ticket, job.payload, reason);
            }
            Event::Merged { ticket, job } => self.end(ticket, job.payload, EndReason::Merged),
            Event::Failed {
                ticket,
                job,
                reason,
            } => self.end(ticket, job.payload, EndReason::Unservable(reason)),
            Event::Returned { ticket, job } => self.end(ticket, job.payload, EndReason::Returned),
            Event::TargetChanged { target, state } => {
                self.after.notices.push(Notice::Target { target, state });
            }
            _ => {}
        }
        self.check_drained();
    }

    /// Tells the listener or the waiter of a job that ended without being done.
    fn end(&mut self, ticket: Ticket, task: Task<P>, reason: EndReason) {
        match task {
            Task::Work(Work { payload, watcher }) => {
                if let Some(watcher) = watcher {
                    self.after.ended.push((watcher, reason));
                }
                self.after.notices.push(Notice::Ended {
                    ticket,
                    payload,
                    reason,
                });
            }
            Task::Caller(waiter) => self.notify(waiter, Message::Denied(Denied::Ended(reason))),
        }
    }

    pub(super) fn cancelled(&mut self, ticket: Ticket, cancelled: Cancelled<Task<P>>) -> Cancel {
        match cancelled {
            Cancelled::Ended => Cancel::Ended,
            Cancelled::Running => Cancel::Running,
            Cancelled::Removed(job) => {
                self.end(ticket, job.payload, EndReason::Cancelled);
                self.check_drained();
                Cancel::Removed
            }
        }
    }

    /// Tells a job's runner to stop.
    pub(super) fn stop(&mut self, ticket: Ticket) {
        let runs = self.running.get(ticket.slot()).copied().flatten();
        let runs = runs.filter(|id| {
            let waiter = self.waiters.get(id.0);
            waiter.is_some_and(|waiter| waiter.running == Some(ticket))
        });
        if let Some(id) = runs {
            let waiter = &mut self.waiters[id.0];
            waiter.cancelled = true;
            self.after.cancel.extend(waiter.token.clone());
        }
    }

    pub(super) fn is_drained(&self) -> bool {
        self.core.running() == 0 && self.core.waiting() == 0 && self.core.delayed() == 0
    }

    #[inline]
    pub(super) fn check_drained(&mut self) {
        if !self.drained.is_empty() && self.is_drained() {
            for waiter in std::mem::take(&mut self.drained) {
                self.notify(waiter, Message::Drained);
            }
        }
    }
}
