//! A gate: limits on concurrency, requests per second and cost per second of everything, a flow or
//! a target.
//!
//! A gate is checked before a job is taken. It never decides which job goes next; it says whether
//! one may. It owns the count of running jobs and two buckets. Every job that [enters](Gate::enter)
//! must [leave](Gate::leave) once, with the same cost, or a slot is lost for good.

use crate::bucket::{Rate, TokenBucket};
use crate::config::Limits;
use crate::id::Cost;
use crate::time::Time;

/// Whether a gate would admit a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pass {
    /// It may go.
    Open,
    /// No job may go until that time, or until another one ends.
    Shut(Option<Time>),
    /// Only the cost is missing, and will be there at that time.
    Short(Time),
}

/// The fate of a grant's charge when its job leaves the gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Charge {
    /// It stays: nothing is known about the actual cost.
    Kept,
    /// It is corrected to the actual cost.
    Actual(Cost),
    /// It is returned whole, the request included: the target did nothing.
    Returned,
}

/// The gate. Buckets exist only where there is a rate, because there may be a gate for each of very
/// many flows.
#[derive(Clone, Debug)]
pub(crate) struct Gate {
    running: u32,
    concurrent: Option<u32>,
    max_cost: Option<Cost>,
    requests: Option<Box<TokenBucket>>,
    cost: Option<Box<TokenBucket>>,
}

impl Gate {
    pub(crate) fn new(limits: Limits, now: Time) -> Self {
        let bucket = |rate: Rate| Box::new(TokenBucket::new(rate, now));
        Gate {
            running: 0,
            concurrent: concurrent(&limits),
            max_cost: limits.max_cost,
            requests: limits.requests.map(bucket),
            cost: limits.cost.map(bucket),
        }
    }

    pub(crate) fn reconfigure(&mut self, limits: Limits, now: Time) {
        self.concurrent = concurrent(&limits);
        self.max_cost = limits.max_cost;
        for (bucket, rate) in [
            (&mut self.requests, limits.requests),
            (&mut self.cost, limits.cost),
        ] {
            match (bucket.as_deref_mut(), rate) {
                (Some(bucket), Some(rate)) => bucket.set_rate(now, rate),
                (_, rate) => *bucket = rate.map(|rate| Box::new(TokenBucket::new(rate, now))),
            }
        }
    }

    pub(crate) fn running(&self) -> u32 {
        self.running
    }

    /// Whether any job may go, whatever its cost: never [`Pass::Short`].
    #[inline]
    pub(crate) fn pass_any(&mut self, now: Time) -> Pass {
        if self.concurrent.is_some_and(|most| self.running >= most) {
            return Pass::Shut(None);
        }
        // Concurrency first: it opens with an event and not with time, so no timer has to be set
        // for it.
        let requests = self.requests.as_mut();
        match requests.and_then(|bucket| bucket.ready_at(now, Cost(1))) {
            Some(at) => Pass::Shut(Some(at)),
            None => Pass::Open,
        }
    }

    /// When the cost of a job will be there, if it is not now.
    #[inline]
    pub(crate) fn short_until(&mut self, now: Time, cost: Cost) -> Option<Time> {
        self.cost.as_mut()?.ready_at(now, cost)
    }

    /// Whether there is enough for a job of that cost.
    #[inline]
    pub(crate) fn pass_cost(&mut self, now: Time, cost: Cost) -> Pass {
        self.short_until(now, cost).map_or(Pass::Open, Pass::Short)
    }

    /// Whether a job of that cost may go.
    #[inline(always)]
    pub(crate) fn pass(&mut self, now: Time, cost: Cost) -> Pass {
        match self.pass_any(now) {
            Pass::Open => self.pass_cost(now, cost),
            shut => shut,
        }
    }

    /// Whether a job of that cost could ever go.
    #[inline]
    pub(crate) fn fits(&self, cost: Cost) -> bool {
        self.max_cost.is_none_or(|most| cost <= most)
    }

    /// The earliest time at which that many more jobs can have been granted.
    pub(crate) fn granted_at(&mut self, now: Time, jobs: u64) -> Time {
        let requests = self.requests.as_mut();
        requests.map_or(now, |bucket| bucket.passed_at(now, Cost(jobs)))
    }

    /// Admits a job and charges it.
    #[inline]
    pub(crate) fn enter(&mut self, now: Time, cost: Cost) {
        self.running += 1;
        if let Some(bucket) = &mut self.requests {
            bucket.charge(now, Cost(1));
        }
        if let Some(bucket) = &mut self.cost {
            bucket.charge(now, cost);
        }
    }

    /// A job ended.
    #[inline]
    pub(crate) fn leave(&mut self, now: Time, charged: Cost, charge: Charge) {
        self.running -= 1;
        // Also without refunds: the provider reserved nothing for a job that never reached it.
        if charge == Charge::Returned {
            let requests = self.requests.iter_mut();
            requests.for_each(|bucket| bucket.refund(now, Cost(1)));
        }
        let Some(bucket) = &mut self.cost else { return };
        match charge {
            Charge::Kept => {}
            // An overrun is always charged, as debt if need be; refunds are the provider's choice.
            Charge::Actual(actual) if actual > charged => {
                bucket.charge(now, Cost(actual.0 - charged.0));
            }
            Charge::Actual(actual) if bucket.refunds() => {
                bucket.refund(now, Cost(charged.0 - actual.0));
            }
            Charge::Actual(_) => {}
            Charge::Returned => bucket.refund(now, charged),
        }
    }

    /// Whether it remembers nothing that a new gate would not.
    pub(crate) fn is_fresh(&mut self, now: Time) -> bool {
        let mut buckets = [&mut self.requests, &mut self.cost].into_iter().flatten();
        self.running == 0 && buckets.all(|bucket| bucket.is_full(now))
    }

    /// The levels of its buckets: requests, cost.
    pub(crate) fn levels(&self) -> (Option<f64>, Option<f64>) {
        let level =
            |bucket: &Option<Box<TokenBucket>>| bucket.as_ref().map(|bucket| bucket.level());
        (level(&self.requests), level(&self.cost))
    }
}

/// The jobs that may run at once. A rate of 0 admits none, whatever is left in its bucket: told
/// here, it costs a grant nothing to find out.
fn concurrent(limits: &Limits) -> Option<u32> {
    let mut rates = [limits.requests, limits.cost].into_iter().flatten();
    if rates.any(Rate::is_shut) {
        return Some(0);
    }
    limits.concurrent
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_of_zero_is_shut_whatever_was_left() {
        for shut in [
            Limits {
                concurrent: Some(0),
                ..Limits::default()
            },
            Limits {
                requests: Some(Rate::share(0, 5_000_000)),
                ..Limits::default()
            },
            Limits {
                cost: Some(Rate::share(0, 0)),
                ..Limits::default()
            },
        ] {
            let mut gate = Gate::new(Limits::default(), Time::ZERO);
            gate.reconfigure(shut, Time::ZERO);
            assert_eq!(gate.pass(Time::from_secs(9), Cost(0)), Pass::Shut(None));
            gate.reconfigure(Limits::default(), Time::from_secs(9));
            assert_eq!(gate.pass(Time::from_secs(9), Cost(1)), Pass::Open);
        }
    }

    #[test]
    fn an_unused_grant_is_returned_whole_also_without_refunds() {
        let limits = Limits {
            requests: Some(Rate::per_second(1.0)),
            cost: Some(Rate::per_second(10.0).without_refund()),
            ..Limits::default()
        };
        let mut gate = Gate::new(limits, Time::ZERO);
        gate.enter(Time::ZERO, Cost(10));
        assert_ne!(gate.pass(Time::ZERO, Cost(1)), Pass::Open);
        gate.leave(Time::ZERO, Cost(10), Charge::Returned);
        assert_eq!(gate.pass(Time::ZERO, Cost(10)), Pass::Open);
        gate.enter(Time::ZERO, Cost(10));
        gate.leave(Time::ZERO, Cost(10), Charge::Actual(Cost(1)));
        assert_eq!(gate.levels(), (Some(0.0), Some(0.0)));
    }
}
