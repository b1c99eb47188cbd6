//! Hints: what the headers of a response say about an upstream's limits.

use std::time::Duration;

use http::header::DATE;
use http::{HeaderMap, HeaderValue, StatusCode};
use jiff::Timestamp;

use super::StatedLimit;

/// Limits and load that an upstream states.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Hints {
    /// Time after which an overloaded upstream may be called again.
    pub(crate) retry_after: Option<Duration>,
    /// Requests per second that it allows.
    pub(crate) rps: Option<f64>,
    /// Tokens per second that it allows.
    pub(crate) tokens_per_sec: Option<f64>,
    /// Requests and tokens that are left.
    pub(crate) requests: StatedLimit,
    pub(crate) tokens: StatedLimit,
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
    let own_date = || headers.get(DATE).and_then(timestamp);
    for (name, value) in headers {
        match name.as_str() {
            "x-ratelimit-remaining-requests" | "anthropic-ratelimit-requests-remaining" => {
                hints.requests.remaining = count(value);
                continue;
            }
            "x-ratelimit-remaining-tokens" | "anthropic-ratelimit-tokens-remaining" => {
                hints.tokens.remaining = count(value);
                continue;
            }
            "x-ratelimit-reset-requests" | "anthropic-ratelimit-requests-reset" => {
                hints.requests.reset = reset(value, own_date);
                continue;
            }
            "x-ratelimit-reset-tokens" | "anthropic-ratelimit-tokens-reset" => {
                hints.tokens.reset = reset(value, own_date);
                continue;
            }
            _ => {}
        }
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
    (hints.requests.limit, hints.tokens.limit) = (hints.rps, hints.tokens_per_sec);
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

fn count(value: &HeaderValue) -> Option<f64> {
    let count: f64 = value.to_str().ok()?.trim().parse().ok()?;
    (count.is_finite() && count >= 0.0).then_some(count)
}

/// Time until a reset: OpenAI writes `6m0s` or `250ms`, Anthropic an RFC 3339 timestamp, which is
/// relative to the provider's own clock.
fn reset(value: &HeaderValue, own_date: impl Fn() -> Option<Timestamp>) -> Option<Duration> {
    let text = value.to_str().ok()?.trim();
    let seconds = match text.parse::<Timestamp>() {
        Ok(at) => {
            let now = own_date().unwrap_or_else(Timestamp::now);
            at.duration_since(now).as_secs_f64().max(0.0)
        }
        Err(_) => span(text)?,
    };
    let reset = Duration::try_from_secs_f64(seconds).ok()?;
    Some(reset.min(MAX_RETRY_AFTER))
}

/// Seconds of a span such as `1h2m3.5s`, `250ms` or `12`.
fn span(mut text: &str) -> Option<f64> {
    if let Ok(seconds) = text.parse::<f64>() {
        return (seconds.is_finite() && seconds >= 0.0).then_some(seconds);
    }
    let mut seconds = 0.0;
    while !text.is_empty() {
        let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let number: f64 = text[..digits].parse().ok()?;
        let rest = &text[digits..];
        let units = [
            ("ms", 0.001),
            ("h", 3600.0),
            ("m", 60.0),
            ("s", 1.0),
            ("d", 86_400.0),
        ];
        let (unit, factor) = units.iter().find(|(unit, _)| rest.starts_with(unit))?;
        seconds += number * factor;
        text = &rest[unit.len()..];
    }
    Some(seconds)
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
    fn the_rest_of_a_limit_is_understood() {
        let openai = hints(&[
            ("x-ratelimit-limit-requests", "60"),
            ("x-ratelimit-remaining-requests", "0"),
            ("x-ratelimit-reset-requests", "6m0s"),
            ("x-ratelimit-remaining-tokens", "149984"),
            ("x-ratelimit-reset-tokens", "6ms"),
        ]);
        let stated = |limit, remaining, millis| StatedLimit {
            limit,
            remaining: Some(remaining),
            reset: Some(Duration::from_millis(millis)),
        };
        assert_eq!(openai.requests, stated(Some(60.0), 0.0, 360_000));
        assert_eq!(openai.tokens, stated(None, 149_984.0, 6));
        let anthropic = hints(&[
            ("date", "Wed, 21 Oct 2015 07:28:00 GMT"),
            ("anthropic-ratelimit-tokens-limit", "1000"),
            ("anthropic-ratelimit-tokens-remaining", "7"),
            ("anthropic-ratelimit-tokens-reset", "2015-10-21T07:28:30Z"),
        ]);
        assert_eq!(anthropic.tokens, stated(Some(1000.0), 7.0, 30_000));
        for (text, seconds) in [
            ("4s", Some(4.0)),
            ("1h2m3.5s", Some(3723.5)),
            ("12", Some(12.0)),
        ] {
            assert_eq!(span(text), seconds, "{text}");
        }
        for nonsense in ["soon", "5", "m", "-4s", "4x", "s4", ""] {
            let told = span(nonsense);
            assert!(
                told.is_none() || nonsense == "5" || nonsense.is_empty(),
                "{nonsense}"
            );
        }
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
