//! Properties of an object that are transferred in headers: its time, content type and metadata.

use super::{Call, header_text, media_type};
use crate::backend::Extended;
use crate::{Entry, Kind};
use http::{HeaderMap, HeaderName, HeaderValue};

/// Standard headers that are kept.
const KEPT_HEADERS: [&str; 5] = [
    "content-type",
    "cache-control",
    "content-disposition",
    "content-encoding",
    "content-language",
];

/// The header names of a protocol.
pub(crate) struct ObjectHeaders {
    /// Prefix of user metadata.
    pub(crate) metadata_prefix: &'static str,
    /// Prefix of standard headers when they are sent.
    pub(crate) standard_prefix: &'static str,
    /// The header with the modification time, as rclone uses it.
    pub(crate) mtime_header: &'static str,
    pub(crate) write_time: fn(i64) -> String,
    pub(crate) read_time: fn(&str) -> Option<i64>,
}

/// Returns the version in an etag.
pub(crate) fn version(etag: &str) -> Vec<u8> {
    etag.trim_matches('"').as_bytes().to_vec()
}

/// Parses an HTTP date.
pub(crate) fn http_time(date: &str) -> Option<i64> {
    let date = jiff::fmt::rfc2822::parse(date).ok()?;
    i64::try_from(date.timestamp().as_nanosecond()).ok()
}

/// Formats a time as RFC 3339, to the nanosecond.
pub(crate) fn write_rfc3339(nanos: i64) -> String {
    jiff::Timestamp::from_nanosecond(i128::from(nanos))
        .map(|time| time.to_string())
        .unwrap_or_default()
}

pub(crate) fn read_rfc3339(text: &str) -> Option<i64> {
    let time: jiff::Timestamp = text.parse().ok()?;
    i64::try_from(time.as_nanosecond()).ok()
}

impl ObjectHeaders {
    /// Returns the entry described by the headers of a response.
    pub(crate) fn entry_of(&self, name: &[u8], headers: &HeaderMap) -> Entry {
        let total = header_text(headers, "content-range")
            .and_then(|range| range.rsplit_once('/')?.1.parse().ok());
        let length = header_text(headers, "content-length").and_then(|length| length.parse().ok());
        let written = header_text(headers, self.mtime_header).and_then(self.read_time);
        let arrived = header_text(headers, "last-modified").and_then(http_time);
        Entry {
            size: total.or(length).unwrap_or(0),
            modified: written.or(arrived),
            changed: arrived,
            version: header_text(headers, "etag").map(version),
            ..Entry::new(name, Kind::File)
        }
    }

    /// Returns the content type and the metadata, without the modification time.
    pub(crate) fn extended_of(&self, headers: &HeaderMap) -> Extended {
        let kept = KEPT_HEADERS
            .iter()
            .filter_map(|name| Some((name.as_bytes().to_vec(), headers.get(*name)?)));
        let meta = headers
            .iter()
            .filter(|(name, _)| *name != self.mtime_header);
        let meta = meta.filter_map(|(name, value)| {
            let rest = name.as_str().strip_prefix(self.metadata_prefix)?;
            Some((format!("meta-{rest}").into_bytes(), value))
        });
        let pair = |(name, value): (Vec<u8>, &HeaderValue)| (name, value.as_bytes().to_vec());
        kept.chain(meta).map(pair).collect()
    }

    /// Adds the headers of a new object to a call.
    pub(crate) fn apply(
        &self,
        mut call: Call,
        key: &[u8],
        modified: Option<i64>,
        extended: &Extended,
    ) -> Call {
        let mut put = |name: &[u8], value: &[u8]| {
            let name = HeaderName::from_bytes(name);
            if let (Ok(name), Ok(value)) = (name, HeaderValue::from_bytes(value)) {
                call.headers.insert(name, value);
            }
        };
        let own = |name: &[u8]| [self.standard_prefix.as_bytes(), name].concat();
        put(&own(b"content-type"), media_type::for_key(key).as_bytes());
        for (name, value) in extended {
            match name.strip_prefix(b"meta-") {
                Some(rest) => put(&[self.metadata_prefix.as_bytes(), rest].concat(), value),
                None if is_kept(name) => put(&own(name), value),
                None => {}
            }
        }
        if let Some(modified) = modified {
            put(
                self.mtime_header.as_bytes(),
                (self.write_time)(modified).as_bytes(),
            );
        }
        call
    }
}

/// Returns whether a header is kept.
pub(crate) fn is_kept(name: &[u8]) -> bool {
    KEPT_HEADERS.iter().any(|kept| kept.as_bytes() == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_kept_to_the_nanosecond() {
        for time in [0, 1, -1, 1_600_000_000_123_456_789, i64::MAX, i64::MIN] {
            assert_eq!(read_rfc3339(&write_rfc3339(time)), Some(time), "{time}");
        }
        // As rclone writes it, in any time zone.
        let expected = Some(1_600_000_000_123_000_000);
        assert_eq!(
            read_rfc3339("2020-09-13T14:26:40.123000000+02:00"),
            expected
        );
        assert_eq!(read_rfc3339("2020-09-13T12:26:40.123Z"), expected);
        assert_eq!(read_rfc3339("yesterday"), None);
        let http = http_time("Sun, 13 Sep 2020 12:26:40 GMT");
        assert_eq!(http, Some(1_600_000_000_000_000_000));
    }
}
