//! What an answer's headers tell of the upstream's limits.

use std::time::Duration;

use http::{HeaderMap, HeaderValue, StatusCode};

/// What an upstream says about itself.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Hints {
    /// When it may be asked again, if it had too much to do.
    pub(crate) retry_after: Option<Duration>,
    /// Requests a second that it allows.
    pub(crate) rps: Option<f64>,
    /// Tokens a second that it allows.
    pub(crate) tokens_per_sec: Option<f64>,
    /// Whether it had too much to do.
    pub(crate) overloaded: bool,
}

/// A pause longer than this is not believed.
const LONGEST: Duration = Duration::from_secs(3600);

/// Both providers tell their limits for a minute.
const MINUTE: f64 = 60.0;

/// Reads the headers of an answer.
pub(crate) fn read_hints(status: StatusCode, headers: &HeaderMap) -> Hints {
    let mut hints = Hints {
        overloaded: status == StatusCode::TOO_MANY_REQUESTS,
        ..Hints::default()
    };
    // One pass over the few headers there are costs less than looking for each of the many that there may be.
    let (mut seconds, mut millis) = (None, None);
    for (name, value) in headers {
        let place = match name.as_str() {
            "retry-after" => &mut seconds,
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
    let seconds = millis.map(|millis| millis / 1000.0).or(seconds);
    hints.retry_after = seconds
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        .map(|after| after.min(LONGEST));
    hints
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
    fn nonsense_is_not_believed() {
        let odd = hints(&[
            ("retry-after", "Wed, 21 Oct 2015 07:28:00 GMT"),
            ("x-ratelimit-limit-tokens", "-5"),
        ]);
        assert_eq!((odd.retry_after, odd.tokens_per_sec), (None, None));
        assert_eq!(hints(&[("retry-after", "1e300")]).retry_after, None);
        assert_eq!(
            hints(&[("retry-after", "99999999")]).retry_after,
            Some(LONGEST)
        );
    }
}
