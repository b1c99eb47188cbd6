//! Drives the core: one lock, and the hand-off from the core to workers and callers.
//!
//! Everything that changes is behind one lock, held for the length of a few core calls and never
//! across an await. A *waiter* is where somebody waits for the core's decision: a worker without
//! work, or a caller of `acquire`. Its message is put there under the lock, and its waker is called
//! after the lock is released. The driver knows no clock and no runtime: every call takes `now`, so
//! the same code is model-checked.
//!
//! Why a lock and not a task that owns the core: a submit must answer with the core's own verdict,
//! and a message to a task and back costs ten times a lock. `headworks-bench engine` measures it.

mod fill;
mod scaling;
mod state;
mod waiter;

pub use scaling::Workers;
pub(crate) use state::Runners;
pub(crate) use waiter::{Message, Task, WaiterId, Work};

use crate::notice::{Cancel, Denied, EndReason, Notice};
use crate::sync::Mutex;
use fill::Fill;
use headworks_core::{
    Cancelled, Config, ConfigError, Core, Job, Lease, Outcome, Pressure, Refused, Scale, Settled,
    Ticket, Time, Verdict,
};
use scaling::Scaling;
use state::{After, State};
use std::panic::AssertUnwindSafe;
use std::task::Waker;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use waiter::Waiter;

/// Told of what happened to jobs and targets.
pub(crate) type Listener<P> = Box<dyn Fn(Notice<P>) + Send + Sync>;

/// The driver.
pub(crate) struct Driver<P> {
    state: Mutex<State<P>>,
    fill: Fill,
    listener: Listener<P>,
}

impl<P> Driver<P> {
    pub(crate) fn new(
        config: Config,
        now: Time,
        runners: Runners,
        workers: Workers,
        listener: Listener<P>,
    ) -> Result<Self, ConfigError> {
        let state = State::new(Core::new(config, now)?, runners, Scaling::new(workers));
        let fill = Fill::default();
        fill.set_all(&state);
        Ok(Driver {
            state: Mutex::new(state),
            fill,
            listener,
        })
    }

    /// Runs a few core calls under the lock, then wakes and tells whom they concern.
    #[inline(always)]
    fn with<R>(&self, now: Time, calls: impl FnOnce(&mut State<P>) -> R) -> R {
        let mut state = self.state.lock();
        let answer = calls(&mut state);
        state.pump(now);
        self.fill.set_waiting(state.core.waiting());
        if state.after.is_empty() {
            return answer;
        }
        // Taken out under the lock, carried out without it: wakers and listeners are other people's
        // code.
        let after = std::mem::take(&mut state.after);
        drop(state);
        self.deliver(after);
        answer
    }

    fn deliver(&self, after: After<P>) {
        // Wakers first: a listener may take its time, and a granted caller should not wait for it.
        for waker in after.wake {
            waker.wake();
        }
        for token in after.cancel {
            token.cancel();
        }
        for (watcher, reason) in after.ended {
            // A handle that was dropped wants to know nothing.
            let _ = watcher.send(reason);
        }
        for notice in after.notices {
            // A listener that panics must not keep the others from being told; its hook reports the
            // panic.
            let told = AssertUnwindSafe(|| (self.listener)(notice));
            let _ = std::panic::catch_unwind(told);
        }
    }

    /// Submits work for the workers.
    #[expect(
        clippy::result_large_err,
        reason = "a refusal hands the job back by value"
    )]
    pub(crate) fn submit(
        &self,
        now: Time,
        job: Job<P>,
        watcher: Option<oneshot::Sender<EndReason>>,
    ) -> Result<Ticket, Refused<P>> {
        let job = job.map(|payload| Task::Work(Work { payload, watcher }));
        let answer = self.with(now, |state| state.core.submit(now, job));
        answer.map_err(|refused| Refused {
            reason: refused.reason,
            retry_after: refused.retry_after,
            booking: refused.booking,
            job: refused.job.map(|task| match task {
                Task::Work(work) => work.payload,
                Task::Caller(_) => unreachable!("the same job is handed back"),
            }),
        })
    }

    /// Submits a caller's job. The caller then waits in its waiter.
    pub(crate) fn enter(&self, now: Time, job: Job<()>) -> Result<(WaiterId, Ticket), Denied> {
        self.with(now, |state| state.enter(now, job, true))
    }

    /// Submits the job of a caller that does not wait: if it is not granted at once, it is gone
    /// again. It takes nobody's place.
    pub(crate) fn try_enter(
        &self,
        now: Time,
        job: Job<()>,
    ) -> Result<(WaiterId, Lease<Task<P>>), Denied> {
        self.with(now, |state| {
            let (waiter, ticket) = state.enter(now, job, false)?;
            // The grant must be seen now, and not by a later poll: this caller does not wait.
            state.pump(now);
            match state.waiters[waiter.0].message.take() {
                Some(Message::Granted(lease)) => return Ok((waiter, lease)),
                Some(_) => {}
                None => {
                    state.core.cancel(now, ticket);
                    state.pass_events_on();
                }
            }
            state.check_drained();
            state.waiters.remove(waiter.0);
            Err(Denied::WouldWait)
        })
    }

    /// Takes a waiter's message, or leaves a waker there.
    pub(crate) fn poll_waiter(&self, id: WaiterId, waker: &Waker) -> Option<Message<P>> {
        let mut state = self.state.lock();
        let waiter = &mut state.waiters[id.0];
        let message = waiter.message.take();
        let known = waiter.waker.as_ref();
        if message.is_some() || known.is_some_and(|known| known.will_wake(waker)) {
            return message;
        }
        drop(state);
        // To clone a waker runs code of the caller's runtime, and so does dropping the one before.
        let waker = waker.clone();
        let mut state = self.state.lock();
        let waiter = &mut state.waiters[id.0];
        let message = waiter.message.take();
        let before = match message {
            Some(_) => Some(waker),
            None => waiter.waker.replace(waker),
        };
        drop(state);
        drop(before);
        message
    }

    /// Removes a waiter that has its answer.
    pub(crate) fn remove_waiter(&self, waiter: WaiterId) {
        let mut state = self.state.lock();
        state.drained.retain(|other| *other != waiter);
        let waiter = state.waiters.remove(waiter.0);
        drop(state);
        drop(waiter);
    }

    /// A caller went away while it waited.
    pub(crate) fn abandon(&self, now: Time, waiter: WaiterId, ticket: Ticket) {
        let removed = self.with(now, |state| {
            match state.waiters[waiter.0].message.take() {
                // Granted, but nobody was there: what was charged is returned.
                Some(Message::Granted(lease)) => {
                    let (outcome, verdict) = (Outcome::Unused, Verdict::Unknown);
                    state.core.finish(now, lease, outcome, verdict);
                }
                Some(_) => {}
                None => {
                    // The call moves time on, so the job may expire in it: the event must find its
                    // waiter.
                    state.core.cancel(now, ticket);
                    state.pass_events_on();
                }
            }
            state.check_drained();
            state.waiters.remove(waiter.0)
        });
        drop(removed);
    }

    /// A caller gives its permit back. If it is to wait again, for another target or another time,
    /// it keeps its waiter; `Some` says that it need not wait.
    pub(crate) fn give_back(
        &self,
        now: Time,
        waiter: WaiterId,
        lease: Lease<Task<P>>,
        outcome: Outcome,
        verdict: Verdict,
    ) -> Option<EndReason> {
        let (reason, removed) = self.with(now, |state| {
            state.waiters[waiter.0].running = None;
            let reason = match state.core.finish(now, lease, outcome, verdict) {
                Settled::Elsewhere | Settled::Delayed(_) => return (None, None),
                Settled::Done(_) => EndReason::Done,
                Settled::Failed(_) | Settled::Stale(_) => EndReason::Failed,
                Settled::Merged(_) => EndReason::Merged,
                Settled::Cancelled(_) => EndReason::Cancelled,
                Settled::Returned(_) => EndReason::Returned,
            };
            state.check_drained();
            (Some(reason), Some(state.waiters.remove(waiter.0)))
        });
        drop(removed);
        reason
    }

    /// Adds a worker.
    pub(crate) fn add_worker(&self) -> WaiterId {
        let mut state = self.state.lock();
        state.workers += 1;
        WaiterId(state.waiters.insert(Waiter::default()))
    }

    /// A worker is gone, and with it the job that it ran, if any.
    pub(crate) fn remove_worker(&self, now: Time, id: WaiterId) {
        let removed = self.with(now, |state| {
            state.workers -= 1;
            state.idle.retain(|idle| *idle != id);
            let mut waiter = state.waiters.remove(id.0);
            let mut unused = None;
            if let Some(Message::Granted(lease)) = waiter.message.take() {
                // Granted, but never seen: nothing was begun, and what was charged is returned.
                unused = state.finish(now, lease, Outcome::Unused, Verdict::Unknown);
            } else if let Some(ticket) = waiter.running {
                state.core.reclaim(now, ticket, Verdict::Unknown);
                state.check_drained();
            }
            (waiter, unused)
        });
        drop(removed);
    }

    /// A worker finished what it had, if anything, and asks for more.
    #[inline]
    pub(crate) fn finish_and_next(
        &self,
        now: Time,
        waiter: WaiterId,
        done: Option<(Lease<Task<P>>, Outcome, Verdict)>,
    ) -> Option<Message<P>> {
        let (next, unused) = self.with(now, |state| {
            let unused = done.and_then(|(lease, outcome, verdict)| {
                state.waiters[waiter.0].running = None;
                state.finish(now, lease, outcome, verdict)
            });
            (state.next_for(now, waiter), unused)
        });
        // The next job is in hand: a payload that panics as it is dropped must not take it along.
        let _ = std::panic::catch_unwind(AssertUnwindSafe(|| drop(unused)));
        next
    }

    /// The token that tells a job's runner to stop.
    pub(crate) fn token(&self, waiter: WaiterId) -> CancellationToken {
        let mut state = self.state.lock();
        let waiter = &mut state.waiters[waiter.0];
        let token = waiter.token.get_or_insert_with(CancellationToken::new);
        let (token, cancelled) = (token.clone(), waiter.cancelled);
        drop(state);
        if cancelled {
            token.cancel();
        }
        token
    }

    /// Cancels a job: it is taken back, or told to stop.
    pub(crate) fn cancel(&self, now: Time, ticket: Ticket) -> Cancel {
        self.with(now, |state| {
            let cancelled = state.core.cancel(now, ticket);
            if let Cancelled::Running = cancelled {
                state.stop(ticket);
            }
            state.cancelled(ticket, cancelled)
        })
    }

    /// Takes a job back if it has not begun.
    pub(crate) fn withdraw(&self, now: Time, ticket: Ticket) -> Cancel {
        self.with(now, |state| {
            let cancelled = state.core.withdraw(now, ticket);
            state.cancelled(ticket, cancelled)
        })
    }

    /// Tells everybody who runs a job to stop.
    pub(crate) fn stop_running(&self, now: Time) {
        self.with(now, |state| {
            let running = state
                .waiters
                .iter()
                .filter_map(|(_, waiter)| waiter.running);
            for ticket in running.collect::<Vec<_>>() {
                state.stop(ticket);
            }
        });
    }

    /// Admits nothing more, and hands back what waits.
    pub(crate) fn drain(&self, now: Time) {
        self.with(now, |state| state.core.drain(now));
    }

    /// Tells workers and timer to leave.
    pub(crate) fn close(&self, now: Time) {
        self.with(now, |state| {
            state.closed = true;
            for worker in std::mem::take(&mut state.idle) {
                state.notify(worker, Message::Leave);
            }
            state.after.wake.extend(state.timer.take());
        });
    }

    /// Stops one idle worker. `false` if none is idle.
    pub(crate) fn stop_idle_worker(&self, now: Time) -> bool {
        self.with(now, |state| {
            // Only one that has nothing to do: work is never taken from a worker.
            if state.idle.is_empty() {
                return false;
            }
            let worker = state.idle.remove(0);
            state.notify(worker, Message::Leave);
            true
        })
    }

    /// The timer calls: what is due happens. Says when to call next, or that it need not any more.
    pub(crate) fn poll_timer(&self, now: Time, waker: &Waker) -> Timer {
        let waker = waker.clone();
        let (timer, before) = self.with(now, |state| {
            if state.closed {
                return (Timer::Leave, Some(waker));
            }
            state.core.advance(now);
            state.pump(now);
            let (scale, again) = state.scale(now);
            let before = state.timer.replace(waker);
            state.armed = state.core.wake_at();
            let at = [state.armed, again].into_iter().flatten().min();
            (Timer::At { at, scale }, before)
        });
        drop(before);
        timer
    }

    /// A waiter that is told when nothing runs, waits or is delayed; `None` if that is so now.
    pub(crate) fn wait_until_drained(&self) -> Option<WaiterId> {
        let mut state = self.state.lock();
        if state.is_drained() {
            return None;
        }
        let waiter = WaiterId(state.waiters.insert(Waiter::default()));
        state.drained.push(waiter);
        Some(waiter)
    }

    pub(crate) fn running(&self) -> u64 {
        self.state.lock().core.running()
    }

    pub(crate) fn workers(&self) -> u64 {
        self.state.lock().workers as u64
    }

    /// How full the queue is once `more` jobs wait. Takes no lock.
    pub(crate) fn pressure(&self, more: u64) -> Pressure {
        self.fill.pressure(more)
    }

    /// Reads the core. Nothing is granted meanwhile.
    pub(crate) fn read<R>(&self, what: impl FnOnce(&Core<Task<P>>) -> R) -> R {
        what(&self.state.lock().core)
    }

    /// Anything else that a core can do.
    pub(crate) fn core<R>(&self, now: Time, what: impl FnOnce(&mut Core<Task<P>>) -> R) -> R {
        self.with(now, |state| {
            let answer = what(&mut state.core);
            self.fill.set_all(state);
            answer
        })
    }

    /// Applies new numbers of workers.
    pub(crate) fn set_workers(&self, now: Time, workers: Workers) {
        self.with(now, |state| {
            state.scaling.reconfigure(workers);
            self.fill.set_all(state);
            state.after.wake.extend(state.timer.take());
        });
    }
}

/// The timer's next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Timer {
    /// Call again then, and first start or stop a worker.
    At { at: Option<Time>, scale: Scale },
    /// Nothing will come any more.
    Leave,
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use super::*;
    use headworks_core::{Cost, Limits, Rate};
    use std::sync::Arc;
    use std::sync::Mutex as StdMutex;

    type Ended = Arc<StdMutex<Vec<(u32, EndReason)>>>;

    fn driver(limits: Limits) -> (Driver<u32>, Ended) {
        let ended = Ended::default();
        let seen = ended.clone();
        let listener = Box::new(move |notice| {
            if let Notice::Ended {
                payload, reason, ..
            } = notice
            {
                seen.lock().expect("not poisoned").push((payload, reason));
            }
        });
        let config = Config {
            limits,
            ..Config::default()
        };
        let driver = Driver::new(
            config,
            Time::ZERO,
            Runners::Workers,
            Workers::new(0, 0),
            listener,
        );
        (driver.expect("a good configuration"), ended)
    }

    /// A worker that is aborted between its grant and its next poll began nothing.
    #[test]
    fn a_grant_that_its_worker_never_saw_is_handed_back() {
        let limits = Limits {
            cost: Some(Rate::per_second(10.0)),
            ..Limits::default()
        };
        let (driver, ended) = driver(limits);
        let now = Time::ZERO;
        let worker = driver.add_worker();
        assert!(driver.finish_and_next(now, worker, None).is_none(), "idle");
        let job = |payload| Job::new(payload).cost(Cost(10));
        driver.submit(now, job(1), None).expect("there is room");
        assert_eq!(driver.running(), 1, "granted, and not seen");
        driver.drain(now);
        driver.remove_worker(now, worker);
        let ended = ended.lock().expect("not poisoned");
        assert_eq!(*ended, [(1, EndReason::Returned)]);
        assert_eq!(driver.running(), 0);
        let (_, cost) = driver.read(|core| core.inspect().levels);
        assert_eq!(cost, Some(10.0), "what was charged is returned");
    }
}
