//! Distributions for counts and sizes in a tree, sampled per folder or file.

use crate::math;
use crate::rng::{unit, up_to};
use crate::units::{parse_number, show_number};
use std::fmt;

/// A distribution of integers, written `10`, `1k-64k` or `1k~64k`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Spread {
    /// A constant: `10`.
    Constant(u64),
    /// A uniform distribution: `1k-64k`.
    Uniform(u64, u64),
    /// A log-uniform distribution, as file sizes tend to be: `1k~64k`.
    Log(u64, u64),
}

impl Spread {
    /// The number for `random`; monotonic.
    #[must_use]
    pub fn pick(self, random: u64) -> u64 {
        match self {
            Spread::Constant(number) => number,
            Spread::Uniform(low, high) => low + up_to(random, high.saturating_sub(low)),
            Spread::Log(low, high) => {
                // Shifted by one, so that 0 has a logarithm and the last number has a share.
                let (from, to) = (math::ln(low as f64 + 1.0), math::ln(high as f64 + 2.0));
                let picked = math::exp(from + unit(random) * (to - from)) - 1.0;
                (picked as u64).clamp(low, high.max(low))
            }
        }
    }

    /// The mean.
    #[must_use]
    pub fn mean(self) -> f64 {
        match self {
            Spread::Constant(number) => number as f64,
            Spread::Uniform(low, high) => (low as f64 + high as f64) / 2.0,
            Spread::Log(low, high) => {
                let (from, to) = (low as f64 + 1.0, high as f64 + 2.0);
                // Rounding down removes half a unit on average.
                (to - from) / (math::ln(to) - math::ln(from)) - 1.5
            }
        }
    }

    pub(crate) const EXPECTED: &'static str =
        "a number (10), a range (1k-64k) or a range by doublings (1k~64k), the smaller first";

    pub(crate) fn parse(text: &str) -> Option<Spread> {
        let Some(at) = text.find(['-', '~']) else {
            return parse_number(text).map(Spread::Constant);
        };
        let (low, high) = (parse_number(&text[..at])?, parse_number(&text[at + 1..])?);
        match (low <= high, text.as_bytes()[at]) {
            (false, _) => None,
            (_, b'-') => Some(Spread::Uniform(low, high)),
            _ => Some(Spread::Log(low, high)),
        }
    }
}

impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let n = |number: &u64| show_number(*number);
        match self {
            Spread::Constant(number) => write!(f, "{}", n(number)),
            Spread::Uniform(low, high) => write!(f, "{}-{}", n(low), n(high)),
            Spread::Log(low, high) => write!(f, "{}~{}", n(low), n(high)),
        }
    }
}

/// A fraction in millionths; written in percent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Fraction(u32);

impl Fraction {
    /// Zero.
    pub const NONE: Fraction = Fraction(0);

    const WHOLE: u32 = 1_000_000;

    /// A fraction from percent, at most 100.
    #[must_use]
    pub const fn percent(percent: u32) -> Fraction {
        if percent >= 100 {
            Fraction(Fraction::WHOLE)
        } else {
            Fraction(percent * 10_000)
        }
    }

    /// The fraction as a number from 0 to 1.
    #[must_use]
    pub fn fraction(self) -> f64 {
        f64::from(self.0) / f64::from(Fraction::WHOLE)
    }

    /// Whether an item with this random number belongs to the fraction.
    pub(crate) fn includes(self, random: u64) -> bool {
        up_to(random, u64::from(Fraction::WHOLE) - 1) < u64::from(self.0)
    }

    pub(crate) const EXPECTED: &'static str =
        "percent from 0 to 100 with at most four decimals, as in 2.5";

    pub(crate) fn parse(text: &str) -> Option<Fraction> {
        let text = text.strip_suffix('%').unwrap_or(text);
        let (whole, decimals) = text.split_once('.').unwrap_or((text, ""));
        let digits = |t: &str| t.bytes().all(|b| b.is_ascii_digit());
        if whole.is_empty() || decimals.len() > 4 || !digits(whole) || !digits(decimals) {
            return None;
        }
        let millionths = format!("{whole}{decimals:0<4}").parse::<u32>().ok()?;
        (millionths <= Fraction::WHOLE).then_some(Fraction(millionths))
    }
}

impl fmt::Display for Fraction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let decimals = format!("{:04}", self.0 % 10_000);
        match decimals.trim_end_matches('0') {
            "" => write!(f, "{}", self.0 / 10_000),
            decimals => write!(f, "{}.{decimals}", self.0 / 10_000),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::Rng;
    use proptest::prelude::*;

    pub(crate) fn any_spread() -> impl Strategy<Value = Spread> {
        let pair = || (any::<u64>(), any::<u64>(), 0..60u32);
        let sort = |(a, b, shift): (u64, u64, u32)| {
            ((a >> shift).min(b >> shift), (a >> shift).max(b >> shift))
        };
        prop_oneof![
            any::<u64>().prop_map(Spread::Constant),
            pair()
                .prop_map(sort)
                .prop_map(|(a, b)| Spread::Uniform(a, b)),
            pair().prop_map(sort).prop_map(|(a, b)| Spread::Log(a, b)),
        ]
    }

    pub(crate) fn any_share() -> impl Strategy<Value = Fraction> {
        (0..=Fraction::WHOLE).prop_map(Fraction)
    }

    proptest! {
        #[test]
        fn a_spread_survives_and_stays_within(spread in any_spread(), random in any::<u64>()) {
            prop_assert_eq!(Spread::parse(&spread.to_string()), Some(spread));
            let picked = spread.pick(random);
            let (low, high) = match spread {
                Spread::Constant(n) => (n, n),
                Spread::Uniform(low, high) | Spread::Log(low, high) => (low, high),
            };
            prop_assert!(low <= picked && picked <= high);
        }

        #[test]
        fn a_share_survives(share in any_share()) {
            prop_assert_eq!(Fraction::parse(&share.to_string()), Some(share));
        }

        #[test]
        fn nothing_panics(text in ".{0,12}") {
            let _ = (Spread::parse(&text), Fraction::parse(&text));
        }
    }

    #[test]
    fn means_are_met() {
        for text in ["7", "0-10", "1k-64k", "0~3", "1k~64k", "0~1M"] {
            let spread = Spread::parse(text).unwrap();
            let (mut rng, n) = (Rng::new(9), 200_000);
            let sum: f64 = (0..n).map(|_| spread.pick(rng.next_u64()) as f64).sum();
            let (mean, expected) = (sum / f64::from(n), spread.mean());
            // 0~3 is so coarse that rounding down does not remove exactly a half.
            let slack = if text == "0~3" { 0.1 } else { 0.02 };
            assert!(
                (mean / expected - 1.0).abs() < slack,
                "{text}: {mean}, not {expected}"
            );
        }
    }

    #[test]
    fn a_share_covers_its_part() {
        let (share, mut rng) = (Fraction::parse("2.5").unwrap(), Rng::new(1));
        let hits = (0..100_000)
            .filter(|_| share.includes(rng.next_u64()))
            .count();
        assert!((2_300..2_700).contains(&hits), "{hits}");
        assert!(!Fraction::NONE.includes(0) && Fraction::percent(100).includes(u64::MAX));
    }
}
