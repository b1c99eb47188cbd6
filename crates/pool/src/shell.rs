//! The shell around the core: one lock, and the hand-off from the core to whoever runs the work.
//!
//! Everything that changes is behind one lock, held for the length of a few core calls and never across an await. A
//! *seat* is where somebody waits for word from the core: a worker without work, or a caller of `acquire`. Word is
//! put into a seat under the lock, and its waker is called after the lock is given back. The shell knows no clock and
//! no runtime: every call takes `now`, so the same code is model-checked.
//!
//! Why a lock and not a task that owns the core: a submit must answer with the core's own verdict, and a hop to a task
//! and back costs ten times a lock. `headworks-bench engine` measures it.

use crate::notice::{Cancel, Denied, How, Notice};
use crate::sync::Mutex;
use headworks_core::{
    Bound, Cancelled, Class, Config, ConfigError, Core, Event, Job, Lease, Outcome, Pressure,
    Refused, Scale, Scaler, Settled, Thresholds, Ticket, Time, Verdict,
};
use slab::Slab;
use std::panic::AssertUnwindSafe;
use std::task::Waker;
use tokio_util::sync::CancellationToken;

/// What a job of the core is to the pool.
#[derive(Debug)]
pub(crate) enum Task<P> {
    /// Work for a worker.
    Work(P),
    /// Somebody who waits in that seat and runs the work himself.
    Caller(SeatId),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SeatId(usize);

/// Word from the core.
#[derive(Debug)]
pub(crate) enum Word<P> {
    /// Run this.
    Granted(Lease<Task<P>>),
    /// It will not run.
    Denied(Denied),
    /// There is no more to do.
    Leave,
}

#[derive(Debug)]
struct Seat<P> {
    word: Option<Word<P>>,
    waker: Option<Waker>,
    /// The job that is run from this seat.
    running: Option<Ticket>,
    cancelled: bool,
    token: Option<CancellationToken>,
}

impl<P> Default for Seat<P> {
    fn default() -> Self {
        Seat {
            word: None,
            waker: None,
            running: None,
            cancelled: false,
            token: None,
        }
    }
}

/// The part behind the lock.
struct State<P> {
    core: Core<Task<P>>,
    seats: Slab<Seat<P>>,
    /// Workers without work; the last to come goes first, so that the others can be let go.
    idle: Vec<SeatId>,
    /// Callers whose job waits in the core.
    callers: usize,
    workers: usize,
    /// When the timer will call.
    armed: Option<Time>,
    /// The timer, and those who wait for the last job to end.
    timer: Option<Waker>,
    drained: Vec<Waker>,
    closed: bool,
    scaling: Scaling,
    after: After<P>,
}

/// How many workers there should be, and when that is worth a thought.
struct Scaling {
    scaler: Scaler,
    base: usize,
    max: usize,
    thresholds: Thresholds,
    /// The timer knows that the scaler has something to decide.
    told: bool,
}

/// What is to be done once the lock is given back.
struct After<P> {
    wake: Vec<Waker>,
    notices: Vec<Notice<P>>,
}

impl<P> Default for After<P> {
    fn default() -> Self {
        After {
            wake: Vec::new(),
            notices: Vec::new(),
        }
    }
}

/// Told of what happened to jobs and targets.
pub(crate) type Listener<P> = Box<dyn Fn(Notice<P>) + Send + Sync>;

/// The shell.
pub(crate) struct Shell<P> {
    state: Mutex<State<P>>,
    listener: Listener<P>,
}

impl<P> Shell<P> {
    pub(crate) fn new(
        config: Config,
        now: Time,
        workers: Workers,
        listener: Listener<P>,
    ) -> Result<Self, ConfigError> {
        let mut scaler = Scaler::new(workers.base, workers.max);
        scaler.reconfigure(workers.base, workers.max, workers.thresholds);
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
            scaling: Scaling {
                scaler,
                base: workers.base,
                max: workers.max,
                thresholds: workers.thresholds,
                told: false,
            },
            after: After::default(),
        };
        Ok(Shell {
            state: Mutex::new(state),
            listener,
        })
    }

    /// Runs a few core calls under the lock, then wakes and tells whom they concern.
    #[inline]
    fn with<R>(&self, now: Time, calls: impl FnOnce(&mut State<P>) -> R) -> R {
        let mut state = self.state.lock();
        let answer = calls(&mut state);
        state.pump(now);
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
        let (job, payload) = split(job);
        let job = join(job, Task::Work(payload));
        self.with(now, |state| state.core.submit(now, job))
            .map_err(|refused| {
                let (job, task) = split(refused.job);
                let Task::Work(payload) = task else {
                    unreachable!("the same job comes back")
                };
                Refused {
                    reason: refused.reason,
                    retry_after: refused.retry_after,
                    booking: refused.booking,
                    job: join(job, payload),
                }
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
                    state.callers -= 1;
                    state.core.cancel(now, ticket);
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

    pub(crate) fn pressure(&self) -> Pressure {
        let state = self.state.lock();
        state.scaling.thresholds.at(
            state.core.waiting() as usize,
            state.core.capacity() as usize,
        )
    }

    /// Anything else that a core can do.
    pub(crate) fn core<R>(&self, now: Time, what: impl FnOnce(&mut Core<Task<P>>) -> R) -> R {
        self.with(now, |state| what(&mut state.core))
    }

    /// Takes new numbers of workers.
    pub(crate) fn set_workers(&self, now: Time, workers: Workers) {
        self.with(now, |state| {
            let Workers {
                base,
                max,
                thresholds,
            } = workers;
            state.scaling.scaler.reconfigure(base, max, thresholds);
            (state.scaling.base, state.scaling.max) = (base, max);
            state.scaling.thresholds = thresholds;
            state.after.wake.extend(state.timer.take());
        });
    }
}

/// How many workers there should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Workers {
    /// Always so many, at least one.
    pub base: usize,
    /// Never more than so many.
    pub max: usize,
    /// How full is full enough for more.
    pub thresholds: Thresholds,
}

impl Workers {
    /// For pools whose callers run the work.
    pub(crate) fn none() -> Self {
        Workers::new(0, 0)
    }

    /// With no worker, nothing would ever end.
    pub(crate) fn at_least_one(self) -> Self {
        let base = self.base.max(1);
        Workers {
            base,
            max: self.max.max(base),
            ..self
        }
    }

    /// Between `base` and `max`, by the default thresholds.
    #[must_use]
    pub fn new(base: usize, max: usize) -> Self {
        Workers {
            base,
            max: max.max(base),
            thresholds: Thresholds::default(),
        }
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

impl<P> Seat<P> {
    fn stop(&mut self) {
        self.cancelled = true;
        if let Some(token) = &self.token {
            token.cancel();
        }
    }
}

impl<P> State<P> {
    fn enter(&mut self, now: Time, job: Job<()>) -> Result<(SeatId, Ticket), Denied> {
        let (job, ()) = split(job);
        let seat = SeatId(self.seats.insert(Seat::default()));
        match self.core.submit(now, join(job, Task::Caller(seat))) {
            Ok(ticket) => {
                self.callers += 1;
                Ok((seat, ticket))
            }
            Err(refused) => {
                self.seats.remove(seat.0);
                Err(Denied::Refused {
                    reason: refused.reason,
                    retry_after: refused.retry_after,
                    booking: refused.booking,
                })
            }
        }
    }

    /// Whether a class has no free place.
    fn is_full(&self, class: Class) -> bool {
        match self.core.config().bound {
            Bound::PerClass(places) => self.core.waiting_in(class) >= places as u64,
            Bound::Shared(places) => self.core.waiting() >= places as u64,
        }
    }

    /// Grants as far as there is somebody to run it, and passes on what happened.
    fn pump(&mut self, now: Time) {
        while self.callers > 0 || !self.idle.is_empty() {
            let Some(lease) = self.core.next(now) else {
                break;
            };
            self.hand_over(lease);
        }
        while let Some(event) = self.core.poll_event() {
            self.pass_on(event);
        }
        let wake = self.core.wake_at();
        let sooner = wake.is_some_and(|wake| self.armed.is_none_or(|armed| wake < armed));
        if sooner || self.wants_scaling() {
            if sooner {
                self.armed = wake;
            }
            self.after.wake.extend(self.timer.take());
        }
    }

    /// Whether the scaler should be asked, and has not been told yet.
    #[inline]
    fn wants_scaling(&mut self) -> bool {
        let Scaling {
            base,
            max,
            told,
            thresholds,
            ..
        } = self.scaling;
        if told || max == 0 || (self.workers == base && self.core.waiting() == 0) {
            return false;
        }
        let pressure = thresholds.at(self.core.waiting() as usize, self.core.capacity() as usize);
        let wants = self.workers < base
            || (self.workers < max && pressure.scales())
            || (self.workers > base && !self.idle.is_empty());
        self.scaling.told = wants;
        wants
    }

    /// What to do about the number of workers, and when to ask again.
    fn scale(&mut self, now: Time) -> (Scale, Option<Time>) {
        if self.scaling.max == 0 {
            return (Scale::Hold, None);
        }
        let pressure = self
            .scaling
            .thresholds
            .at(self.core.waiting() as usize, self.core.capacity() as usize);
        let scaler = &mut self.scaling.scaler;
        let scale = scaler.decide(now, pressure.fill(), self.workers, self.idle.len());
        let again = scaler.wake_at();
        self.scaling.told = again.is_some();
        (scale, again)
    }

    fn hand_over(&mut self, lease: Lease<Task<P>>) {
        match lease.payload {
            Task::Caller(seat) => {
                self.callers -= 1;
                self.say(seat, Word::Granted(lease));
            }
            Task::Work(_) => {
                let seat = self.idle.pop().expect("work is leased for an idle worker");
                self.say(seat, Word::Granted(lease));
            }
        }
    }

    /// Work for a worker that asks; if there is none, it is idle.
    fn next_for(&mut self, now: Time, seat: SeatId) -> Option<Word<P>> {
        if let Some(word) = self.seats[seat.0].word.take() {
            return Some(word);
        }
        if self.closed {
            return Some(Word::Leave);
        }
        while let Some(lease) = self.core.next(now) {
            if let Task::Work(_) = lease.payload {
                self.begin(seat, &lease);
                return Some(Word::Granted(lease));
            }
            self.hand_over(lease);
        }
        if !self.idle.contains(&seat) {
            self.idle.push(seat);
        }
        None
    }

    fn begin(&mut self, seat: SeatId, lease: &Lease<Task<P>>) {
        let seat = &mut self.seats[seat.0];
        seat.running = Some(lease.ticket);
        seat.cancelled = false;
        seat.token = None;
    }

    fn say(&mut self, id: SeatId, word: Word<P>) {
        if let Word::Granted(lease) = &word {
            self.begin(id, lease);
        }
        let seat = &mut self.seats[id.0];
        seat.word = Some(word);
        self.after.wake.extend(seat.waker.take());
    }

    /// A worker's job is over, or goes back into the core.
    fn finish(&mut self, now: Time, lease: Lease<Task<P>>, outcome: Outcome, verdict: Verdict) {
        let ticket = lease.ticket;
        match self.core.finish(now, lease, outcome, verdict) {
            Settled::Done(_) | Settled::Stale(_) | Settled::Elsewhere | Settled::Delayed(_) => {}
            Settled::Failed(task) => self.end(ticket, task, How::Failed),
            Settled::Merged(task) => self.end(ticket, task, How::Merged),
            Settled::Cancelled(task) => self.end(ticket, task, How::Cancelled),
            Settled::Returned(task) => self.end(ticket, task, How::Returned),
        }
        self.check_drained();
    }

    fn pass_on(&mut self, event: Event<Task<P>>) {
        match event {
            Event::Expired { ticket, job } => self.end(ticket, job.payload, How::Expired),
            Event::Shed {
                ticket,
                job,
                retry_after,
                booking,
            } => {
                self.end(
                    ticket,
                    job.payload,
                    How::Shed {
                        retry_after,
                        booking,
                    },
                );
            }
            Event::Merged { ticket, job } => self.end(ticket, job.payload, How::Merged),
            Event::Failed {
                ticket,
                job,
                reason,
            } => {
                self.end(ticket, job.payload, How::Unservable(reason));
            }
            Event::Returned { ticket, job } => self.end(ticket, job.payload, How::Returned),
            Event::TargetChanged { target, state } => {
                self.after.notices.push(Notice::Target { target, state });
            }
            _ => {}
        }
        self.check_drained();
    }

    /// A job ended that nobody runs: whoever waits for it is told.
    fn end(&mut self, ticket: Ticket, task: Task<P>, how: How) {
        match task {
            Task::Work(payload) => self.after.notices.push(Notice::Ended {
                ticket,
                payload,
                how,
            }),
            Task::Caller(seat) => {
                self.callers -= 1;
                self.say(seat, Word::Denied(Denied::Ended(how)));
            }
        }
    }

    fn cancelled(&mut self, ticket: Ticket, cancelled: Cancelled<Task<P>>) -> Cancel {
        match cancelled {
            Cancelled::Ended => Cancel::Ended,
            Cancelled::Running => Cancel::Running,
            Cancelled::Removed(job) => {
                self.end(ticket, job.payload, How::Cancelled);
                self.check_drained();
                Cancel::Removed
            }
        }
    }

    fn is_drained(&self) -> bool {
        self.core.running() == 0 && self.core.waiting() == 0 && self.core.delayed() == 0
    }

    fn check_drained(&mut self) {
        if !self.drained.is_empty() && self.is_drained() {
            self.after.wake.append(&mut self.drained);
        }
    }
}

/// A job without its payload.
fn split<P>(job: Job<P>) -> (Job<()>, P) {
    let Job {
        class,
        flow,
        cost,
        targets,
        key,
        delay_key,
        start_at,
        expire_at,
        booking,
        attempts,
        payload,
    } = job;
    (
        Job {
            class,
            flow,
            cost,
            targets,
            key,
            delay_key,
            start_at,
            expire_at,
            booking,
            attempts,
            payload: (),
        },
        payload,
    )
}

/// The same job with a payload.
fn join<P>(job: Job<()>, payload: P) -> Job<P> {
    let Job {
        class,
        flow,
        cost,
        targets,
        key,
        delay_key,
        start_at,
        expire_at,
        booking,
        attempts,
        payload: (),
    } = job;
    Job {
        class,
        flow,
        cost,
        targets,
        key,
        delay_key,
        start_at,
        expire_at,
        booking,
        attempts,
        payload,
    }
}
