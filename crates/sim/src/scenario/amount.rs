//! Value types of scenario files: durations, latencies, costs, names.
//!
//! Each has a short form for the usual case, and its error shows a valid example.

use headworks_synth::Distribution;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use std::fmt;
use std::time::Duration;

/// A duration: `"250ms"`, `"1.5s"`, `"5m"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DurationValue(pub(super) Duration);

/// Maximum duration in a scenario: a year.
const LONGEST: Duration = Duration::from_secs(366 * 24 * 3600);

fn parse_duration(text: &str) -> Option<Duration> {
    headworks_synth::parse_duration(text).filter(|length| *length <= LONGEST)
}

impl<'de> Deserialize<'de> for DurationValue {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Reader;
        impl Visitor<'_> for Reader {
            type Value = DurationValue;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a duration in quotes, as in \"250ms\", \"30s\" or \"5m\"")
            }
            fn visit_str<E: Error>(self, text: &str) -> Result<DurationValue, E> {
                parse_duration(text).map(DurationValue).ok_or_else(|| {
                    E::custom(format!(
                        "`{text}` is not a duration; write a number and ns, us, ms, s, m or h, at most a year, as in \"250ms\""
                    ))
                })
            }
        }
        from.deserialize_any(Reader)
    }
}

/// A latency: `"50ms"`, `"20ms-80ms"` (uniform), or `{ mean = "80ms", sigma = 0.5 }` (log-normal).
/// Sampled in microseconds.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Latency(pub(super) Distribution);

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct LogNormal {
    mean: DurationValue,
    sigma: f64,
}

fn micros(length: Duration) -> u64 {
    u64::try_from(length.as_micros()).unwrap_or(u64::MAX)
}

fn parse_latency(text: &str) -> Option<Distribution> {
    let Some((low, high)) = text.split_once('-') else {
        let value = micros(parse_duration(text)?);
        return Some(Distribution::Constant { value });
    };
    let (low, high) = (parse_duration(low.trim())?, parse_duration(high.trim())?);
    let (low, high) = (micros(low), micros(high));
    (low <= high).then_some(Distribution::Uniform { low, high })
}

impl<'de> Deserialize<'de> for Latency {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = Latency;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("\"50ms\", \"20ms-80ms\" or { mean = \"80ms\", sigma = 0.5 }")
            }
            fn visit_str<E: Error>(self, text: &str) -> Result<Latency, E> {
                parse_latency(text).map(Latency).ok_or_else(|| {
                    E::custom(format!(
                        "`{text}` is not a latency; write \"50ms\", \"20ms-80ms\" or {{ mean = \"80ms\", sigma = 0.5 }}"
                    ))
                })
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Latency, A::Error> {
                let LogNormal { mean, sigma } =
                    LogNormal::deserialize(MapAccessDeserializer::new(map))?;
                let mean = micros(mean.0) as f64;
                let drawn = Distribution::LogNormal { mean, sigma };
                drawn.check().map_err(A::Error::custom)?;
                Ok(Latency(drawn))
            }
        }
        from.deserialize_any(Reader)
    }
}

/// A cost: a number, or a distribution as in `{ kind = "uniform", low = 1, high = 4000 }`.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct CostValue(pub(super) Distribution);

impl<'de> Deserialize<'de> for CostValue {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = CostValue;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(
                    "a number, or a distribution as in { kind = \"uniform\", low = 1, high = 4000 }",
                )
            }
            fn visit_i64<E: Error>(self, value: i64) -> Result<CostValue, E> {
                match u64::try_from(value) {
                    Ok(value) if value > 0 => Ok(CostValue(Distribution::Constant { value })),
                    _ => Err(E::custom(format!("{value} is not a cost; write 1 or more"))),
                }
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<CostValue, A::Error> {
                let drawn = Distribution::deserialize(MapAccessDeserializer::new(map))?;
                drawn.check().map_err(A::Error::custom)?;
                Ok(CostValue(drawn))
            }
        }
        from.deserialize_any(Reader)
    }
}

/// A number or a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Name {
    Number(u64),
    Word(String),
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Name::Number(number) => number.fmt(f),
            Name::Word(word) => word.fmt(f),
        }
    }
}

/// One name or a list of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Names(pub(super) Vec<Name>);

struct NamesReader;

impl<'de> Visitor<'de> for NamesReader {
    type Value = Names;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number, a name, or a list of them")
    }
    fn visit_i64<E: Error>(self, number: i64) -> Result<Names, E> {
        let number = u64::try_from(number)
            .map_err(|_| E::custom(format!("{number} is negative; numbers count from 0")))?;
        Ok(Names(vec![Name::Number(number)]))
    }
    fn visit_str<E: Error>(self, word: &str) -> Result<Names, E> {
        Ok(Names(vec![Name::Word(word.to_owned())]))
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Names, A::Error> {
        let mut all = Vec::new();
        while let Some(Names(names)) = seq.next_element()? {
            all.extend(names);
        }
        Ok(Names(all))
    }
}

impl<'de> Deserialize<'de> for Names {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(NamesReader)
    }
}

impl<'de> Deserialize<'de> for Name {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let Names(names) = Names::deserialize(from)?;
        match <[Name; 1]>::try_from(names) {
            Ok([name]) => Ok(name),
            Err(_) => Err(D::Error::custom("a list; write one number or name")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn durations_and_latencies() {
        assert_eq!(parse_duration("1.5s"), Some(Duration::from_millis(1500)));
        assert_eq!(parse_duration("5 m"), Some(Duration::from_secs(300)));
        for bad in ["", "5", "s", "-1s", "5d", "1e99h", "NaNs", "9999999h"] {
            assert_eq!(parse_duration(bad), None, "{bad}");
        }
        let uniform = |low, high| Some(Distribution::Uniform { low, high });
        assert_eq!(parse_latency("20ms-80ms"), uniform(20_000, 80_000));
        assert_eq!(parse_latency("80ms-20ms"), None);
    }

    proptest! {
        #[test]
        fn nothing_panics(text in ".{0,12}") {
            let _ = (parse_duration(&text), parse_latency(&text));
        }
    }
}
