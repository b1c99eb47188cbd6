//! Descriptions of arrival processes.

use super::Stream;
use crate::SynthError;
use crate::units::duration;
use std::time::Duration;

/// An arrival process.
///
/// ```
/// use headworks_synth::Arrivals;
/// use std::time::Duration;
///
/// let arrivals = Arrivals::Bursts { size: 2, every: Duration::from_secs(10) };
/// let times: Vec<u64> = arrivals.stream(7).take(5).map(|arrival| arrival.at.as_secs()).collect();
/// assert_eq!(times, [0, 0, 10, 10, 20]);
/// ```
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
#[non_exhaustive]
pub enum Arrivals {
    /// At constant intervals.
    Constant {
        /// Requests per second.
        rate: f64,
    },
    /// A Poisson process: independent arrivals, as from many users.
    Poisson {
        /// Requests per second, on average.
        rate: f64,
    },
    /// Many at the same moment, periodically.
    Bursts {
        /// Requests per burst.
        size: u32,
        /// The interval between bursts.
        #[serde(with = "duration")]
        every: Duration,
    },
    /// A Poisson process that is switched on and off.
    OnOff {
        /// Requests per second while on, on average.
        rate: f64,
        /// The duration of an on phase.
        #[serde(with = "duration")]
        on: Duration,
        /// The duration of an off phase.
        #[serde(with = "duration")]
        off: Duration,
    },
    /// A closed load: clients wait for a response, think, and ask again. Responses are reported by
    /// [`Stream::answered`].
    Closed {
        /// The number of clients.
        clients: u32,
        /// The mean think time (exponentially distributed).
        #[serde(with = "duration")]
        think: Duration,
    },
}

impl Arrivals {
    /// Starts a run; the same seed gives the same arrivals.
    #[must_use]
    pub fn stream(&self, seed: u64) -> Stream {
        Stream::new(self.clone(), seed)
    }

    /// Checks the parameters. A stream with invalid parameters has no arrivals.
    ///
    /// # Errors
    /// Names the invalid field.
    pub fn check(&self) -> Result<(), SynthError> {
        match self {
            Arrivals::Constant { rate } | Arrivals::Poisson { rate } => check_rate(*rate),
            Arrivals::OnOff { rate, on, .. } => check_rate(*rate).and(check_length("on", *on)),
            Arrivals::Bursts { size, every } => {
                check_length("every", *every).and(check_count("size", *size))
            }
            Arrivals::Closed { clients, .. } => check_count("clients", *clients),
        }
    }

    /// The long-term rate in requests per second; `None` if it depends on response times.
    #[must_use]
    pub fn mean_rate(&self) -> Option<f64> {
        match self {
            Arrivals::Constant { rate } | Arrivals::Poisson { rate } => Some(*rate),
            Arrivals::Bursts { size, every } => Some(f64::from(*size) / every.as_secs_f64()),
            Arrivals::OnOff { rate, on, off } => {
                let (on, off) = (on.as_secs_f64(), off.as_secs_f64());
                Some(rate * on / (on + off))
            }
            Arrivals::Closed { .. } => None,
        }
    }
}

fn check_rate(rate: f64) -> Result<(), SynthError> {
    if rate > 0.0 && rate <= 1e9 {
        return Ok(());
    }
    Err(SynthError::OutOfRange {
        field: "rate",
        value: rate.to_string(),
        expected: "requests per second, above 0 and at most 1e9",
    })
}

fn check_length(field: &'static str, length: Duration) -> Result<(), SynthError> {
    if !length.is_zero() {
        return Ok(());
    }
    Err(SynthError::OutOfRange {
        field,
        value: "0s".to_owned(),
        expected: "above zero, such as 10s",
    })
}

fn check_count(field: &'static str, count: u32) -> Result<(), SynthError> {
    if count > 0 {
        return Ok(());
    }
    Err(SynthError::OutOfRange {
        field,
        value: count.to_string(),
        expected: "at least 1",
    })
}
