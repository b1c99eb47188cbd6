//! The auditor's model of a gate, written from the specification without sharing code with the
//! core.

use headworks_core::{Cost, Limits, Rate, Time};
use std::time::Duration;

/// Tolerance between a bucket in floating point and an exact one.
const SLACK: f64 = 1e-11;

#[derive(Clone, Debug)]
pub(super) struct Meter {
    pub(super) limits: Limits,
    pub(super) running: u32,
    requests: Level,
    cost: Level,
}

/// The limit that keeps a meter shut.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Block {
    Concurrent,
    Requests,
    Cost,
}

#[derive(Clone, Copy, Debug)]
struct Level {
    amount: f64,
    at: Time,
}

impl Level {
    fn full(rate: Option<Rate>, at: Time) -> Self {
        Level {
            amount: rate.map_or(0.0, |rate| rate.burst().0 as f64),
            at,
        }
    }

    fn at(self, rate: Rate, now: Time) -> f64 {
        let grown = self.amount + now.since(self.at).as_secs_f64() * rate.as_per_second();
        grown.min(rate.burst().0 as f64)
    }

    fn add(&mut self, rate: Rate, now: Time, amount: f64) {
        self.amount = (self.at(rate, now) + amount).min(rate.burst().0 as f64);
        self.at = self.at.max(now);
    }
}

impl Meter {
    pub(super) fn new(limits: Limits, now: Time) -> Self {
        Meter {
            limits,
            running: 0,
            requests: Level::full(limits.requests, now),
            cost: Level::full(limits.cost, now),
        }
    }

    pub(super) fn reconfigure(&mut self, limits: Limits, now: Time) {
        let carry = |level: Level, old: Option<Rate>, new: Option<Rate>| match (old, new) {
            (Some(old), Some(new)) if level.at(old, now) < old.burst().0 as f64 => Level {
                amount: level.at(old, now).min(new.burst().0 as f64),
                at: now,
            },
            (_, new) => Level::full(new, now),
        };
        self.requests = carry(self.requests, self.limits.requests, limits.requests);
        self.cost = carry(self.cost, self.limits.cost, limits.cost);
        self.limits = limits;
    }

    /// The limit that stops a job of that cost, if any.
    pub(super) fn block(&self, now: Time, cost: Cost) -> Option<Block> {
        if self
            .limits
            .concurrent
            .is_some_and(|max| self.running >= max)
        {
            return Some(Block::Concurrent);
        }
        if self
            .limits
            .requests
            .is_some_and(|rate| self.requests.at(rate, now) < 1.0 - SLACK)
        {
            return Some(Block::Requests);
        }
        self.is_short(now, cost).then_some(Block::Cost)
    }

    pub(super) fn is_short(&self, now: Time, cost: Cost) -> bool {
        self.limits.cost.is_some_and(|rate| {
            let needed = cost.0.min(rate.burst().0) as f64;
            self.cost.at(rate, now) < needed - SLACK * needed.max(1.0)
        })
    }

    pub(super) fn enter(&mut self, now: Time, cost: Cost) {
        self.running += 1;
        self.add_requests(now, -1.0);
        self.add_cost(now, -(cost.0 as f64));
    }

    pub(super) fn add_requests(&mut self, now: Time, amount: f64) {
        if let Some(rate) = self.limits.requests {
            self.requests.add(rate, now, amount);
        }
    }

    /// The minimum time until one more job can be granted.
    pub(super) fn least_wait(&self, now: Time) -> Duration {
        let wait = |rate: Rate| (1.0 - self.requests.at(rate, now)) / rate.as_per_second();
        let wait = self.limits.requests.map_or(0.0, wait).max(0.0);
        Duration::from_secs_f64(wait)
    }

    pub(super) fn add_cost(&mut self, now: Time, amount: f64) {
        if let Some(rate) = self.limits.cost {
            self.cost.add(rate, now, amount);
        }
    }

    pub(super) fn fits(&self, cost: Cost) -> bool {
        self.limits.max_cost.is_none_or(|max| cost <= max)
    }
}
