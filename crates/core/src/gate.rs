//! A gate: concurrency, requests a second and cost a second of everything, of a flow, or of a target.
//!
//! A gate is looked at before a job is taken. It never decides who goes; it says whether one may.

use crate::bucket::{Bucket, Rate};
use crate::config::Limits;
use crate::id::Cost;
use crate::time::Time;
use std::borrow::BorrowMut;

/// Whether a gate would let a job through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pass {
    /// It may go.
    Open,
    /// Nothing may go: until a job ends, or until that time.
    Shut(Option<Time>),
    /// Only the cost is missing, and will be there at that time.
    Short(Time),
}

/// Small, because there may be one for each of very many flows: buckets are elsewhere, and only where there is a rate. `B` is
/// `Bucket` where most gates limit cost, so that it is at hand.
#[derive(Clone, Debug)]
#[repr(C)]
pub(crate) struct Gate<B = Box<Bucket>> {
    running: u32,
    /// The largest number if there is no limit.
    concurrent: u32,
    /// The largest cost if there is no limit.
    max_cost: Cost,
    requests: Option<Box<Bucket>>,
    cost: Option<B>,
}

impl<B: BorrowMut<Bucket> + From<Bucket>> Gate<B> {
    pub(crate) fn new(limits: Limits, now: Time) -> Self {
        let mut gate = Gate {
            running: 0,
            concurrent: u32::MAX,
            max_cost: Cost(u64::MAX),
            requests: None,
            cost: None,
        };
        gate.reconfigure(limits, now);
        gate
    }

    pub(crate) fn reconfigure(&mut self, limits: Limits, now: Time) {
        self.concurrent = limits.concurrent.unwrap_or(u32::MAX);
        self.max_cost = limits.max_cost.unwrap_or(Cost(u64::MAX));
        reconfigure(&mut self.requests, limits.requests, now);
        reconfigure(&mut self.cost, limits.cost, now);
    }

    pub(crate) fn running(&self) -> u32 {
        self.running
    }

    /// Whether any job may go, whatever its cost.
    #[inline]
    pub(crate) fn shut(&mut self, now: Time) -> Option<Pass> {
        if self.running >= self.concurrent {
            return Some(Pass::Shut(None));
        }
        let at = self.requests.as_mut()?.ready_at(now, Cost(1))?;
        Some(Pass::Shut(Some(at)))
    }

    /// When the cost of a job will be there; `None` if it is.
    #[inline]
    pub(crate) fn short(&mut self, now: Time, cost: Cost) -> Option<Time> {
        self.cost.as_mut()?.borrow_mut().ready_at(now, cost)
    }

    #[inline]
    pub(crate) fn pass(&mut self, now: Time, cost: Cost) -> Pass {
        if let Some(shut) = self.shut(now) {
            return shut;
        }
        self.short(now, cost).map_or(Pass::Open, Pass::Short)
    }

    /// Whether a job of that cost could ever go.
    #[inline]
    pub(crate) fn fits(&self, cost: Cost) -> bool {
        cost <= self.max_cost
    }

    /// Lets a job through. `cost` is `None` when it was charged before.
    #[inline]
    pub(crate) fn enter(&mut self, now: Time, cost: Option<Cost>) {
        self.running += 1;
        let Some(cost) = cost else { return };
        if let Some(bucket) = &mut self.requests {
            bucket.charge(now, Cost(1));
        }
        if let Some(bucket) = &mut self.cost {
            bucket.borrow_mut().charge(now, cost);
        }
    }

    /// A job ended. What was charged is corrected by what it drew, if that is known.
    #[inline]
    pub(crate) fn leave(&mut self, now: Time, charged: Cost, actual: Option<Cost>) {
        debug_assert!(self.running > 0, "a gate is left as often as it is entered");
        self.running -= 1;
        let (Some(bucket), Some(actual)) = (&mut self.cost, actual) else {
            return;
        };
        let bucket = bucket.borrow_mut();
        if actual > charged {
            bucket.charge(now, Cost(actual.0 - charged.0));
        } else if bucket.refunds() {
            bucket.refund(now, Cost(charged.0 - actual.0));
        }
    }

    /// Takes a charge back whole, because the job will be charged elsewhere.
    pub(crate) fn refund(&mut self, now: Time, charged: Cost) {
        if let Some(bucket) = &mut self.cost {
            bucket.borrow_mut().refund(now, charged);
        }
    }

    /// Whether it remembers nothing that a new gate would not.
    pub(crate) fn is_fresh(&mut self, now: Time) -> bool {
        let requests = self.requests.as_mut().map(BorrowMut::borrow_mut);
        let cost = self.cost.as_mut().map(BorrowMut::borrow_mut);
        let mut buckets = [requests, cost].into_iter().flatten();
        buckets.all(|bucket: &mut Bucket| bucket.is_full(now))
    }

    /// What is in its buckets: requests, cost.
    pub(crate) fn levels(&self) -> (Option<f64>, Option<f64>) {
        let requests = self.requests.as_ref().map(|bucket| bucket.level());
        let cost = self.cost.as_ref().map(|bucket| bucket.borrow().level());
        (requests, cost)
    }
}

fn reconfigure<B>(bucket: &mut Option<B>, rate: Option<Rate>, now: Time)
where
    B: BorrowMut<Bucket> + From<Bucket>,
{
    match (&mut *bucket, rate) {
        (Some(bucket), Some(rate)) => bucket.borrow_mut().set_rate(now, rate),
        (_, rate) => *bucket = rate.map(|rate| Bucket::new(rate, now).into()),
    }
}
