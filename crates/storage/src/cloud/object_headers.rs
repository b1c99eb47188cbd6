//! What belongs to an object beside its bytes, where that is told in headers: its time, content
//! type and metadata.

use super::{Call, header_text, media_type};
use crate::backend::Extended;
use crate::{Entry, Kind};
use http::{HeaderMap, HeaderName, HeaderValue};

/// What else of an object is kept.
const KEPT_HEADERS: [&str; 5] = [
    "content-type",
    "cache-control",
    "content-disposition",
    "content-encoding",
    "content-language",
];

/// How a protocol writes these headers.
pub(crate) struct ObjectHeaders {
    /// What stands before the names that users gave.
    pub(crate) metadata_prefix: &'static str,
    /// What stands before the others when they are sent.
    pub(crate) standard_prefix: &'static str,
    /// The header with the modification time, as rclone keeps it.
    pub(crate) mtime_header: &'static str,
    pub(crate) write_time: fn(i64) -> String,
    pub(crate) read_time: fn(&str) -> Option<i64>,
}

/// The version in an etag.
pub(crate) fn version(etag: &str) -> Vec<u8> {
    etag.trim_matches('"').as_bytes().to_vec()
}

/// A time as HTTP writes it.
pub(crate) fn http_time(date: &str) -> Option<i64> {
    let date = jiff::fmt::rfc2822::parse(date).ok()?;
    i64::try_from(date.timestamp().as_nanosecond()).ok()
}

/// A time as RFC 3339 has it, to the nanosecond.
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
    /// What the headers of an answer say of an object.
    pub(crate) fn entry_of(&self, name: &[u8], headers: &HeaderMap) -> Entry {
        let total = header_text(headers, "content-range")
            .and_then(|range| range.rsplit_once('/')?.1.parse().ok());
        let length = header_text(headers, "content-length").and_then(|length| length.parse().ok());
        let written = header_text(headers, self.mtime_header).and_then(self.read_time);
        let arrived = || http_time(header_text(headers, "last-modified")?);
        Entry {
            size: total.or(length).unwrap_or(0),
            modified: written.or_else(arrived),
            version: header_text(headers, "etag").map(version),
            ..Entry::new(name, Kind::File)
        }
    }

    /// Content type and metadata, without what is ours.
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

    /// The call with the headers that a new object is dressed with.
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

/// Whether it is one of the headers that are kept.
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
        // As rclone writes it, in whatever zone it runs.
        let told = Some(1_600_000_000_123_000_000);
        assert_eq!(read_rfc3339("2020-09-13T14:26:40.123000000+02:00"), told);
        assert_eq!(read_rfc3339("2020-09-13T12:26:40.123Z"), told);
        assert_eq!(read_rfc3339("yesterday"), None);
        let http = http_time("Sun, 13 Sep 2020 12:26:40 GMT");
        assert_eq!(http, Some(1_600_000_000_000_000_000));
    }
}
