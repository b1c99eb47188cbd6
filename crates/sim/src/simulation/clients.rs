//! Clients: submissions, and behaviour on refusal.

use super::event_queue::SimEvent;
use super::{Simulation, WALK, Work};
use crate::scenario::{Clients, OnRefusal};
use headworks_core::{Booking, Job, Reason};
use std::time::Duration;

/// Minimum pause after a request that was not served. Without it, a client with no think time would
/// ask again forever while time stands still.
const MIN_PAUSE: Duration = Duration::from_millis(1);

impl Simulation<'_> {
    /// Submits a job to the core and gives its client the result.
    pub(super) fn submit(&mut self, job: Job<Work>) {
        let (class, flow, work) = (usize::from(job.class.0), job.flow.0, job.payload);
        self.record.classes[class].counts.offered += 1;
        self.record.series.slot().classes[class].offered += 1;
        self.record.flow(flow).offered += 1;
        self.steps += 1;
        let answer = self.core.submit(self.now, job);
        if work.scheduled_visit
            && let Some(load) = self.load_tally(work.origin)
        {
            load.returned += 1;
            load.readmitted += u64::from(answer.is_ok());
        }
        match answer {
            Ok(_) => {
                self.record.classes[class].counts.admitted += 1;
                self.record.flow(flow).admitted += 1;
            }
            Err(refused) => {
                self.record.classes[class].refused[refused.reason as usize] += 1;
                self.record.flow(flow).refused += 1;
                self.record.drop(refused.reason as usize);
                let lasting = matches!(
                    refused.reason,
                    Reason::TooLarge | Reason::NoTarget | Reason::UnknownClass
                );
                let after = refused.retry_after;
                self.handle_refusal(refused.job, after, refused.booking, lasting);
            }
        }
    }

    /// Handles a refused submission or a shed job according to the client's behaviour.
    pub(super) fn handle_refusal(
        &mut self,
        mut job: Job<Work>,
        after: Option<Duration>,
        booking: Option<Booking>,
        lasting: bool,
    ) {
        let work = job.payload;
        let Some(request) = self.request(work.origin) else {
            if let Some(walk) = &mut self.walk {
                walk.failed(self.now, work.number, after);
            }
            return;
        };
        let Clients {
            on_refusal,
            tries,
            jitter,
            round_trip,
        } = request.clients;
        let hint = match on_refusal {
            _ if lasting || work.visits >= tries => None,
            OnRefusal::GiveUp => None,
            OnRefusal::RetryNow => Some(Duration::ZERO),
            OnRefusal::Obey => after,
        };
        let Some(hint) = hint else {
            if let Some(load) = self.load_tally(work.origin) {
                load.given_up += 1;
            }
            self.answer_client(work, MIN_PAUSE);
            return;
        };
        let late = hint.mul_f64(jitter * self.rng.unit());
        let obeys = on_refusal == OnRefusal::Obey;
        job.payload.visits += 1;
        job.payload.scheduled_visit = obeys;
        job.booking = booking.filter(|_| obeys);
        job.start_at = None;
        job.expire_at = None;
        let slot = self.returning.insert(job);
        let at = self.now + hint + late + round_trip;
        self.event_queue.push(at, SimEvent::Return(slot as u32));
    }

    pub(super) fn resubmit(&mut self, slot: u32) {
        let mut job = self.returning.remove(slot as usize);
        let timeout = self
            .request(job.payload.origin)
            .and_then(|request| request.timeout);
        job.expire_at = timeout.map(|timeout| self.now + timeout);
        self.submit(job);
    }

    /// Ends a job, successfully or not.
    pub(super) fn end(&mut self, work: Work, done: bool) {
        if work.origin == WALK {
            if let Some(walk) = &mut self.walk {
                match done {
                    true => walk.done(self.now, work.number),
                    false => walk.failed(self.now, work.number, None),
                }
            }
            return;
        }
        if let Some(load) = self.load_tally(work.origin) {
            load.done += u64::from(done);
        }
        self.answer_client(work, if done { Duration::ZERO } else { MIN_PAUSE });
    }

    /// Completes a request of a closed load: its client thinks and asks again, not before `pause`.
    pub(super) fn answer_client(&mut self, work: Work, pause: Duration) {
        let Some(source) = self.sources.get_mut(work.origin as usize) else {
            return;
        };
        if let Some((at, number)) = source.answered(work.number, self.now) {
            let at = at.max(self.now + pause);
            self.event_queue
                .push(at, SimEvent::Arrival(work.origin, number));
        }
    }
}
