//! Output lengths learned from past responses, by tenant and model.
//!
//! `max_tokens` says how long a response may get, not how long it will be. Reserved in full, it
//! would let coding agents, which ask for 32,000 tokens and use 500, run one at a time. Therefore a
//! request reserves the p90 of what its tenant got from its model, and is settled afterwards.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

/// Most pairs of tenant and model that are remembered.
const CAPACITY: usize = 10_000;
/// Responses after which the history alone decides. Before, the expectation is not lowered.
const ENOUGH: u32 = 8;
/// Counts are halved at this number of responses, so that old ones are forgotten.
const MOST: u32 = 256;
/// Buckets: four for each power of two.
const BUCKETS: usize = 128;

/// Learned output lengths.
#[derive(Debug, Default)]
pub(crate) struct LearnedOutputs {
    lengths: Mutex<Lengths>,
}

#[derive(Debug, Default)]
struct Lengths {
    tenants: HashMap<Arc<str>, HashMap<String, Histogram>>,
    /// Number of histograms.
    count: usize,
}

impl LearnedOutputs {
    /// Expected output of one choice. `default` counts as long as little is known.
    pub(crate) fn expected(&self, tenant: &str, model: &str, default: u64) -> u64 {
        let lengths = self.lengths.lock();
        let models = lengths.tenants.get(tenant);
        match models.and_then(|models| models.get(model)) {
            Some(histogram) if histogram.count >= ENOUGH => histogram.p90(),
            Some(histogram) => histogram.p90().max(default),
            None => default,
        }
    }

    /// Records the output of one choice of a complete response.
    pub(crate) fn record(&self, tenant: &Arc<str>, model: &str, output: u64) {
        let mut lengths = self.lengths.lock();
        let Lengths { tenants, count } = &mut *lengths;
        if let Some(histogram) = tenants
            .get_mut(tenant)
            .and_then(|models| models.get_mut(model))
        {
            return histogram.record(output);
        }
        if *count >= CAPACITY {
            // Clients invent names of models, so the tenant with the most starts over.
            let largest = tenants.iter().max_by_key(|(_, models)| models.len());
            let largest = largest.map(|(tenant, _)| tenant.clone());
            let removed = largest.and_then(|tenant| tenants.remove(&tenant));
            *count -= removed.map_or(0, |models| models.len());
        }
        *count += 1;
        let models = tenants.entry(tenant.clone()).or_default();
        models.entry(model.to_owned()).or_default().record(output);
    }
}

/// Histogram with buckets of constant relative width.
#[derive(Debug)]
struct Histogram {
    counts: Box<[u16; BUCKETS]>,
    count: u32,
}

impl Default for Histogram {
    fn default() -> Self {
        Histogram {
            counts: Box::new([0; BUCKETS]),
            count: 0,
        }
    }
}

impl Histogram {
    fn record(&mut self, length: u64) {
        if self.count >= MOST {
            self.counts.iter_mut().for_each(|count| *count /= 2);
            self.count = self.counts.iter().map(|count| u32::from(*count)).sum();
        }
        self.counts[bucket(length)] += 1;
        self.count += 1;
    }

    /// Upper edge of the bucket in which nine of ten lengths end.
    fn p90(&self) -> u64 {
        let wanted = (self.count * 9).div_ceil(10);
        let mut seen = 0;
        let at = self.counts.iter().position(|count| {
            seen += u32::from(*count);
            seen >= wanted
        });
        at.map_or(0, upper_edge)
    }
}

fn bucket(length: u64) -> usize {
    if length < 8 {
        return length as usize;
    }
    let power = u64::BITS - 1 - length.leading_zeros();
    let quarter = (length >> (power - 2)) & 3;
    (8 + (power as usize - 3) * 4 + quarter as usize).min(BUCKETS - 1)
}

fn upper_edge(bucket: usize) -> u64 {
    if bucket < 8 {
        return bucket as u64;
    }
    let (power, quarter) = ((bucket - 8) / 4 + 3, (bucket as u64 - 8) % 4);
    ((5 + quarter) << (power - 2)) - 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_p90_of_a_tenant_and_model_is_learned() {
        let (learned, tenant): (_, Arc<str>) = (LearnedOutputs::default(), "a".into());
        assert_eq!(learned.expected("a", "m", 512), 512);
        learned.record(&tenant, "m", 10);
        assert_eq!(learned.expected("a", "m", 512), 512, "one says little");
        for _ in 0..89 {
            learned.record(&tenant, "m", 10);
        }
        for _ in 0..10 {
            learned.record(&tenant, "m", 5000);
        }
        let usual = learned.expected("a", "m", 512);
        assert!((10..=12).contains(&usual), "{usual}");
        for _ in 0..10 {
            learned.record(&tenant, "m", 5000);
        }
        let usual = learned.expected("a", "m", 512);
        assert!((5000..=6250).contains(&usual), "{usual}");
        assert_eq!(learned.expected("a", "other", 512), 512);
        assert_eq!(learned.expected("b", "m", 512), 512);
    }

    #[test]
    fn old_lengths_are_forgotten() {
        let (learned, tenant): (_, Arc<str>) = (LearnedOutputs::default(), "a".into());
        for length in [10_000, 20] {
            for _ in 0..3 * MOST {
                learned.record(&tenant, "m", length);
            }
        }
        assert!(learned.expected("a", "m", 512) < 25);
    }

    #[test]
    fn invented_models_do_not_make_others_forget() {
        let learned = LearnedOutputs::default();
        for _ in 0..ENOUGH {
            learned.record(&"modest".into(), "m", 10);
        }
        let inventor = "inventor".into();
        for number in 0..2 * CAPACITY {
            learned.record(&inventor, &number.to_string(), 1);
        }
        assert!(learned.expected("modest", "m", 512) < 20);
        assert!(learned.lengths.lock().count <= CAPACITY);
    }

    #[test]
    fn memory_is_bounded() {
        let (learned, tenant): (_, Arc<str>) = (LearnedOutputs::default(), "a".into());
        for number in 0..CAPACITY + 10 {
            learned.record(&tenant, &number.to_string(), 1);
        }
        assert!(learned.lengths.lock().count <= CAPACITY);
    }

    proptest! {
        #[test]
        fn an_edge_is_at_most_a_quarter_above_the_length(length in 0u64..1 << 30) {
            let edge = upper_edge(bucket(length));
            prop_assert!(edge >= length && edge <= length + length / 4 + 1, "{} for {}", edge, length);
        }
    }
}
