//! When a rejected client should retry, where the scheduler does not know.
//!
//! The scheduler books places once it has learned how fast its queue moves. Before that, and for
//! requests that waited in vain, the time is estimated here: from the time that responses take, the
//! slots and the rates, of all tenants and of the tenant itself. Before the first response, a usual
//! speed of generation is assumed. Clients that are rejected one after the other get later and
//! later times, because each takes a place; those of other tenants count up to their share.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use headworks_core::{Cost, Flow, LONGEST, Limits, Rate, Time};
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
/// Most promises to a tenant that are remembered.
const CAPACITY: usize = 1_000;
/// Multiples of it are spread evenly between whole numbers.
const GOLDEN_RATIO: f64 = 0.618_033_988_75;
/// Shortest hint.
const SHORTEST: Duration = Duration::from_millis(100);
/// The state of the scheduler when a request is rejected or queued.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    pub(crate) now: Time,
    /// Requests at upstreams, and how long they have been there.
    pub(crate) running: u64,
    pub(crate) ages: Ages,
    /// Expected output tokens of the request, and its whole cost.
    pub(crate) output: u64,
    pub(crate) cost: Cost,
    pub(crate) limits: Limits,
    /// The part of the request's tenant.
    pub(crate) tenant: TenantLoad,
}

/// The part of one tenant in the load, and its own limits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TenantLoad {
    pub(crate) flow: Flow,
    pub(crate) weight: u32,
    pub(crate) waiting: u64,
    pub(crate) running: u64,
    pub(crate) ages: Ages,
    pub(crate) limits: Limits,
}

/// How long requests have been running.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Ages {
    pub(crate) oldest: Duration,
    /// Nothing was granted for at least this long.
    pub(crate) youngest: Option<Duration>,
}

impl Ages {
    pub(crate) fn add(&mut self, age: Duration) {
        self.oldest = self.oldest.max(age);
        self.youngest = Some(self.youngest.map_or(age, |youngest| youngest.min(age)));
    }
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
    tenants: BTreeMap<Flow, TenantHints>,
}

#[derive(Debug, Default)]
struct TenantHints {
    weight: u32,
    /// Mean time of a response, in seconds.
    service: Option<f64>,
    /// When rejected clients were told to retry, as far as that is not over, in order.
    promised: VecDeque<Time>,
}

fn add_to_mean(mean: &mut Option<f64>, took: f64) {
    let before = mean.unwrap_or(took);
    *mean = Some(before + (took - before) * SMOOTHING);
}

impl State {
    /// Time that a slot is held, by the mean of those that were. If all of them have been held for
    /// longer than that, they are expected to be held as long again.
    fn service(mean: Option<f64>, load: &Load, ages: &Ages) -> f64 {
        let assumed = load.output as f64 / ASSUMED_SPEED;
        let assumed = assumed.max(SHORTEST_ASSUMED.as_secs_f64());
        // Without a response so far, the next one takes as long again as the oldest has taken.
        let waited = 2.0 * ages.oldest.as_secs_f64();
        let stalled = ages.youngest.unwrap_or_default().as_secs_f64();
        mean.unwrap_or(assumed.max(waited)).max(stalled)
    }

    /// Time in which `places` requests are granted, the last of them one of the load's tenant.
    fn granted_in(&self, load: &Load, places: u64) -> Duration {
        let slots = load.running.max(1);
        let service = State::service(self.service, load, &load.ages);
        let everything = limited_to(&load.limits, slots, service, load.cost, places);
        let tenant = &load.tenant;
        let slots = tenant.limits.concurrent.map(u64::from);
        // Without a limit of its own, the slots of a tenant are not what it waits for.
        let is_at_limit = slots.is_some_and(|slots| tenant.running >= slots);
        let own = self.tenants.get(&tenant.flow).and_then(|own| own.service);
        let service = match is_at_limit {
            true => State::service(own.or(self.service), load, &tenant.ages),
            false => 0.0,
        };
        let places = (tenant.waiting + 1).min(places);
        let slots = slots.unwrap_or(1).max(1);
        let own = limited_to(&tenant.limits, slots, service, load.cost, places);
        let time = everything.max(own) * (1.0 + MARGIN);
        let time = Duration::try_from_secs_f64(time).unwrap_or(LONGEST);
        time.clamp(SHORTEST, LONGEST)
    }

    /// Those who were told to come back until `time` and have a place before the load's tenant: of
    /// another tenant as many as it gets while this one gets its share.
    fn promised_until(&self, time: Time, tenant: &TenantLoad) -> usize {
        let until = |hints: &TenantHints| hints.promised.partition_point(|due| *due <= time);
        let own = self.tenants.get(&tenant.flow).map_or(0, until);
        let others = self
            .tenants
            .iter()
            .filter(|(flow, _)| **flow != tenant.flow);
        let others = others.map(|(_, hints)| {
            let share = (own as u64 + 1).saturating_mul(hints.weight.into());
            let share = share / u64::from(tenant.weight.max(1));
            until(hints).min(usize::try_from(share).unwrap_or(usize::MAX))
        });
        own + others.sum::<usize>()
    }

    fn drop_past(&mut self, now: Time) {
        for hints in self.tenants.values_mut() {
            while hints.promised.front().is_some_and(|due| *due <= now) {
                hints.promised.pop_front();
            }
        }
    }
}

/// The seconds that the tightest of the limits needs to grant `places` requests of `cost` tokens
/// each, if `slots` of them run at once and a response takes `service` seconds.
fn limited_to(limits: &Limits, slots: u64, service: f64, cost: Cost, places: u64) -> f64 {
    let places = places as f64;
    // Requests that began together end together, so a part of a round counts as a whole one.
    let by_slots = service * (places / slots as f64).ceil();
    let rate = |rate: Option<Rate>, each: f64| {
        rate.map_or(0.0, |rate| places * each / rate.as_per_second())
    };
    let by_requests = rate(limits.requests, 1.0);
    let by_tokens = rate(limits.cost, cost.0 as f64);
    by_slots.max(by_requests).max(by_tokens)
}

impl RetryHints {
    /// Records how long a complete response of a tenant took.
    pub(crate) fn served(&self, flow: Flow, took: Duration) {
        let took = took.as_secs_f64();
        let mut state = self.state.lock();
        state.served += 1;
        add_to_mean(&mut state.service, took);
        add_to_mean(&mut state.tenants.entry(flow).or_default().service, took);
    }

    /// Time until a request is granted that has `places` requests before it, itself among them.
    pub(crate) fn grant_in(&self, load: &Load, places: u64) -> Duration {
        self.state.lock().granted_in(load, places)
    }

    /// When a rejected client should retry. `told` is what the scheduler says.
    pub(crate) fn after(
        &self,
        rejection: Rejection,
        told: Option<Duration>,
        load: &Load,
    ) -> Duration {
        match rejection {
            Rejection::Full { booked } => {
                let told = told.unwrap_or_default();
                // The scheduler's first intervals are few and uneven. Until the slots have been
                // freed several times, the mean time of a response says more.
                let is_learned = self.state.lock().served >= ROUNDS * load.running.max(1);
                match booked && is_learned {
                    true => told,
                    false => self.place_in(load).max(told),
                }
            }
            // The queue moves too slowly for this request: earlier than that, nothing has changed.
            Rejection::Unreachable { ahead, patience } => {
                let granted = self.grant_in(load, ahead + 1);
                let too_late = granted.saturating_sub(patience);
                told.unwrap_or_default().max(too_late).max(SHORTEST)
            }
            Rejection::Expired { ahead } => self.grant_in(load, ahead + 1),
        }
    }

    /// Time until a place is free in a queue that is full, behind those who were told to come back
    /// for one.
    fn place_in(&self, load: &Load) -> Duration {
        let mut state = self.state.lock();
        state.drop_past(load.now);
        // Those who come back earlier take a place each.
        let mut before = 0;
        let mut time = loop {
            let time = state.granted_in(load, before as u64 + 1);
            let earlier = state.promised_until(load.now + time, &load.tenant);
            if earlier <= before {
                break time;
            }
            before = earlier;
        };
        let own = state.tenants.entry(load.tenant.flow).or_default();
        own.weight = load.tenant.weight;
        // Nobody is told a longer time than SDKs obey. Those who would be are spread, so that they
        // do not come back all at once.
        if time >= LONGEST {
            let part = (own.promised.len() as f64 * GOLDEN_RATIO).fract();
            time = LONGEST.mul_f64((1.0 + part) / 2.0);
        }
        let due = load.now + time;
        if own.promised.len() < CAPACITY {
            let index = own.promised.partition_point(|promised| *promised <= due);
            own.promised.insert(index, due);
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
                        hints.served(Flow(0), now.since(*began));
                        let outcome = Outcome::Done { cost: None };
                        core.finish(now, lease.take().unwrap(), outcome, Verdict::Fine);
                    }
                    Moment::Visit { returns, booking } => {
                        let job = Job::new(()).cost(Cost(output + 10));
                        let submitted = core.submit(now, job.booking(booking.map(Booking)));
                        returned += usize::from(returns);
                        found += usize::from(returns && submitted.is_ok());
                        if let Err(refused) = submitted {
                            let mut ages = Ages::default();
                            for (at, _) in leases.iter().filter(|(_, lease)| lease.is_some()) {
                                ages.add(now.since(*at));
                            }
                            let load = Load {
                                now,
                                running: core.running(),
                                ages,
                                output,
                                cost: Cost(output + 10),
                                limits,
                                tenant: tenant(0),
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

    /// A tenant without limits of its own.
    fn tenant(flow: u64) -> TenantLoad {
        TenantLoad {
            flow: Flow(flow),
            weight: 1,
            waiting: 0,
            running: 0,
            ages: Ages::default(),
            limits: Limits::default(),
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
        let mut ages = Ages::default();
        ages.add(Duration::from_secs(3));
        ages.add(Duration::from_millis(500));
        let load = Load {
            now: Time::from_secs(60),
            running: 4,
            ages,
            output: 100,
            cost: Cost(110),
            limits: Limits::default(),
            tenant: tenant(0),
        };
        let hints = RetryHints::default();
        let expired = |ahead| hints.after(Rejection::Expired { ahead }, None, &load);
        // Nothing has ended: what runs for three seconds takes three more. Two rounds of four.
        assert_eq!(expired(7), Duration::from_secs_f64(2.0 * 6.0 * 1.25));
        hints.served(Flow(0), Duration::from_secs(1));
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

    #[test]
    fn promises_to_one_tenant_hardly_delay_another() {
        let load = |flow| Load {
            now: Time::from_secs(60),
            running: 4,
            ages: Ages::default(),
            output: 100,
            cost: Cost(110),
            limits: Limits::default(),
            tenant: tenant(flow),
        };
        let hints = RetryHints::default();
        hints.served(Flow(0), Duration::from_secs(1));
        let told = |flow| {
            let full = Rejection::Full { booked: false };
            hints.after(full, None, &load(flow))
        };
        let flood: Vec<Duration> = (0..5_000).map(|_| told(1)).collect();
        assert!(flood[4_999] > Duration::from_secs(60), "{:?}", flood[4_999]);
        assert!(told(2) <= flood[0] * 2, "{:?}, not {:?}", told(2), flood[0]);
    }

    #[test]
    fn a_tenant_waits_for_its_own_slots() {
        let mut own = tenant(1);
        (own.limits.concurrent, own.running, own.waiting) = (Some(1), 1, 2);
        own.ages.add(Duration::from_secs(7));
        let mut ages = own.ages;
        ages.add(Duration::ZERO);
        let load = Load {
            now: Time::from_secs(60),
            running: 20,
            ages,
            output: 100,
            cost: Cost(110),
            limits: Limits::default(),
            tenant: own,
        };
        let hints = RetryHints::default();
        hints.served(Flow(0), Duration::from_millis(80));
        let after = |load: &Load| hints.after(Rejection::Expired { ahead: 2 }, None, load);
        assert_eq!(after(&load), Duration::from_secs_f64(3.0 * 7.0 * 1.25));
        let other = Load {
            tenant: tenant(2),
            ..load
        };
        assert_eq!(after(&other), SHORTEST, "others do not wait for them");
    }
}
