//! The part behind the lock.

use super::scaling::Scaling;
use super::seat::{Seat, SeatId, Task, Word};
use crate::notice::{Cancel, Denied, How, Notice};
use headworks_core::{
    Bound, Cancelled, Class, Core, Event, Job, Lease, Outcome, Settled, Ticket, Time, Verdict,
};
use slab::Slab;
use std::task::Waker;

/// The part behind the lock.
pub(super) struct State<P> {
    pub(super) core: Core<Task<P>>,
    pub(super) seats: Slab<Seat<P>>,
    /// Workers without work; the last to come goes first, so that the others can be let go.
    pub(super) idle: Vec<SeatId>,
    /// Callers whose job waits in the core.
    pub(super) callers: usize,
    pub(super) workers: usize,
    /// When the timer will call.
    pub(super) armed: Option<Time>,
    /// The timer, and those who wait for the last job to end.
    pub(super) timer: Option<Waker>,
    pub(super) drained: Vec<Waker>,
    pub(super) closed: bool,
    pub(super) scaling: Scaling,
    pub(super) after: After<P>,
}
/// What is to be done once the lock is given back.
pub(super) struct After<P> {
    pub(super) wake: Vec<Waker>,
    pub(super) notices: Vec<Notice<P>>,
}

impl<P> Default for After<P> {
    fn default() -> Self {
        After {
            wake: Vec::new(),
            notices: Vec::new(),
        }
    }
}
impl<P> State<P> {
    pub(super) fn enter(&mut self, now: Time, job: Job<()>) -> Result<(SeatId, Ticket), Denied> {
        let seat = SeatId(self.seats.insert(Seat::default()));
        match self.core.submit(now, job.map(|()| Task::Caller(seat))) {
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
    pub(super) fn is_full(&self, class: Class) -> bool {
        match self.core.config().bound {
            Bound::PerClass(places) => self.core.waiting_in(class) >= places as u64,
            Bound::Shared(places) => self.core.waiting() >= places as u64,
        }
    }

    /// Grants as far as there is somebody to run it, and passes on what happened.
    #[inline]
    pub(super) fn pump(&mut self, now: Time) {
        if self.callers > 0 || !self.idle.is_empty() {
            self.grant(now);
        }
        self.pass_events_on();
        let wake = self.core.wake_at();
        let sooner = wake.is_some_and(|wake| self.armed.is_none_or(|armed| wake < armed));
        if sooner || self.wants_scaling() {
            if sooner {
                self.armed = wake;
            }
            self.after.wake.extend(self.timer.take());
        }
    }

    /// Passes on what the core has to tell.
    #[inline]
    pub(super) fn pass_events_on(&mut self) {
        while let Some(event) = self.core.poll_event() {
            self.pass_on(event);
        }
    }

    #[inline(never)]
    fn grant(&mut self, now: Time) {
        while self.callers > 0 || !self.idle.is_empty() {
            let Some(lease) = self.core.next(now) else {
                break;
            };
            self.hand_over(lease);
        }
    }

    pub(super) fn hand_over(&mut self, lease: Lease<Task<P>>) {
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
    pub(super) fn next_for(&mut self, now: Time, seat: SeatId) -> Option<Word<P>> {
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

    #[inline]
    pub(super) fn begin(&mut self, seat: SeatId, lease: &Lease<Task<P>>) {
        let seat = &mut self.seats[seat.0];
        seat.running = Some(lease.ticket);
        seat.cancelled = false;
        seat.token = None;
    }

    pub(super) fn say(&mut self, id: SeatId, word: Word<P>) {
        if let Word::Granted(lease) = &word {
            self.begin(id, lease);
        }
        let seat = &mut self.seats[id.0];
        seat.word = Some(word);
        self.after.wake.extend(seat.waker.take());
    }

    /// A worker's job is over, or goes back into the core.
    #[inline]
    pub(super) fn finish(
        &mut self,
        now: Time,
        lease: Lease<Task<P>>,
        outcome: Outcome,
        verdict: Verdict,
    ) {
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

    #[cold]
    pub(super) fn pass_on(&mut self, event: Event<Task<P>>) {
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
    pub(super) fn end(&mut self, ticket: Ticket, task: Task<P>, how: How) {
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

    pub(super) fn cancelled(&mut self, ticket: Ticket, cancelled: Cancelled<Task<P>>) -> Cancel {
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

    pub(super) fn is_drained(&self) -> bool {
        self.core.running() == 0 && self.core.waiting() == 0 && self.core.delayed() == 0
    }

    pub(super) fn check_drained(&mut self) {
        if !self.drained.is_empty() && self.is_drained() {
            self.after.wake.append(&mut self.drained);
        }
    }
}
