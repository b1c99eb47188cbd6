//! The auditor's model of a gate, written from the specification without sharing code with the
//! core.

use super::window::Window;
use headworks_core::{Cost, LONGEST, Limits, Rate, Time};
use std::time::Duration;

/// Tolerance between a bucket in floating point and an exact one.
const SLACK: f64 = 1e-11;

#[derive(Clone, Debug)]
pub(super) struct Meter {
    pub(super) limits: Limits,
    pub(super) running: u32,
    requests: Level,
    cost: Level,
    windows: [Window; 2],
}

/// The burst, which may be a fraction.
fn burst(rate: Rate) -> f64 {
    rate.burst_in_micros() as f64 / 1e6
}

/// The limit that keeps a meter shut.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Block {
    /// A share of 0.
    Share,
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
    /// The level of a new bucket: full, or empty if it is for a share.
    fn new(rate: Option<Rate>, at: Time) -> Self {
        let configured = rate.filter(|rate| !rate.is_share());
        Level {
            amount: configured.map_or(0.0, burst),
            at,
        }
    }

    fn at(self, rate: Rate, now: Time) -> f64 {
        let grown = self.amount + now.since(self.at).as_secs_f64() * rate.as_per_second();
        grown.min(burst(rate))
    }

    fn add(&mut self, rate: Rate, now: Time, amount: f64) {
        self.amount = (self.at(rate, now) + amount).min(burst(rate));
        self.at = self.at.max(now);
    }
}

impl Meter {
    pub(super) fn new(limits: Limits, now: Time) -> Self {
        Meter {
            limits,
            running: 0,
            requests: Level::new(limits.requests, now),
            cost: Level::new(limits.cost, now),
            windows: [limits.requests, limits.cost].map(|rate| Window::new(rate, now)),
        }
    }

    pub(super) fn reconfigure(&mut self, limits: Limits, now: Time) {
        if self.limits == limits {
            return;
        }
        let carry = |level: Level, old: Option<Rate>, new: Option<Rate>| match (old, new) {
            // A bucket that was not full keeps its level; so does any bucket whose new rate is a
            // share.
            (Some(old), Some(new)) if new.is_share() || level.at(old, now) < burst(old) => Level {
                amount: level.at(old, now).min(burst(new)),
                at: now,
            },
            (_, new) => Level::new(new, now),
        };
        for (window, rate) in self.windows.iter_mut().zip([limits.requests, limits.cost]) {
            window.set_rate(now, rate);
        }
        self.requests = carry(self.requests, self.limits.requests, limits.requests);
        self.cost = carry(self.cost, self.limits.cost, limits.cost);
        self.limits = limits;
    }

    /// The limit that stops a job of that cost, if any.
    pub(super) fn block(&self, now: Time, cost: Cost) -> Option<Block> {
        let mut rates = [self.limits.requests, self.limits.cost]
            .into_iter()
            .flatten();
        if self.limits.concurrent == Some(0) || rates.any(|rate| rate.micros_per_second() == 0) {
            return Some(Block::Share);
        }
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
            .is_some_and(|rate| self.requests.at(rate, now) < burst(rate).min(1.0) - SLACK)
        {
            return Some(Block::Requests);
        }
        self.is_short(now, cost).then_some(Block::Cost)
    }

    pub(super) fn is_short(&self, now: Time, cost: Cost) -> bool {
        self.limits.cost.is_some_and(|rate| {
            // A job beyond the burst goes when the bucket is full, and leaves debt.
            let needed = (cost.0 as f64).min(burst(rate));
            self.cost.at(rate, now) < needed - SLACK * needed.max(1.0)
        })
    }

    pub(super) fn enter(&mut self, now: Time, cost: Cost) {
        self.running += 1;
        self.add_requests(now, -1.0);
        self.add_cost(now, -(cost.0 as f64));
        let [requests, costs] = &mut self.windows;
        requests.charge(now, 1.0);
        costs.charge(now, cost.0 as f64);
    }

    /// Returns a charge, in part or whole.
    pub(super) fn refund(&mut self, now: Time, requests: f64, cost: f64) {
        self.add_requests(now, requests);
        self.add_cost(now, cost);
        let refunds = self.limits.cost.is_none_or(Rate::refunds) || requests > 0.0;
        let [of_requests, of_cost] = &mut self.windows;
        of_requests.refund(now, requests);
        of_cost.refund(now, if refunds { cost } else { 0.0 });
    }

    /// Whether it is as a new one would be.
    pub(super) fn is_full(&self, now: Time) -> bool {
        let full = |level: Level, rate: Option<Rate>| {
            rate.is_none_or(|rate| level.at(rate, now) >= burst(rate) * (1.0 - SLACK))
        };
        let (requests, cost) = (self.limits.requests, self.limits.cost);
        self.running == 0 && full(self.requests, requests) && full(self.cost, cost)
    }

    /// The window in which more was charged than burst and rates allow, in words.
    pub(super) fn exceeded(&self) -> Option<String> {
        self.windows.iter().find_map(Window::exceeded)
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
        Duration::try_from_secs_f64(wait)
            .unwrap_or(LONGEST)
            .min(LONGEST)
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
