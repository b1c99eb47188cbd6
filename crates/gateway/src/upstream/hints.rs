//! Hints: what the headers of a response say about an upstream's limits.

use std::time::Duration;

use http::header::DATE;
use http::{HeaderMap, HeaderValue, StatusCode};
use jiff::Timestamp;

/// Limits and load that an upstream states.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Hints {
    /// Time after which an overloaded upstream may be called again.
    pub(crate) retry_after: Option<Duration>,
    /// Requests per second that it allows.
    pub(crate) rps: Option<f64>,
    /// Tokens per second that it allows.
    pub(crate) tokens_per_sec: Option<f64>,
    /// Whether it rejected the request because of its load.
    pub(crate) overloaded: bool,
}

/// Upper bound of `Retry-After`. A wrong header must not suspend an upstream for days.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(3600);

/// Both providers state their limits per minute.
const MINUTE: f64 = 60.0;

/// Reads the headers of a response.
pub(crate) fn read_hints(status: StatusCode, headers: &HeaderMap) -> Hints {
    let mut hints = Hints {
        overloaded: status == StatusCode::TOO_MANY_REQUESTS,
        ..Hints::default()
    };
    // A response has few headers, so one pass costs less than one lookup per known header.
    let (mut seconds, mut millis, mut date) = (None, None, None);
    for (name, value) in headers {
        let place = match name.as_str() {
            "retry-after" => {
                date = date.or_else(|| timestamp(value));
                &mut seconds
            }
            "retry-after-ms" => &mut millis,
            "x-ratelimit-limit-requests" | "anthropic-ratelimit-requests-limit" => &mut hints.rps,
            "x-ratelimit-limit-tokens" | "anthropic-ratelimit-tokens-limit" => {
                &mut hints.tokens_per_sec
            }
            _ => continue,
        };
        *place = place.or_else(|| number(value));
    }
    for rate in [&mut hints.rps, &mut hints.tokens_per_sec] {
        *rate = rate.map(|limit| limit / MINUTE);
    }
    let until = || {
        // Relative to the upstream's own clock, if the response has a date: the clocks may differ.
        let now = headers.get(DATE).and_then(timestamp);
        let now = now.unwrap_or_else(Timestamp::now);
        let seconds = date?.duration_since(now).as_secs_f64();
        (seconds > 0.0).then_some(seconds)
    };
    // `retry-after-ms` is the more precise one.
    let seconds = millis.map(|millis| millis / 1000.0).or(seconds);
    hints.retry_after = seconds
        .or_else(until)
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        .map(|after| after.min(MAX_RETRY_AFTER));
    hints
}

/// Parses an HTTP date.
fn timestamp(value: &HeaderValue) -> Option<Timestamp> {
    let parser = jiff::fmt::rfc2822::DateTimeParser::new();
    parser.parse_timestamp(value.to_str().ok()?).ok()
}

fn number(value: &HeaderValue) -> Option<f64> {
    let number: f64 = value.to_str().ok()?.trim().parse().ok()?;
    (number.is_finite() && number > 0.0).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hints(pairs: &[(&'static str, &'static str)]) -> Hints {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.insert(*name, value.parse().unwrap());
        }
        read_hints(StatusCode::TOO_MANY_REQUESTS, &headers)
    }

    #[test]
    fn both_providers_are_understood() {
        let openai = hints(&[
            ("x-ratelimit-limit-tokens", "60000"),
            ("retry-after-ms", "1500"),
        ]);
        assert_eq!(openai.tokens_per_sec, Some(1000.0));
        assert_eq!(openai.retry_after, Some(Duration::from_millis(1500)));
        let anthropic = hints(&[
            ("anthropic-ratelimit-requests-limit", "120"),
            ("retry-after", "7"),
        ]);
        assert_eq!(anthropic.rps, Some(2.0));
        assert_eq!(anthropic.retry_after, Some(Duration::from_secs(7)));
    }

    #[test]
    fn a_time_of_day_to_return_at_is_understood() {
        let date = ("date", "Wed, 21 Oct 2015 07:28:00 GMT");
        let after = |at| hints(&[date, ("retry-after", at)]).retry_after;
        let minute = Some(Duration::from_secs(60));
        assert_eq!(after("Wed, 21 Oct 2015 07:29:00 GMT"), minute);
        assert_eq!(after("Wed, 21 Oct 2015 07:27:00 GMT"), None, "it is over");
        assert_eq!(
            after("Wed, 21 Oct 2099 07:27:00 GMT"),
            Some(MAX_RETRY_AFTER)
        );
    }

    #[test]
    fn nonsense_is_not_believed() {
        let odd = hints(&[("retry-after", "soon"), ("x-ratelimit-limit-tokens", "-5")]);
        assert_eq!((odd.retry_after, odd.tokens_per_sec), (None, None));
        assert_eq!(hints(&[("retry-after", "1e300")]).retry_after, None);
        assert_eq!(
            hints(&[("retry-after", "99999999")]).retry_after,
            Some(MAX_RETRY_AFTER)
        );
    }
}
