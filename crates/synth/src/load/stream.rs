//! One run of an arrival process.

use super::Arrivals;
use crate::Rng;
use crate::rng::{mix, unit};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

/// One request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub struct Arrival {
    /// The arrival time, from the start of the run.
    pub at: Duration,
    /// The number in the run, from 0. It identifies the request in [`Stream::answered`] and can
    /// seed its own random numbers.
    pub number: u64,
}

/// One run of [`Arrivals`]: an iterator over requests in order of arrival.
///
/// Open loads never end. A closed load returns `None` while every client waits for a response.
#[derive(Clone, Debug)]
pub struct Stream {
    arrivals: Arrivals,
    valid: bool,
    seed: u64,
    rng: Rng,
    sent: u64,
    /// Accumulated on time in seconds, for random loads.
    on: f64,
    /// Times at which answered clients ask again.
    returning: BinaryHeap<Reverse<Duration>>,
}

impl Stream {
    pub(super) fn new(arrivals: Arrivals, seed: u64) -> Self {
        let mut stream = Stream {
            valid: arrivals.check().is_ok(),
            seed,
            rng: Rng::new(seed),
            sent: 0,
            on: 0.0,
            returning: BinaryHeap::new(),
            arrivals,
        };
        if let Arrivals::Closed { clients, think } = stream.arrivals {
            // Clients think first, so that they do not all arrive at once.
            for client in 0..u64::from(clients) {
                let at = stream.think_time(!client, think);
                stream.returning.push(Reverse(at));
            }
        }
        stream
    }

    /// The next request, without consuming it. For a closed load, as far as responses are known.
    #[must_use]
    pub fn peek(&self) -> Option<Arrival> {
        self.peek_copy().next()
    }

    /// Reports to a closed load that request `number` was answered or abandoned at `at`. Its client
    /// asks again after a think time that depends only on that number, not on the order of
    /// responses.
    pub fn answered(&mut self, number: u64, at: Duration) {
        if let Arrivals::Closed { think, .. } = self.arrivals {
            let thought = self.think_time(number, think);
            self.returning.push(Reverse(at.saturating_add(thought)));
        }
    }

    /// A copy for a single step: the heap can be large, and only its top matters.
    fn peek_copy(&self) -> Stream {
        Stream {
            arrivals: self.arrivals.clone(),
            rng: self.rng.clone(),
            returning: self.returning.peek().copied().into_iter().collect(),
            ..*self
        }
    }

    fn think_time(&self, number: u64, think: Duration) -> Duration {
        let thought = -crate::math::ln(1.0 - unit(mix(self.seed, number)));
        seconds(thought * think.as_secs_f64())
    }

    fn time(&mut self) -> Option<Duration> {
        match self.arrivals {
            // Multiplied instead of accumulated, so that rounding errors do not grow.
            Arrivals::Constant { rate } => Some(seconds(self.sent as f64 / rate)),
            Arrivals::Poisson { rate } => Some(seconds(self.random(rate))),
            Arrivals::Bursts { size, every } => {
                let burst = self.sent / u64::from(size);
                Some(seconds(every.as_secs_f64() * burst as f64))
            }
            Arrivals::OnOff { rate, on, off } => {
                let time = self.random(rate);
                let pauses = (time / on.as_secs_f64()).floor();
                Some(seconds(time + pauses * off.as_secs_f64()))
            }
            Arrivals::Closed { .. } => self.returning.pop().map(|Reverse(at)| at),
        }
    }

    fn random(&mut self, rate: f64) -> f64 {
        self.on += self.rng.exponential() / rate;
        self.on
    }
}

impl Iterator for Stream {
    type Item = Arrival;

    fn next(&mut self) -> Option<Arrival> {
        if !self.valid {
            return None;
        }
        let at = self.time()?;
        let number = self.sent;
        self.sent += 1;
        Some(Arrival { at, number })
    }
}

fn seconds(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
}
