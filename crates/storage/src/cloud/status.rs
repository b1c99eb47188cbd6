//! The meaning of HTTP statuses that all servers share.

use super::text::header_text;
use crate::error::ErrorKind;
use http::{HeaderMap, StatusCode};
use std::time::Duration;

/// Returns the kind of error of an HTTP status.
pub(crate) fn kind_of_status(status: StatusCode, headers: &HeaderMap) -> ErrorKind {
    match status.as_u16() {
        404 | 410 => ErrorKind::NotFound,
        401 | 403 | 407 => ErrorKind::Denied,
        405 | 501 => ErrorKind::Unsupported,
        408 | 425 | 500 | 502 | 504 => ErrorKind::Temporary,
        412 | 304 => ErrorKind::Changed,
        414 => ErrorKind::BadName,
        429 | 503 => ErrorKind::Overload(retry_after(headers)),
        507 => ErrorKind::NoSpace,
        _ => ErrorKind::Other,
    }
}

/// Maximum delay that `Retry-After` can impose.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds = header_text(headers, "retry-after")?.parse().ok()?;
    Some(Duration::from_secs(seconds).min(LONGEST_WAIT))
}
