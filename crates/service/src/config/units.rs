//! Durations and sizes in human notation.
//!
//! `#[serde(with = "headworks_service::config::seconds")]` on a `Duration` (or an `Option` of one)
//! reads `"30s"`, `"1h30m"` and plain numbers. A plain number is in the unit of the module's name,
//! for compatibility with keys that used to be numbers in that unit. `bytes` does the same for a
//! `u64` and `"64MiB"`.

use std::fmt;
use std::time::Duration;

/// Units, the largest first.
const DURATION_UNITS: [(&str, u64); 9] = [
    ("w", 604_800_000_000_000),
    ("d", 86_400_000_000_000),
    ("h", 3_600_000_000_000),
    ("min", 60_000_000_000),
    ("m", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1_000),
    ("ns", 1),
];

/// Units, the largest first. A single letter is binary, as with rsync and rclone.
const SIZE_UNITS: [(&str, u64); 13] = [
    ("T", 1 << 40),
    ("TiB", 1 << 40),
    ("TB", 1_000_000_000_000),
    ("G", 1 << 30),
    ("GiB", 1 << 30),
    ("GB", 1_000_000_000),
    ("M", 1 << 20),
    ("MiB", 1 << 20),
    ("MB", 1_000_000),
    ("K", 1 << 10),
    ("KiB", 1 << 10),
    ("KB", 1_000),
    ("B", 1),
];

/// Units that are read but not written.
const READ_ONLY: [&str; 6] = ["w", "min", "T", "G", "M", "K"];

/// Sums `number unit` pairs, in the smallest unit. `plain` is the unit of a bare number.
fn parse(text: &str, units: &[(&str, u64)], plain: u64) -> Option<u128> {
    let mut rest = text.trim();
    if let Some(amount) = scaled(rest, plain) {
        return Some(amount);
    }
    let mut total: u128 = 0;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.' && c != '_')?;
        let number = &rest[..digits];
        rest = rest[digits..].trim_start();
        let end = rest
            .find(|c: char| !c.is_alphabetic())
            .unwrap_or(rest.len());
        let unit = &rest[..end];
        let (_, factor) = units.iter().find(|(u, _)| u.eq_ignore_ascii_case(unit))?;
        total = total.checked_add(scaled(number, *factor)?)?;
        rest = rest[end..].trim_start();
    }
    (!text.trim().is_empty()).then_some(total)
}

/// Multiplies exactly for whole numbers; rounds fractions to the smallest unit.
fn scaled(number: &str, factor: u64) -> Option<u128> {
    let number = number.replace('_', "");
    if let Ok(whole) = number.parse::<u64>() {
        return Some(u128::from(whole) * u128::from(factor));
    }
    let product = number.parse::<f64>().ok()? * factor as f64;
    let possible = product >= 0.0 && product <= u64::MAX as f64;
    possible.then(|| product.round() as u128)
}

/// Parses a duration such as `90s`, `1h30m` or `3w`. A plain number means seconds.
///
/// ```
/// use std::time::Duration;
/// assert_eq!(headworks_service::config::parse_seconds("2m"), Some(Duration::from_secs(120)));
/// ```
#[must_use]
pub fn parse_seconds(text: &str) -> Option<Duration> {
    parse_duration(text, 1_000_000_000)
}

fn parse_duration(text: &str, plain: u64) -> Option<Duration> {
    let nanos = parse(text, &DURATION_UNITS, plain)?;
    Some(Duration::from_nanos(u64::try_from(nanos).ok()?))
}

/// Parses a size such as `64MiB`, `10GB` or `20M`. A plain number means bytes.
///
/// ```
/// assert_eq!(headworks_service::config::parse_size("20M"), Some(20 << 20));
/// ```
#[must_use]
pub fn parse_size(text: &str) -> Option<u64> {
    u64::try_from(parse(text, &SIZE_UNITS, 1)?).ok()
}

/// Formats the duration in the largest unit that represents it exactly: `5m`, `90s`, `250ms`.
///
/// ```
/// use std::time::Duration;
/// assert_eq!(headworks_service::config::format_duration(Duration::from_secs(300)), "5m");
/// assert_eq!(headworks_service::config::format_duration(Duration::from_millis(1500)), "1500ms");
/// ```
#[must_use]
pub fn format_duration(duration: Duration) -> String {
    show(duration.as_nanos(), &DURATION_UNITS, "0s")
}

/// Formats the size in the largest unit that represents it exactly: `64MiB`, `1500B`.
///
/// ```
/// assert_eq!(headworks_service::config::format_size(64 << 20), "64MiB");
/// ```
#[must_use]
pub fn format_size(bytes: u64) -> String {
    show(u128::from(bytes), &SIZE_UNITS, "0B")
}

fn show(amount: u128, units: &[(&str, u64)], zero: &str) -> String {
    if amount == 0 {
        return zero.to_owned();
    }
    units
        .iter()
        .filter(|(unit, _)| !READ_ONLY.contains(unit))
        .find(|(_, factor)| amount.is_multiple_of(u128::from(*factor)))
        .map_or_else(
            || amount.to_string(),
            |(unit, factor)| format!("{}{unit}", amount / u128::from(*factor)),
        )
}

/// A field type for the `with` modules: the value itself or an `Option` of it.
pub trait Amount<T>: Sized {
    #[doc(hidden)]
    const OPTIONAL: bool;
    #[doc(hidden)]
    fn wrap(value: Option<T>) -> Option<Self>;
    #[doc(hidden)]
    fn unwrap(&self) -> Option<&T>;
}

impl<T> Amount<T> for T {
    const OPTIONAL: bool = false;
    fn wrap(value: Option<T>) -> Option<T> {
        value
    }
    fn unwrap(&self) -> Option<&T> {
        Some(self)
    }
}

impl<T> Amount<T> for Option<T> {
    const OPTIONAL: bool = true;
    fn wrap(value: Option<T>) -> Option<Option<T>> {
        Some(value)
    }
    fn unwrap(&self) -> Option<&T> {
        self.as_ref()
    }
}

/// Accepts what `read` accepts, and reports `expecting` otherwise.
struct AmountVisitor<T> {
    read: fn(&str) -> Option<T>,
    expecting: &'static str,
    optional: bool,
}

impl<'de, T> serde::de::Visitor<'de> for AmountVisitor<T> {
    type Value = Option<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.expecting)
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Option<T>, E> {
        if self.optional && text.is_empty() {
            return Ok(None);
        }
        match (self.read)(text) {
            Some(value) => Ok(Some(value)),
            None => Err(E::invalid_value(serde::de::Unexpected::Str(text), &self)),
        }
    }

    fn visit_i64<E: serde::de::Error>(self, number: i64) -> Result<Option<T>, E> {
        match (self.read)(&number.to_string()) {
            Some(value) => Ok(Some(value)),
            None => Err(E::invalid_value(
                serde::de::Unexpected::Signed(number),
                &self,
            )),
        }
    }

    fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<Option<T>, E> {
        self.visit_str(&number.to_string())
    }

    fn visit_f64<E: serde::de::Error>(self, number: f64) -> Result<Option<T>, E> {
        self.visit_str(&number.to_string())
    }

    fn visit_unit<E: serde::de::Error>(self) -> Result<Option<T>, E> {
        if self.optional {
            return Ok(None);
        }
        Err(E::invalid_type(serde::de::Unexpected::Unit, &self))
    }
}

macro_rules! unit_module {
    ($name:ident, $of:ty, $doc:literal, $expecting:literal, $read:expr, $show:expr) => {
        #[doc = $doc]
        pub mod $name {
            use super::{Amount, AmountVisitor};

            /// Deserializes the field.
            ///
            /// # Errors
            /// When the text is not a valid amount.
            pub fn deserialize<'de, D, A>(deserializer: D) -> Result<A, D::Error>
            where
                D: serde::Deserializer<'de>,
                A: Amount<$of>,
            {
                let visitor = AmountVisitor {
                    read: $read,
                    expecting: $expecting,
                    optional: A::OPTIONAL,
                };
                let amount = deserializer.deserialize_any(visitor)?;
                A::wrap(amount).ok_or_else(|| serde::de::Error::custom($expecting))
            }

            /// Serializes the field in the form that `deserialize` reads.
            ///
            /// # Errors
            /// When the serializer fails.
            pub fn serialize<S, A>(amount: &A, serializer: S) -> Result<S::Ok, S::Error>
            where
                S: serde::Serializer,
                A: Amount<$of>,
            {
                match amount.unwrap() {
                    Some(amount) => serializer.serialize_str(&($show)(*amount)),
                    None => serializer.serialize_none(),
                }
            }
        }
    };
}

unit_module!(
    seconds,
    std::time::Duration,
    "A duration; a plain number means seconds.",
    "a duration such as \"30s\", \"5m\" or \"1h30m\" (a plain number means seconds)",
    super::parse_seconds,
    super::format_duration
);
unit_module!(
    millis,
    std::time::Duration,
    "A duration; a plain number means milliseconds.",
    "a duration such as \"250ms\" or \"2s\" (a plain number means milliseconds)",
    |text| super::parse_duration(text, 1_000_000),
    super::format_duration
);
unit_module!(
    minutes,
    std::time::Duration,
    "A duration; a plain number means minutes.",
    "a duration such as \"30m\" or \"3h\" (a plain number means minutes)",
    |text| super::parse_duration(text, 60_000_000_000),
    super::format_duration
);
unit_module!(
    bytes,
    u64,
    "A size; a plain number means bytes.",
    "a size such as \"64MiB\" or \"10GB\" (a plain number means bytes)",
    super::parse_size,
    super::format_size
);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn durations_as_people_write_them() {
        let secs = |text: &str| parse_duration(text, SECOND).map(|d| d.as_secs_f64());
        assert_eq!(secs("30s"), Some(30.0));
        assert_eq!(secs(" 5 m "), Some(300.0));
        assert_eq!(secs("1h30m"), Some(5400.0));
        assert_eq!(secs("1.5s"), Some(1.5));
        assert_eq!(secs("300"), Some(300.0));
        assert_eq!(secs("10min"), Some(600.0));
        for wrong in [
            "",
            "s",
            "5 parsecs",
            "-3s",
            "-3",
            "NaN",
            "1e400",
            "9999999999d",
        ] {
            assert_eq!(secs(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn sizes_as_people_write_them() {
        assert_eq!(parse_size("64MiB"), Some(64 << 20));
        assert_eq!(parse_size("10MB"), Some(10_000_000));
        assert_eq!(parse_size("20M"), Some(20 << 20));
        assert_eq!(parse_size("1.5g"), Some(3 << 29));
        assert_eq!(format_size(64_000_000), "64MB");
        assert_eq!(format_size(64 << 20), "64MiB");
        assert_eq!(parse_size("1500"), Some(1500));
        assert_eq!(parse_size("lots"), None);
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in ".{0,40}") {
            let _ = parse_duration(&text, SECOND);
            let _ = parse_size(&text);
        }

        #[test]
        fn shown_amounts_read_back(nanos in any::<u64>(), size in any::<u64>()) {
            let duration = Duration::from_nanos(nanos);
            prop_assert_eq!(parse_duration(&format_duration(duration), SECOND), Some(duration));
            prop_assert_eq!(parse_size(&format_size(size)), Some(size));
        }
    }
}
