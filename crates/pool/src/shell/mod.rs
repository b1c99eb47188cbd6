//! The shell around the core: one lock, and the hand-off from the core to whoever runs the work.
//!
//! Everything that changes is behind one lock, held for the length of a few core calls and never across an await. A
//! *seat* is where somebody waits for word from the core: a worker without work, or a caller of `acquire`. Word is
//! put into a seat under the lock, and its waker is called after the lock is given back. The shell knows no clock and
//! no runtime: every call takes `now`, so the same code is model-checked.
//!
//! Why a lock and not a task that owns the core: a submit must answer with the core's own verdict, and a hop to a task
//! and back costs ten times a lock. `headworks-bench engine` measures it.

mod gauge;
mod scaling;
mod seat;
mod state;

pub use scaling::Workers;
pub(crate) use seat::{SeatId, Task, Word};

use crate::notice::{Cancel, Denied, How, Notice};
use crate::sync::Mutex;
use gauge::Gauge;
use headworks_core::{
    Cancelled, Config, ConfigError, Core, Job, Lease, Outcome, Pressure, Refused, Scale, Settled,
    Ticket, Time, Verdict,
};
use scaling::Scaling;
use seat::Seat;
use slab::Slab;
use state::{After, State};
use std::panic::AssertUnwindSafe;
use std::task::Waker;
use tokio_util::sync::CancellationToken;

/// Told of what happened to jobs and targets.
pub(crate) type Listener<P> = Box<dyn Fn(Notice<P>) + Send + Sync>;

/// The shell.
pub(crate) struct Shell<P> {
    state: Mutex<State<P>>,
    gauge: Gauge,
    listener: Listener<P>,
}

impl<P> Shell<P> {
    pub(crate) fn new(
        config: Config,
        now: Time,
        workers: Workers,
        listener: Listener<P>,
    ) -> Result<Self, ConfigError> {
        let state = State {
            core: Core::new(config, now)?,
            seats: Slab::new(),
            idle: Vec::new(),
            callers: 0,
            workers: 0,
            armed: None,
            timer: None,
            drained: Vec::new(),
            closed: false,
            scaling: Scaling::new(workers),
            after: After::default(),
        };
        let gauge = Gauge::default();
        gauge.set(&state);
        Ok(Shell {
            state: Mutex::new(state),
            gauge,
            listener,
        })
    }

    /// Runs a few core calls under the lock, then wakes and tells whom they concern.
    #[inline]
    fn with<R>(&self, now: Time, calls: impl FnOnce(&mut State<P>) -> R) -> R {
        let mut state = self.state.lock();
        let answer = calls(&mut state);
        state.pump(now);
        self.gauge.waiting(state.core.waiting());
        if state.after.wake.is_empty() && state.after.notices.is_empty() {
            return answer;
        }
        let after = std::mem::take(&mut state.after);
        drop(state);
        self.deliver(after);
        answer
    }

    #[cold]
    fn deliver(&self, after: After<P>) {
        for waker in after.wake {
            waker.wake();
        }
        for notice in after.notices {
            // A listener that panics must not keep the others from being told; the panic itself is reported by its hook.
            let told = AssertUnwindSafe(|| (self.listener)(notice));
            let _ = std::panic::catch_unwind(told);
        }
    }

    /// Hands in work for the workers.
    #[expect(
        clippy::result_large_err,
        reason = "a refusal hands the job back by value"
    )]
    pub(crate) fn submit(&self, now: Time, job: Job<P>) -> Result<Ticket, Refused<P>> {
        let job = job.map(Task::Work);
        let answer = self.with(now, |state| state.core.submit(now, job));
        answer.map_err(|refused| Refused {
            reason: refused.reason,
            retry_after: refused.retry_after,
            booking: refused.booking,
            job: refused.job.map(|task| match task {
                Task::Work(payload) => payload,
                Task::Caller(_) => unreachable!("the same job comes back"),
            }),
        })
    }

    /// Hands in a caller's job. The caller then waits in its seat.
    pub(crate) fn enter(&self, now: Time, job: Job<()>) -> Result<(SeatId, Ticket), Denied> {
        self.with(now, |state| state.enter(now, job))
    }

    /// Hands in the job of a caller who will not wait. It takes nobody's place: where another would have to be shed for
    /// it, it is denied.
    pub(crate) fn enter_without_waiting(
        &self,
        now: Time,
        job: Job<()>,
    ) -> Result<(SeatId, Ticket), Denied> {
        self.with(now, |state| match state.is_full(job.class) {
            true => Err(Denied::WouldWait),
            false => state.enter(now, job),
        })
    }

    /// Takes the word from a seat, or leaves a waker there.
    pub(crate) fn poll_seat(&self, seat: SeatId, waker: &Waker) -> Option<Word<P>> {
        let mut state = self.state.lock();
        let seat = &mut state.seats[seat.0];
        let word = seat.word.take();
        if word.is_none()
            && !seat
                .waker
                .as_ref()
                .is_some_and(|known| known.will_wake(waker))
        {
            seat.waker = Some(waker.clone());
        }
        word
    }

    /// A caller has its answer and leaves its seat.
    pub(crate) fn stand_up(&self, seat: SeatId) {
        self.state.lock().seats.remove(seat.0);
    }

    /// A caller went away while it waited.
    pub(crate) fn abandon(&self, now: Time, seat: SeatId, ticket: Ticket) {
        self.with(now, |state| {
            match state.seats[seat.0].word.take() {
                // Granted, but nobody was there: what was charged is given back.
                Some(Word::Granted(lease)) => {
                    state
                        .core
                        .finish(now, lease, Outcome::Unused, Verdict::Unknown);
                }
                Some(Word::Denied(_) | Word::Leave) => {}
                None => {
                    // The call moves time on, so the job may expire in it. Then it is the event that counts the
                    // caller out, and it must find the seat.
                    if let Cancelled::Removed(_) = state.core.cancel(now, ticket) {
                        state.callers -= 1;
                    }
                    state.pass_events_on();
                }
            }
            state.check_drained();
            state.seats.remove(seat.0);
        });
    }

    /// A caller gives its permit back. If it is to wait again, for another target or another time, it keeps its seat;
    /// `Some` says that it need not wait.
    pub(crate) fn give_back(
        &self,
        now: Time,
        seat: SeatId,
        lease: Lease<Task<P>>,
        outcome: Outcome,
        verdict: Verdict,
    ) -> Option<How> {
        self.with(now, |state| {
            state.seats[seat.0].running = None;
            let how = match state.core.finish(now, lease, outcome, verdict) {
                Settled::Elsewhere | Settled::Delayed(_) => {
                    state.callers += 1;
                    return None;
                }
                Settled::Done(_) => How::Done,
                Settled::Failed(_) | Settled::Stale(_) => How::Failed,
                Settled::Merged(_) => How::Merged,
                Settled::Cancelled(_) => How::Cancelled,
                Settled::Returned(_) => How::Returned,
            };
            state.seats.remove(seat.0);
            state.check_drained();
            Some(how)
        })
    }

    /// Makes a seat for a new worker.
    pub(crate) fn hire(&self) -> SeatId {
        let mut state = self.state.lock();
        state.workers += 1;
        SeatId(state.seats.insert(Seat::default()))
    }

    /// A worker is gone.
    pub(crate) fn dismiss(&self, now: Time, seat: SeatId) {
        self.with(now, |state| {
            state.workers -= 1;
            state.idle.retain(|idle| *idle != seat);
            if let Some(Word::Granted(lease)) = state.seats.remove(seat.0).word {
                state.finish(now, lease, Outcome::Dropped, Verdict::Unknown);
            }
        });
    }

    /// A worker finished what it had, if anything, and asks for more: in one go, for that is the hot path.
    pub(crate) fn turn(
        &self,
        now: Time,
        seat: SeatId,
        done: Option<(Lease<Task<P>>, Outcome, Verdict)>,
    ) -> Option<Word<P>> {
        self.with(now, |state| {
            if let Some((lease, outcome, verdict)) = done {
                state.seats[seat.0].running = None;
                state.finish(now, lease, outcome, verdict);
            }
            state.next_for(now, seat)
        })
    }

    /// Ends a job whose worker was lost with it.
    pub(crate) fn reclaim(&self, now: Time, seat: SeatId) {
        self.with(now, |state| {
            if let Some(ticket) = state.seats[seat.0].running.take() {
                state.core.reclaim(now, ticket, Verdict::Unknown);
                state.check_drained();
            }
        });
    }

    /// The token that tells whoever runs from this seat to stop.
    pub(crate) fn token(&self, seat: SeatId) -> CancellationToken {
        let mut state = self.state.lock();
        let seat = &mut state.seats[seat.0];
        let token = seat
            .token
            .get_or_insert_with(CancellationToken::new)
            .clone();
        if seat.cancelled {
            token.cancel();
        }
        token
    }

    /// Cancels a job: it is taken back, or told to stop.
    pub(crate) fn cancel(&self, now: Time, ticket: Ticket) -> Cancel {
        self.with(now, |state| {
            let cancelled = state.core.cancel(now, ticket);
            if let Cancelled::Running = cancelled {
                let mut seats = state.seats.iter_mut();
                if let Some((_, seat)) = seats.find(|(_, seat)| seat.running == Some(ticket)) {
                    seat.stop();
                }
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

    /// Tells everybody who runs something to stop.
    pub(crate) fn stop_running(&self) {
        let mut state = self.state.lock();
        for (_, seat) in &mut state.seats {
            if seat.running.is_some() {
                seat.stop();
            }
        }
    }

    /// Admits nothing more, and hands back what waits.
    pub(crate) fn drain(&self, now: Time) {
        self.with(now, |state| state.core.drain(now));
    }

    /// Tells workers and timer to leave.
    pub(crate) fn close(&self, now: Time) {
        self.with(now, |state| {
            state.closed = true;
            for seat in std::mem::take(&mut state.idle) {
                state.say(seat, Word::Leave);
            }
            state.after.wake.extend(state.timer.take());
        });
    }

    /// Lets one idle worker go. `false` if none is idle.
    pub(crate) fn dismiss_idle(&self, now: Time) -> bool {
        self.with(now, |state| match state.idle.is_empty() {
            true => false,
            false => {
                let seat = state.idle.remove(0);
                state.say(seat, Word::Leave);
                true
            }
        })
    }

    /// The timer calls: what is due happens. Says when to call next, or that it need not any more.
    pub(crate) fn poll_timer(&self, now: Time, waker: &Waker) -> Timer {
        self.with(now, |state| {
            if state.closed {
                return Timer::Leave;
            }
            state.core.advance(now);
            state.pump(now);
            let (scale, again) = state.scale(now);
            if !state
                .timer
                .as_ref()
                .is_some_and(|known| known.will_wake(waker))
            {
                state.timer = Some(waker.clone());
            }
            state.armed = state.core.wake_at();
            let at = [state.armed, again].into_iter().flatten().min();
            Timer::At { at, scale }
        })
    }

    /// Whether nothing runs, waits or is delayed; if not, the waker is called when that is so.
    pub(crate) fn poll_drained(&self, waker: &Waker) -> bool {
        let mut state = self.state.lock();
        if state.is_drained() {
            return true;
        }
        state.drained.push(waker.clone());
        false
    }

    pub(crate) fn running(&self) -> u64 {
        self.state.lock().core.running()
    }

    pub(crate) fn workers(&self) -> u64 {
        self.state.lock().workers as u64
    }

    /// How full the queue is with so many more: known without the lock.
    pub(crate) fn pressure(&self, more: u64) -> Pressure {
        self.gauge.pressure(more)
    }

    /// Anything else that a core can do.
    pub(crate) fn core<R>(&self, now: Time, what: impl FnOnce(&mut Core<Task<P>>) -> R) -> R {
        self.with(now, |state| {
            let answer = what(&mut state.core);
            self.gauge.set(state);
            answer
        })
    }

    /// Takes new numbers of workers.
    pub(crate) fn set_workers(&self, now: Time, workers: Workers) {
        self.with(now, |state| {
            state.scaling.reconfigure(workers);
            self.gauge.set(state);
            state.after.wake.extend(state.timer.take());
        });
    }
}
/// What the timer is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Timer {
    /// Call then, and first hire or let go.
    At { at: Option<Time>, scale: Scale },
    /// Nothing will come any more.
    Leave,
}
