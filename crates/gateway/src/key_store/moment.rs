//! Points in time as people write them.

use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};

use headworks_service::config::parse_seconds;

/// Reads a point in time: `2027-01-01T00:00:00Z`, a day in UTC such as `2027-01-01`, or a time from
/// now such as `90d`.
///
/// # Errors
/// If the text has another form.
pub fn parse_moment(text: &str) -> Result<Timestamp, String> {
    if let Ok(at) = text.parse::<Timestamp>() {
        return Ok(at);
    }
    let day = text.parse::<Date>().ok();
    if let Some(start) = day.and_then(|day| day.to_zoned(TimeZone::UTC).ok()) {
        return Ok(start.timestamp());
    }
    let from_now = parse_seconds(text)
        .and_then(|time| SignedDuration::try_from(time).ok())
        .and_then(|time| Timestamp::now().checked_add(time).ok());
    from_now.ok_or_else(|| {
        format!("invalid time `{text}`: expected 2027-01-01T00:00:00Z, 2027-01-01, or 90d from now")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_absolute_or_from_now() {
        let read = |text| parse_moment(text).unwrap().to_string();
        assert_eq!(read("2027-01-01T01:00:00+01:00"), "2027-01-01T00:00:00Z");
        assert_eq!(read("2027-01-01"), "2027-01-01T00:00:00Z");
        let soon = parse_moment("90d")
            .unwrap()
            .duration_since(Timestamp::now());
        assert!(soon.as_hours() >= 90 * 24 - 1 && soon.as_hours() <= 90 * 24);
        for wrong in ["", "tomorrow", "-1d", "2027-13-01", "99999999999999d"] {
            assert!(parse_moment(wrong).is_err(), "{wrong}");
        }
    }
}
