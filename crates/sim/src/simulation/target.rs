//! Simulated targets: latency, failures and capacity.

use crate::scenario::{OutageKind, SimulatedTarget};
use headworks_core::Time;
use headworks_synth::Rng;
use std::time::Duration;

/// The response of a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Response {
    Done,
    /// A transient failure.
    Fault,
    /// A permanent rejection of the request.
    Rejected,
    /// The target no longer exists.
    Gone,
    /// Too many requests, possibly with a retry time.
    MemoryLimit(Option<Duration>),
}

/// Factor by which a refusal or a failed connection is faster than a response.
const FAST_FAILURE_FACTOR: u32 = 10;

/// A token bucket.
#[derive(Debug)]
struct TokenBucket {
    rate: f64,
    level: f64,
    at: Time,
}

impl TokenBucket {
    fn new(rate: f64) -> Self {
        TokenBucket {
            rate,
            level: rate.max(1.0),
            at: Time::ZERO,
        }
    }

    /// Takes `amount` from the bucket if it is full enough; an amount above its size only needs it
    /// full.
    fn take(&mut self, now: Time, amount: f64) -> bool {
        let filled = self.level + self.rate * now.since(self.at).as_secs_f64();
        self.level = filled.min(self.rate.max(1.0));
        self.at = now;
        if self.level < amount.min(self.rate.max(1.0)) {
            return false;
        }
        self.level -= amount;
        true
    }
}

#[derive(Debug)]
pub(super) struct TargetSim<'a> {
    side: &'a SimulatedTarget,
    rng: Rng,
    running: u32,
    requests: Option<TokenBucket>,
    cost: Option<TokenBucket>,
}

impl<'a> TargetSim<'a> {
    pub(super) fn new(side: &'a SimulatedTarget, rng: Rng) -> Self {
        TargetSim {
            side,
            rng,
            running: 0,
            requests: side.capacity.requests.map(TokenBucket::new),
            cost: side.capacity.cost.map(TokenBucket::new),
        }
    }

    /// The pause of callers if the target gives no retry time.
    pub(super) fn overload_pause(&self) -> Duration {
        self.side.overload_pause
    }

    /// Starts a call; returns its duration and response.
    pub(super) fn call(&mut self, now: Time, cost: u64) -> (Duration, Response) {
        let latency = Duration::from_micros(self.side.latency.sample(&mut self.rng));
        let out = self
            .side
            .outages
            .iter()
            .find(|outage| outage.from <= now && now < outage.until);
        let full = self.is_full(now, cost);
        self.running += 1;
        match out.map(|outage| outage.kind) {
            Some(OutageKind::Refuses) => return (latency / FAST_FAILURE_FACTOR, Response::Fault),
            Some(OutageKind::Silent) => return (self.side.timeout, Response::Fault),
            Some(OutageKind::Overload) => return (latency / FAST_FAILURE_FACTOR, self.too_many()),
            None if full => return (latency / FAST_FAILURE_FACTOR, self.too_many()),
            None => {}
        }
        let work = u32::try_from(cost).unwrap_or(u32::MAX);
        let takes = latency.saturating_add(self.side.latency_per_cost.saturating_mul(work));
        self.sample_response(takes)
    }

    fn too_many(&self) -> Response {
        Response::MemoryLimit(self.side.capacity.retry_after)
    }

    fn is_full(&mut self, now: Time, cost: u64) -> bool {
        let most = self.side.capacity.concurrent;
        if most.is_some_and(|most| self.running >= most) {
            return true;
        }
        let short = |tank: &mut Option<TokenBucket>, amount: f64| {
            tank.as_mut().is_some_and(|tank| !tank.take(now, amount))
        };
        short(&mut self.requests, 1.0) || short(&mut self.cost, cost as f64)
    }

    fn sample_response(&mut self, takes: Duration) -> (Duration, Response) {
        let SimulatedTarget {
            fault,
            rejected,
            silent,
            gone,
            timeout,
            ..
        } = *self.side;
        if fault + rejected + silent + gone <= 0.0 {
            return (takes, Response::Done);
        }
        let mut left = self.rng.unit();
        let mut is = |part: f64| {
            left -= part;
            left < 0.0
        };
        if is(silent) {
            (timeout, Response::Fault)
        } else if is(fault) {
            (takes, Response::Fault)
        } else if is(rejected) {
            (takes, Response::Rejected)
        } else if is(gone) {
            (takes, Response::Gone)
        } else {
            (takes, Response::Done)
        }
    }

    /// Ends a call.
    pub(super) fn leave(&mut self) {
        self.running -= 1;
    }
}
