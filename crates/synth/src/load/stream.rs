//! One run of a load.

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
    /// When it comes, from the start of the run.
    pub at: Duration,
    /// Its number in the run, from 0: what [`Stream::answered`] and seeds of its own go by.
    pub number: u64,
}

/// One run of [`Arrivals`]: an iterator over requests in the order of their times.
///
/// Open loads never end. A closed one gives `None` while every client waits for its answer.
#[derive(Clone, Debug)]
pub struct Stream {
    arrivals: Arrivals,
    valid: bool,
    seed: u64,
    rng: Rng,
    sent: u64,
    /// Seconds for which a random load has been on.
    on: f64,
    /// When clients that have been answered ask again.
    asking: BinaryHeap<Reverse<Duration>>,
}

impl Stream {
    pub(super) fn new(arrivals: Arrivals, seed: u64) -> Self {
        let mut stream = Stream {
            valid: arrivals.check().is_ok(),
            seed,
            rng: Rng::new(seed),
            sent: 0,
            on: 0.0,
            asking: BinaryHeap::new(),
            arrivals,
        };
        if let Arrivals::Closed { clients, think } = stream.arrivals {
            // Thinking first, so that they do not all come at once.
            for client in 0..u64::from(clients) {
                let at = stream.thought(!client, think);
                stream.asking.push(Reverse(at));
            }
        }
        stream
    }

    /// When the next request comes, without taking it. Of a closed load: as far as answers are
    /// known.
    #[must_use]
    pub fn peek(&self) -> Option<Arrival> {
        self.clone_light().next()
    }

    /// Tells a closed load that request `number` was answered, or given up, at `at`. Its client
    /// asks again after a thought whose length belongs to that number, in whatever order answers
    /// come.
    pub fn answered(&mut self, number: u64, at: Duration) {
        if let Arrivals::Closed { think, .. } = self.arrivals {
            let thought = self.thought(number, think);
            self.asking.push(Reverse(at.saturating_add(thought)));
        }
    }

    /// A copy that is good for one step: the heap can be large, and only its top matters.
    fn clone_light(&self) -> Stream {
        Stream {
            arrivals: self.arrivals.clone(),
            rng: self.rng.clone(),
            asking: self.asking.peek().copied().into_iter().collect(),
            ..*self
        }
    }

    fn thought(&self, number: u64, think: Duration) -> Duration {
        let thought = -crate::math::ln(1.0 - unit(mix(self.seed, number)));
        seconds(thought * think.as_secs_f64())
    }

    fn time(&mut self) -> Option<Duration> {
        match self.arrivals {
            // By multiplication, not by adding up: no error grows with the run.
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
            Arrivals::Closed { .. } => self.asking.pop().map(|Reverse(at)| at),
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
