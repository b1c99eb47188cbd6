//! Numbers and durations in human notation.

use std::time::Duration;

const SUFFIXES: [(char, u64); 4] = [
    ('T', 1 << 40),
    ('G', 1 << 30),
    ('M', 1 << 20),
    ('k', 1 << 10),
];

/// Parses `64`, `64k`, `2M`, `1G`, `1T`: powers of 1024, in either case.
pub(crate) fn parse_number(text: &str) -> Option<u64> {
    let suffix = text.chars().next_back()?;
    let unit = SUFFIXES
        .iter()
        .find(|(letter, _)| letter.eq_ignore_ascii_case(&suffix));
    let (digits, factor) = match unit {
        Some((_, factor)) => (&text[..text.len() - 1], *factor),
        None => (text, 1),
    };
    if !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None; // `parse` would take a plus sign
    }
    digits.parse::<u64>().ok()?.checked_mul(factor)
}

pub(crate) fn show_number(number: u64) -> String {
    let unit = SUFFIXES
        .iter()
        .find(|(_, factor)| number > 0 && number.is_multiple_of(*factor));
    match unit {
        Some((letter, factor)) => format!("{}{letter}", number / factor),
        None => number.to_string(),
    }
}

const UNITS: [(&str, f64); 6] = [
    ("ns", 1e-9),
    ("us", 1e-6),
    ("ms", 1e-3),
    ("s", 1.0),
    ("m", 60.0),
    ("h", 3600.0),
];

/// Parses a number with its unit: ns, us, ms, s, m or h.
///
/// ```
/// use headworks_synth::parse_duration;
/// use std::time::Duration;
///
/// assert_eq!(parse_duration("1.5s"), Some(Duration::from_millis(1500)));
/// assert_eq!(parse_duration("soon"), None);
/// ```
#[must_use]
pub fn parse_duration(text: &str) -> Option<Duration> {
    let split = text.find(|c: char| c.is_ascii_alphabetic())?;
    let (number, unit) = text.split_at(split);
    let (_, seconds) = UNITS.iter().find(|(name, _)| *name == unit)?;
    let number: f64 = number.trim_end().parse().ok()?;
    Duration::try_from_secs_f64(number * seconds).ok()
}

/// Serializes a duration as `1.5s`, `250ms`, `10us`, `2m` or `1h`.
pub(crate) mod duration {
    use super::{Duration, parse_duration};
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(crate) fn serialize<S: Serializer>(d: &Duration, to: S) -> Result<S::Ok, S::Error> {
        let nanos = d.as_nanos();
        let (unit, step) = [("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000)]
            .into_iter()
            .find(|(_, step)| nanos.is_multiple_of(*step))
            .unwrap_or(("ns", 1));
        to.serialize_str(&format!("{}{unit}", nanos / step))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
        let text = String::deserialize(from)?;
        parse_duration(&text).ok_or_else(|| {
            D::Error::custom(format!(
                "`{text}` is not a duration; write a number and ns, us, ms, s, m or h, as in 250ms"
            ))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn numbers_survive(number in any::<u64>(), shift in 0..40u32) {
            for n in [number, number << shift, number >> shift] {
                prop_assert_eq!(parse_number(&show_number(n)), Some(n));
            }
        }

        #[test]
        fn nothing_panics(text in ".{0,12}") {
            let _ = (parse_number(&text), parse_duration(&text));
        }
    }

    #[test]
    fn numbers() {
        assert_eq!(parse_number("64k"), Some(65_536));
        assert_eq!(parse_number("2M"), Some(2 << 20));
        for bad in ["", "k", "+1", "-1", "1kk", "99999999999T", "1,5", "é"] {
            assert_eq!(parse_number(bad), None, "{bad}");
        }
    }

    #[test]
    fn durations() {
        assert_eq!(parse_duration("250ms"), Some(Duration::from_millis(250)));
        assert_eq!(parse_duration("1.5s"), Some(Duration::from_millis(1500)));
        assert_eq!(parse_duration("2m"), Some(Duration::from_secs(120)));
        for bad in ["", "5", "-1s", "s", "1day", "infs", "NaNs"] {
            assert_eq!(parse_duration(bad), None, "{bad}");
        }
    }
}
