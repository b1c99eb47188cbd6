//! Distributions of costs and service times.

use crate::{Rng, SynthError, math};
use std::fmt;

/// A distribution of integer amounts: tokens, bytes, microseconds.
///
/// ```
/// use headworks_synth::{Distribution, Rng};
///
/// let tokens = Distribution::LogNormal { mean: 800.0, sigma: 1.0 };
/// let mut rng = Rng::new(7);
/// let drawn: Vec<u64> = (0..3).map(|_| tokens.sample(&mut rng)).collect();
/// assert!(drawn.iter().all(|&cost| cost >= 1));
/// assert_eq!(tokens.sample(&mut Rng::new(7)), drawn[0]);
/// ```
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
#[non_exhaustive]
pub enum Distribution {
    /// A constant.
    Constant {
        /// The amount.
        value: u64,
    },
    /// A uniform distribution.
    Uniform {
        /// The minimum.
        low: u64,
        /// The maximum.
        high: u64,
    },
    /// A log-normal distribution: many small, few large, as prompts, responses and service times
    /// are.
    LogNormal {
        /// The mean of the amounts themselves.
        mean: f64,
        /// The standard deviation of their logarithm; 1 is a wide spread.
        sigma: f64,
    },
    /// A bounded Pareto distribution, with a heavy tail.
    Pareto {
        /// The minimum, which is the most likely amount.
        min: u64,
        /// The maximum.
        max: u64,
        /// The tail index; below 2 the largest amounts dominate.
        shape: f64,
    },
    /// A weighted mix of distributions.
    Mix {
        /// The components.
        of: Vec<Weighted>,
    },
}

/// A component of a mix.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Weighted {
    /// The relative weight.
    pub weight: f64,
    /// The distribution.
    pub draw: Distribution,
}

impl Distribution {
    /// Samples an amount, at least 1.
    #[must_use]
    pub fn sample(&self, rng: &mut Rng) -> u64 {
        let amount = match self {
            Distribution::Constant { value } => *value,
            Distribution::Uniform { low, high } => {
                let width = high.saturating_sub(*low).saturating_add(1);
                low.saturating_add(rng.below(width))
            }
            Distribution::LogNormal { mean, sigma } => {
                let centre = math::ln(*mean) - sigma * sigma / 2.0;
                math::exp(centre + sigma * rng.normal()).round() as u64
            }
            Distribution::Pareto { min, max, shape } => {
                let (low, high) = ((*min).max(1), (*max).max((*min).max(1)));
                let tail = math::pow(low as f64 / high as f64, *shape);
                let kept = 1.0 - rng.unit() * (1.0 - tail);
                let amount = low as f64 * math::pow(kept, -1.0 / shape);
                (amount.round() as u64).clamp(low, high)
            }
            Distribution::Mix { of } => return choose(of, rng).map_or(1, |d| d.sample(rng)),
        };
        amount.max(1)
    }

    /// The mean, ignoring rounding and the lower limit of 1.
    #[must_use]
    pub fn mean(&self) -> f64 {
        match self {
            Distribution::Constant { value } => *value as f64,
            Distribution::Uniform { low, high } => (*low as f64 + *high as f64) / 2.0,
            Distribution::LogNormal { mean, .. } => *mean,
            Distribution::Pareto { min, max, shape } => bounded_pareto_mean(*min, *max, *shape),
            Distribution::Mix { of } => {
                let total: f64 = of.iter().map(|part| part.weight).sum();
                let sum: f64 = of.iter().map(|part| part.weight * part.draw.mean()).sum();
                sum / total
            }
        }
    }

    /// Checks the parameters. A distribution with invalid parameters returns amounts without
    /// meaning.
    ///
    /// # Errors
    /// Names the invalid field.
    pub fn check(&self) -> Result<(), SynthError> {
        let positive = |field, value: f64| match value.is_finite() && value > 0.0 {
            true => Ok(()),
            false => out_of_range(field, &value, "a number above 0"),
        };
        match self {
            Distribution::Constant { .. } => Ok(()),
            Distribution::Uniform { low, high } if low > high => {
                out_of_range("high", high, "at least as much as low")
            }
            Distribution::Uniform { .. } => Ok(()),
            Distribution::LogNormal { mean, sigma } => {
                positive("mean", *mean)?;
                match (0.0..=10.0).contains(sigma) {
                    true => Ok(()),
                    false => out_of_range("sigma", sigma, "from 0 to 10"),
                }
            }
            Distribution::Pareto { min, max, shape } => {
                positive("shape", *shape)?;
                match (1..=*max).contains(min) {
                    true => Ok(()),
                    false => out_of_range("min", min, "at least 1 and at most max"),
                }
            }
            Distribution::Mix { of } if of.is_empty() => {
                out_of_range("of", &"empty", "a list of parts")
            }
            Distribution::Mix { of } => of.iter().try_for_each(|part| {
                positive("weight", part.weight)?;
                part.draw.check()
            }),
        }
    }
}

fn choose<'a>(of: &'a [Weighted], rng: &mut Rng) -> Option<&'a Distribution> {
    let total: f64 = of.iter().map(|part| part.weight).sum();
    let mut left = rng.unit() * total;
    let chosen = of.iter().find(|part| {
        left -= part.weight;
        left < 0.0
    });
    // Rounding may leave a remainder beyond the last component.
    chosen.or(of.last()).map(|part| &part.draw)
}

fn bounded_pareto_mean(min: u64, max: u64, shape: f64) -> f64 {
    let (low, high) = (min as f64, max as f64);
    if min >= max {
        return low;
    }
    if (shape - 1.0).abs() < 1e-9 {
        return low * high / (high - low) * (math::ln(high) - math::ln(low));
    }
    let tail = math::pow(low / high, shape);
    let scale = math::pow(low, shape) / (1.0 - tail) * shape / (shape - 1.0);
    scale * (math::pow(low, 1.0 - shape) - math::pow(high, 1.0 - shape))
}

fn out_of_range(
    field: &'static str,
    value: &dyn fmt::Display,
    expected: &'static str,
) -> Result<(), SynthError> {
    let value = value.to_string();
    Err(SynthError::OutOfRange {
        field,
        value,
        expected,
    })
}
