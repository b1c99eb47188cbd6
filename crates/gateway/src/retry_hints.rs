//! When a rejected client should retry, where the scheduler does not know.
//!
//! The scheduler books places once it has learned how fast its queue moves. Before that, and for
//! requests that waited in vain, the time is estimated here: from the time that responses take, the
//! slots and the rates. Before the first response, a usual speed of generation is assumed. Clients
//! that are rejected one after the other get later and later times, because each takes a place.

use std::collections::VecDeque;
use std::time::Duration;

use headworks_core::{Cost, Limits, Rate, Time};
use parking_lot::Mutex;

/// Output tokens per second that are assumed before the first response.
const ASSUMED_SPEED: f64 = 50.0;
/// Shortest time of a response that is assumed.
const SHORTEST_ASSUMED: Duration = Duration::from_secs(1);
/// Weight of one response in the mean.
const SMOOTHING: f64 = 1.0 / 16.0;
/// Part that is added to an estimate, so that the place is free before the client is there.
const MARGIN: f64 = 0.25;
/// How often every slot has to be freed before the scheduler's own times count.
const ROUNDS: u64 = 4;
/// Most promises that are remembered.
const CAPACITY: usize = 10_000;
/// Multiples of it are spread evenly between whole numbers.
const GOLDEN_RATIO: f64 = 0.618_033_988_75;
/// Bounds of the hints.
const SHORTEST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(120);

/// The state of the scheduler when a request is rejected.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load<'a> {
    pub(crate) now: Time,
    /// Requests at upstreams.
    pub(crate) running: u64,
    /// How long the oldest of them has been running.
    pub(crate) oldest: Duration,
    /// Expected output tokens of the rejected request, and its whole cost.
    pub(crate) output: u64,
    pub(crate) cost: Cost,
    pub(crate) limits: &'a Limits,
}

/// Why a request was rejected.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Rejection {
    /// The queue is full. The scheduler may have booked a place in it.
    Full { booked: bool },
    /// With that many before it, the request would wait longer than its client's patience.
    Unreachable { ahead: u64, patience: Duration },
    /// The request waited in vain, and that many wait now.
    Expired { ahead: u64 },
}

/// Estimates of when a retry helps.
#[derive(Debug, Default)]
pub(crate) struct RetryHints {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Number of complete responses.
    served: u64,
    /// Mean time of a response, in seconds.
    service: Option<f64>,
    /// When rejected clients were told to retry, as far as that is not over, in order.
    promised: VecDeque<Time>,
}

impl State {
    /// Time that a slot is held.
    fn service(&self, load: &Load<'_>) -> f64 {
        let assumed = load.output as f64 / ASSUMED_SPEED;
        let assumed = assumed.max(SHORTEST_ASSUMED.as_secs_f64());
        // Without a response so far, the next one takes as long again as the oldest has taken.
        let waited = 2.0 * load.oldest.as_secs_f64();
        self.service.unwrap_or(assumed.max(waited))
    }

    /// Time in which `places` requests are granted.
    fn granted_in(&self, load: &Load<'_>, places: u64) -> Duration {
        let (places, running) = (places as f64, load.running.max(1) as f64);
        // Requests that began together end together, so a part of a round counts as a whole one.
        let by_slots = self.service(load) * (places / running).ceil();
        let rate = |rate: Option<Rate>, each: f64| {
            rate.map_or(0.0, |rate| places * each / rate.as_per_second())
        };
        let by_requests = rate(load.limits.requests, 1.0);
        let by_tokens = rate(load.limits.cost, load.cost.0 as f64);
        let time = by_slots.max(by_requests).max(by_tokens) * (1.0 + MARGIN);
        let time = Duration::try_from_secs_f64(time).unwrap_or(LONGEST);
        time.clamp(SHORTEST, LONGEST)
    }
}

impl RetryHints {
    /// Records how long a complete response took.
    pub(crate) fn served(&self, took: Duration) {
        let took = took.as_secs_f64();
        let mut state = self.state.lock();
        let mean = state.service.unwrap_or(took);
        state.served += 1;
        state.service = Some(mean + (took - mean) * SMOOTHING);
    }

    /// When a rejected client should retry. `told` is what the scheduler says.
    pub(crate) fn after(
        &self,
        rejection: Rejection,
        told: Option<Duration>,
        load: &Load<'_>,
    ) -> Duration {
        match rejection {
            Rejection::Full { booked } => {
                let told = told.unwrap_or_default();
                // Responses that began together end together. Until the slots have been freed
                // several times, the scheduler takes that for its speed.
                let is_learned = self.state.lock().served >= ROUNDS * load.running.max(1);
                match booked && is_learned {
                    true => told,
                    false => self.place_in(load).max(told),
                }
            }
            // The queue moves too slowly for this request: earlier than that, nothing has changed.
            Rejection::Unreachable { ahead, patience } => {
                let granted = self.state.lock().granted_in(load, ahead + 1);
                let too_late = granted.saturating_sub(patience);
                told.unwrap_or_default().max(too_late).max(SHORTEST)
            }
            Rejection::Expired { ahead } => self.state.lock().granted_in(load, ahead + 1),
        }
    }

    /// Time until a place is free in a queue that is full, behind those who were told to come back
    /// for one.
    fn place_in(&self, load: &Load<'_>) -> Duration {
        let mut state = self.state.lock();
        while state.promised.front().is_some_and(|due| *due <= load.now) {
            state.promised.pop_front();
        }
        // Those who come back earlier take a place each.
        let mut before = 0;
        let mut time = loop {
            let time = state.granted_in(load, before as u64 + 1);
            let earlier = |promised: &Time| *promised <= load.now + time;
            let earlier = state.promised.partition_point(earlier);
            if earlier <= before {
                break time;
            }
            before = earlier;
        };
        // Nobody is told a longer time than SDKs obey. Those who would be are spread, so that they
        // do not come back all at once.
        if time >= LONGEST {
            let part = (state.promised.len() as f64 * GOLDEN_RATIO).fract();
            time = LONGEST.mul_f64((1.0 + part) / 2.0);
        }
        let due = load.now + time;
        if state.promised.len() < CAPACITY {
            let index = state.promised.partition_point(|promised| *promised <= due);
            state.promised.insert(index, due);
        }
        time
    }
}

#[cfg(test)]
mod tests {
    use std::cmp::Reverse;
    use std::collections::BinaryHeap;

    use headworks_core::{Booking, Bound, ClassConfig, Config, Core, Job, Lease, Outcome, Verdict};

    use super::*;

    const SLOTS: u32 = 4;
    const PLACES: usize = 20;

    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    enum Moment {
        End(usize),
        /// A client comes, or comes back as it was told.
        Visit {
            returns: bool,
            booking: Option<u64>,
        },
    }

    /// A gateway in virtual time, right after its start. `count` clients come at once and return
    /// when they are told. Returns how many visits were returns, and how many of those found a
    /// place.
    fn visits(count: usize, service: Duration, limits: Limits, output: u64) -> (usize, usize) {
        let config = Config {
            classes: ClassConfig::halving(1),
            bound: Bound::PerClass(PLACES),
            limits,
            ..Config::default()
        };
        let mut core: Core<()> = Core::new(config, Time::ZERO).unwrap();
        let hints = RetryHints::default();
        let mut moments = BinaryHeap::new();
        for number in 0..count {
            // A burst takes a moment to arrive.
            let at = Time::from_millis(number as u64 / 4);
            let visit = Moment::Visit {
                returns: false,
                booking: None,
            };
            moments.push(Reverse((at, visit)));
        }
        let mut leases: Vec<(Time, Option<Lease<()>>)> = Vec::new();
        let (mut returned, mut found) = (0, 0);
        loop {
            let next = moments.peek().map(|Reverse((at, _))| *at);
            let Some(now) = next.into_iter().chain(core.wake_at()).min() else {
                return (returned, found);
            };
            core.advance(now);
            if next == Some(now) {
                let Reverse((_, moment)) = moments.pop().unwrap();
                match moment {
                    Moment::End(number) => {
                        let (began, lease) = &mut leases[number];
                        hints.served(now.since(*began));
                        let outcome = Outcome::Done { cost: None };
                        core.finish(now, lease.take().unwrap(), outcome, Verdict::Fine);
                    }
                    Moment::Visit { returns, booking } => {
                        let job = Job::new(()).cost(Cost(output + 10));
                        let submitted = core.submit(now, job.booking(booking.map(Booking)));
                        returned += usize::from(returns);
                        found += usize::from(returns && submitted.is_ok());
                        if let Err(refused) = submitted {
                            let oldest = leases.iter().filter(|(_, lease)| lease.is_some());
                            let load = Load {
                                now,
                                running: core.running(),
                                oldest: oldest
                                    .map(|(at, _)| now.since(*at))
                                    .max()
                                    .unwrap_or_default(),
                                output,
                                cost: Cost(output + 10),
                                limits: &limits,
                            };
                            let booked = refused.booking.is_some();
                            let rejection = Rejection::Full { booked };
                            let after = hints.after(rejection, refused.retry_after, &load);
                            let visit = Moment::Visit {
                                returns: true,
                                booking: refused.booking.map(|booking| booking.0),
                            };
                            moments.push(Reverse((now + after, visit)));
                        }
                    }
                }
            }
            while let Some(lease) = core.next(now) {
                moments.push(Reverse((now + service, Moment::End(leases.len()))));
                leases.push((now, Some(lease)));
            }
        }
    }

    #[test]
    fn right_after_a_start_nine_in_ten_retries_are_admitted() {
        let slots = Limits {
            concurrent: Some(SLOTS),
            ..Limits::default()
        };
        let requests = Limits {
            requests: Some(Rate::per_second(2.0)),
            ..Limits::default()
        };
        let tokens = Limits {
            cost: Some(Rate::per_second(100.0)),
            ..Limits::default()
        };
        for (limits, service, output) in [
            (slots, 20, 10),
            (slots, 1000, 10),
            (slots, 1000, 512),
            (slots, 4_000, 512),
            (slots, 10_000, 512),
            (requests, 1000, 10),
            (tokens, 1000, 10),
            (tokens, 1000, 40),
        ] {
            // A queue that lasts longer than the longest hint cannot keep its promises.
            let most = 100_000 / service as usize * SLOTS as usize;
            for count in [30, 82, 200].into_iter().filter(|count| *count < most) {
                let time = Duration::from_millis(service);
                let (returned, found) = visits(count, time, limits, output);
                assert!(
                    returned > 0 && found * 10 >= returned * 9,
                    "{found} of {returned}, {count} at once, {service} ms, {output} tokens, {limits:?}"
                );
            }
        }
    }

    #[test]
    fn a_retry_hint_lasts_until_the_queue_is_shorter() {
        let limits = Limits::default();
        let load = Load {
            now: Time::from_secs(60),
            running: 4,
            oldest: Duration::from_secs(3),
            output: 100,
            cost: Cost(110),
            limits: &limits,
        };
        let hints = RetryHints::default();
        let expired = |ahead| hints.after(Rejection::Expired { ahead }, None, &load);
        // Nothing has ended: what runs for three seconds takes three more. Two rounds of four.
        assert_eq!(expired(7), Duration::from_secs_f64(2.0 * 6.0 * 1.25));
        hints.served(Duration::from_secs(1));
        assert_eq!(expired(7), Duration::from_secs_f64(2.0 * 1.25));
        let unreachable = |patience| {
            let patience = Duration::from_secs(patience);
            hints.after(
                Rejection::Unreachable {
                    ahead: 39,
                    patience,
                },
                None,
                &load,
            )
        };
        assert_eq!(unreachable(2), Duration::from_secs_f64(10.0 * 1.25 - 2.0));
        assert_eq!(unreachable(60), SHORTEST);
    }
}
