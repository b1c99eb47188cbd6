//! A histogram of durations with 32 buckets per doubling, from one microsecond, that grows as
//! needed.

use std::time::Duration;

const STEPS: u64 = 32;
const BITS: u32 = STEPS.trailing_zeros();

#[derive(Clone, Debug, Default)]
pub(crate) struct Histogram {
    counts: Vec<u32>,
    count: u64,
}

impl Histogram {
    pub(crate) fn record(&mut self, length: Duration) {
        let step = step(length);
        if self.counts.len() <= step {
            self.counts.resize(step + 1, 0);
        }
        self.counts[step] = self.counts[step].saturating_add(1);
        self.count += 1;
    }

    pub(crate) fn add(&mut self, other: &Histogram) {
        if self.counts.len() < other.counts.len() {
            self.counts.resize(other.counts.len(), 0);
        }
        for (mine, other) in self.counts.iter_mut().zip(&other.counts) {
            *mine = mine.saturating_add(*other);
        }
        self.count += other.count;
    }

    /// The quantile `q` in seconds, accurate to about 3 %.
    pub(crate) fn quantile(&self, q: f64) -> Option<f64> {
        let rank = (q * self.count as f64).ceil().max(1.0) as u64;
        let mut seen = 0;
        for (step, count) in self.counts.iter().enumerate() {
            seen += u64::from(*count);
            if seen >= rank {
                return Some(middle(step) / 1e6);
            }
        }
        None
    }
}

fn step(length: Duration) -> usize {
    let micros = u64::try_from(length.as_micros()).unwrap_or(u64::MAX);
    if micros < STEPS {
        return micros as usize;
    }
    let log = micros.ilog2();
    let within = (micros >> (log - BITS)) - STEPS;
    (STEPS + u64::from(log - BITS) * STEPS + within) as usize
}

fn middle(step: usize) -> f64 {
    let step = step as u64;
    if step < STEPS {
        return step as f64;
    }
    let (log, within) = ((step - STEPS) / STEPS, (step - STEPS) % STEPS);
    let low = (STEPS + within) << log;
    low as f64 + ((1u64 << log) - 1) as f64 / 2.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_within_a_thirtieth() {
        let (mut all, mut half) = (Histogram::default(), Histogram::default());
        for millis in 1..=1000 {
            let length = Duration::from_millis(millis);
            if millis % 2 == 0 { &mut all } else { &mut half }.record(length);
        }
        all.add(&half);
        for q in [0.01, 0.5, 0.9, 0.99, 1.0] {
            let got = all.quantile(q).unwrap();
            assert!((got / q - 1.0).abs() < 0.04, "{q}: {got}");
        }
        assert_eq!(
            (all.count, Histogram::default().quantile(0.5)),
            (1000, None)
        );
    }

    #[test]
    fn steps_are_in_order_and_every_length_has_one() {
        let mut last = 0;
        for log in 0..64 {
            for length in [1u64 << log, (1u64 << log) + (1u64 << log) / 3] {
                let step = step(Duration::from_micros(length));
                assert!(step >= last);
                last = step;
                assert!(
                    (middle(step) / length as f64 - 1.0).abs() < 0.04,
                    "{length}"
                );
            }
        }
        step(Duration::MAX);
    }
}
