//! Random limits in place of the configured ones.

use super::choices::Choices;
use headworks_core::{Class, Config, Flow, LocalLimits, LocalShare, Rate, TargetId};

/// Limits as a fleet would set them, or none.
pub(super) fn limits(rng: &mut Choices, config: &Config) -> LocalLimits {
    let mut local = LocalLimits::default();
    if rng.below(8) == 0 {
        return local;
    }
    local.all = share(rng);
    for flow in 0..3 {
        if rng.below(2) == 0 {
            local.flows.insert(Flow(flow), share(rng));
        }
        if rng.below(2) == 0 {
            let weight = (1 + rng.below(40)) as f64 / 8.0;
            local.flow_weights.insert(Flow(flow), weight);
        }
    }
    local.other_flows = (rng.below(2) == 0).then(|| rng.below(5) * 250_000_000);
    for target in 0..config.targets.len() as u32 {
        if rng.below(2) == 0 {
            local.targets.insert(TargetId::new(target), share(rng));
        }
    }
    for class in 0..config.classes.len() as u8 {
        if rng.below(3) == 0 {
            let weight = (1 + rng.below(40)) as f64 / 8.0;
            local.class_weights.insert(Class(class), weight);
        }
    }
    local
}

/// A share of each limit: none, 0, or a fraction.
fn share(rng: &mut Choices) -> LocalShare {
    let rate = |rng: &mut Choices, most: u64| match rng.below(6) {
        0 => Some(Rate::share(0, 0)),
        1..3 => Some(Rate::share(
            100_000 + rng.below(most * 1_000_000),
            rng.below(most * 500_000),
        )),
        _ => None,
    };
    LocalShare {
        concurrent: (rng.below(3) == 0).then(|| rng.below(4) as u32),
        requests: rate(rng, 40),
        cost: rate(rng, 400),
    }
}
