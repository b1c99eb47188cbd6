//! The auditor's check of what a bucket let through in any window of time.
//!
//! Charges − refunds in a window are at most max(burst, largest job) + ∫ rate dt. That holds across
//! changes of a share, too, as long as the burst does not fall: a share that falls forgives the
//! deficit that it no longer covers, and a job may then follow at once. Across such a fall the
//! bound is the burst at the start of the window + the largest job.

use headworks_core::{Rate, Time};

/// Tolerance for sums in floating point.
const SLACK: f64 = 1e-6;

#[derive(Clone, Debug)]
pub(super) struct Window {
    rate: Option<Rate>,
    at: Time,
    /// Charges − refunds − ∫ rate dt since the start.
    sum: f64,
    /// The least sum since the burst fell last.
    least: f64,
    /// The least of sum + burst.
    least_with_burst: f64,
    largest: f64,
    exceeded: Option<String>,
}

impl Window {
    pub(super) fn new(rate: Option<Rate>, now: Time) -> Self {
        let mut window = Window {
            rate,
            at: now,
            sum: 0.0,
            least: 0.0,
            least_with_burst: 0.0,
            largest: 0.0,
            exceeded: None,
        };
        window.restart();
        window
    }

    fn burst(&self) -> f64 {
        self.rate
            .map_or(0.0, |rate| rate.burst_in_micros() as f64 / 1e6)
    }

    /// Begins anew: what was before does not bound what follows.
    fn restart(&mut self) {
        self.least = self.sum;
        self.least_with_burst = self.sum + self.burst();
    }

    /// Every moment may be the start of a window.
    fn advance(&mut self, now: Time) {
        let rate = self.rate.map_or(0.0, Rate::as_per_second);
        self.sum -= now.since(self.at).as_secs_f64() * rate;
        self.at = self.at.max(now);
        self.least = self.least.min(self.sum);
        self.least_with_burst = self.least_with_burst.min(self.sum + self.burst());
    }

    pub(super) fn set_rate(&mut self, now: Time, rate: Option<Rate>) {
        self.advance(now);
        let (before, had_rate) = (self.burst(), self.rate.is_some());
        self.rate = rate;
        match rate {
            // An operator's new rate may fill the bucket.
            Some(rate) if had_rate && rate.is_share() => {
                if self.burst() < before {
                    self.least = self.sum;
                }
                self.advance(now);
            }
            _ => self.restart(),
        }
    }

    pub(super) fn charge(&mut self, now: Time, amount: f64) {
        if self.rate.is_none() {
            return;
        }
        self.advance(now);
        self.sum += amount;
        self.largest = self.largest.max(amount);
        let slack = SLACK * (1.0 + self.sum.abs());
        let most = self.burst().max(self.largest);
        if self.sum > self.least + most + slack
            || self.sum > self.least_with_burst + self.largest + slack
        {
            self.exceeded = Some(format!(
                "{} charged beyond the rate since {}, {} beyond rate and burst, burst {}, largest \
                 job {}",
                self.sum - self.least,
                now,
                self.sum - self.least_with_burst,
                self.burst(),
                self.largest
            ));
        }
    }

    /// A charge was returned, in part or whole. An overrun, a negative amount, is no charge of a
    /// grant: it only lowers what may be granted.
    pub(super) fn refund(&mut self, now: Time, amount: f64) {
        if self.rate.is_some() {
            self.advance(now);
            self.sum -= amount.max(0.0);
        }
    }

    pub(super) fn exceeded(&self) -> Option<String> {
        self.exceeded.clone()
    }
}
