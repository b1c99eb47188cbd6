//! The time of the service: a signature with another time is rejected.

use super::header_text;
use http::HeaderMap;
use jiff::{SignedDuration, Timestamp};
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

/// The least error of a signature's time, in seconds, for which a service rejects the signature.
/// With a smaller one, the reason is another, and the clock is not corrected.
const MIN_SKEW: i64 = 60;

/// This machine's clock, corrected by what the service says about its own.
#[derive(Debug, Default)]
pub(crate) struct Clock {
    /// The time of the service less that of this machine, in seconds.
    offset: AtomicI64,
}

impl Clock {
    /// Returns the time of the service.
    pub(crate) fn now(&self) -> Timestamp {
        self.at(Timestamp::now())
    }

    fn at(&self, machine: Timestamp) -> Timestamp {
        let offset = SignedDuration::from_secs(self.offset.load(Relaxed));
        machine.checked_add(offset).unwrap_or(machine)
    }

    /// Takes over the time of a response. Returns whether it is another one than the call was
    /// signed with. Of several calls with a wrong time, the first may have corrected it already.
    pub(crate) fn correct(&self, signed: &HeaderMap, headers: &HeaderMap) -> bool {
        self.correct_at(Timestamp::now(), signed, headers)
    }

    /// Does the same for a request that was signed at this time.
    pub(crate) fn correct_since(&self, signed: Timestamp, headers: &HeaderMap) -> bool {
        self.correct_from(Timestamp::now(), signed, headers)
    }

    fn correct_at(&self, machine: Timestamp, signed: &HeaderMap, headers: &HeaderMap) -> bool {
        signed_at(signed).is_some_and(|signed| self.correct_from(machine, signed, headers))
    }

    fn correct_from(&self, machine: Timestamp, signed: Timestamp, headers: &HeaderMap) -> bool {
        let Some(offset) = offset(machine, headers) else {
            return false;
        };
        let service = machine.as_second() + offset;
        let differs = service.abs_diff(signed.as_second()) >= MIN_SKEW.unsigned_abs();
        if differs {
            self.offset.store(offset, Relaxed);
        }
        differs
    }

    /// Returns what to do about a time that the service rejects.
    pub(crate) fn advice(&self, headers: &HeaderMap) -> String {
        match offset(Timestamp::now(), headers) {
            Some(offset) if offset != 0 => {
                format!("{}; set it", difference(offset))
            }
            _ => "set the clock of this machine".to_owned(),
        }
    }

    /// Returns a notice if the clock had to be corrected.
    pub(crate) fn notice(&self) -> Option<String> {
        let offset = self.offset.load(Relaxed);
        let corrected = || format!("{}; requests were signed with its time", difference(offset));
        (offset != 0).then(corrected)
    }
}

/// Returns the time that a request was signed with.
fn signed_at(signed: &HeaderMap) -> Option<Timestamp> {
    if let Some(date) = header_text(signed, "x-ms-date") {
        return Some(jiff::fmt::rfc2822::parse(date).ok()?.timestamp());
    }
    let date = header_text(signed, "x-amz-date")?;
    let date = jiff::civil::DateTime::strptime("%Y%m%dT%H%M%SZ", date).ok()?;
    Some(date.to_zoned(jiff::tz::TimeZone::UTC).ok()?.timestamp())
}

/// Returns the time of a response less that of this machine, in seconds.
fn offset(machine: Timestamp, headers: &HeaderMap) -> Option<i64> {
    let date = header_text(headers, "date")?;
    let date = jiff::fmt::rfc2822::parse(date).ok()?;
    Some(date.timestamp().as_second() - machine.as_second())
}

fn difference(offset: i64) -> String {
    let seconds = offset.unsigned_abs();
    let direction = if offset > 0 { "behind" } else { "ahead of" };
    format!("the clock of this machine is {seconds} s {direction} that of the service")
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    fn dated(date: &'static str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert("date", HeaderValue::from_static(date));
        headers
    }

    fn signed(date: &'static str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert("x-amz-date", HeaderValue::from_static(date));
        headers
    }

    #[test]
    fn a_clock_is_corrected_once_for_each_difference() {
        let clock = Clock::default();
        let machine: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let date = dated("Thu, 01 Jan 2026 01:00:00 GMT");
        let (wrong, right) = (signed("20260101T000000Z"), signed("20260101T010000Z"));
        assert!(!clock.correct_at(machine, &wrong, &HeaderMap::new()));
        assert!(!clock.correct_at(machine, &wrong, &dated("Thu, 01 Jan 2026 00:00:30 GMT")));
        assert_eq!(clock.notice(), None);
        assert!(clock.correct_at(machine, &wrong, &date));
        assert_eq!(clock.at(machine).to_string(), "2026-01-01T01:00:00Z");
        assert!(
            clock.correct_at(machine, &wrong, &date),
            "another call that was signed before"
        );
        assert!(
            !clock.correct_at(machine, &right, &date),
            "the time is not the reason"
        );
        let notice = clock.notice().unwrap();
        assert!(
            notice.contains("3600 s behind that of the service"),
            "{notice}"
        );
    }
}
