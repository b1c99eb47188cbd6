//! Single objects: their headers, and reading them.

use super::bucket::Bucket;
use crate::backend::Extended;
use crate::cloud::object_headers::{ObjectHeaders, version};
use crate::cloud::ranged_read::{Checksum, RangeSource};
use crate::cloud::{SegmentedBytes, StreamedResponse, header_text};
use crate::error::{Error, ErrorKind, Result};
use crate::{BoxFuture, Entry};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use http::header::CONTENT_RANGE;
use http::{HeaderMap, Method};
use std::sync::Arc;

/// The modification time is stored as rclone stores it: seconds with a fraction.
pub(super) const HEADERS: ObjectHeaders = ObjectHeaders {
    metadata_prefix: "x-amz-meta-",
    standard_prefix: "",
    mtime_header: "x-amz-meta-mtime",
    write_time,
    read_time,
};

/// Formats a time.
fn write_time(nanos: i64) -> String {
    let sign = if nanos < 0 { "-" } else { "" };
    let nanos = nanos.unsigned_abs();
    let (seconds, fraction) = (nanos / 1_000_000_000, nanos % 1_000_000_000);
    let text = format!("{sign}{seconds}.{fraction:09}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Parses a time, to the nanosecond.
fn read_time(text: &str) -> Option<i64> {
    let (negative, text) = text
        .strip_prefix('-')
        .map_or((false, text), |rest| (true, rest));
    let (seconds, fraction) = text.split_once('.').unwrap_or((text, ""));
    let digits = fraction.get(..9).unwrap_or(fraction);
    if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let nanos: i64 = format!("{digits:0<9}").parse().ok()?;
    let whole_seconds = seconds
        .parse::<i64>()
        .ok()
        .filter(|s| *s >= 0)?
        .checked_mul(1_000_000_000)?;
    let time = whole_seconds.checked_add(nanos)?;
    Some(if negative { -time } else { time })
}

impl Bucket {
    pub(super) async fn head(&self, key: &[u8]) -> Result<HeaderMap> {
        let call = self.object_call("head", "look at", key, Method::HEAD)?;
        Ok(self.fetch(&call).await?.headers)
    }

    /// Creates an empty object.
    pub(super) async fn put_empty(&self, key: &[u8]) -> Result<()> {
        let call = self
            .object_call("put", "make", key, Method::PUT)?
            .body(SegmentedBytes::default());
        self.fetch(&call).await.map(drop)
    }
}

/// An object to be read.
pub(super) struct Object {
    pub(super) bucket: Arc<Bucket>,
    pub(super) key: Vec<u8>,
    pub(super) name: Vec<u8>,
}

impl RangeSource for Object {
    fn request_range<'a>(
        &'a self,
        range: Option<&'a str>,
        version: Option<&'a [u8]>,
    ) -> BoxFuture<'a, Result<StreamedResponse>> {
        Box::pin(async move {
            let mut call = self
                .bucket
                .object_call("get", "read", &self.key, Method::GET)?;
            if self.bucket.checksums {
                call = call.header("x-amz-checksum-mode", "ENABLED");
            }
            if let Some(version) = version {
                call = call.header("if-match", &format!("\"{}\"", version.escape_ascii()));
            }
            if let Some(range) = range {
                call = call.header("range", range);
            }
            self.bucket.endpoint.open(&*self.bucket, &call).await
        })
    }

    fn info(&self, headers: &HeaderMap) -> (Entry, Extended) {
        (
            HEADERS.entry_of(&self.name, headers),
            HEADERS.extended_of(headers),
        )
    }

    fn check(&self, headers: &HeaderMap) -> Option<Checksum> {
        if !self.bucket.checksums {
            return None;
        }
        // In the response to a range, it is the checksum of that range.
        let whole = !headers.contains_key(CONTENT_RANGE);
        let header = header_text(headers, "x-amz-checksum-sha256").filter(|_| whole);
        if let Some(hash) = header.and_then(|base64| BASE64_STANDARD.decode(base64).ok()) {
            return Some(Checksum::sha256(hash));
        }
        // With customer keys, and for multipart uploads, the etag is not a hash of the bytes.
        let by = header_text(headers, "x-amz-server-side-encryption");
        let encrypted = by.is_some_and(|by| by != "AES256")
            || headers.contains_key("x-amz-server-side-encryption-customer-algorithm");
        let etag = version(header_text(headers, "etag")?);
        let is_md5 = etag.len() == 32 && etag.iter().all(u8::is_ascii_hexdigit);
        (is_md5 && !encrypted).then(|| Checksum::md5(&etag))
    }

    fn failure(&self, kind: ErrorKind, message: &str) -> Error {
        let call = self.bucket.call("get", "read", &self.key, Method::GET);
        call.failure(kind, message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_kept_to_the_nanosecond() {
        for time in [
            0,
            1,
            -1,
            1_600_000_000_123_456_789,
            1_600_000_000_000_000_000,
            i64::MAX,
            -1_500_000_000,
        ] {
            assert_eq!(
                read_time(&write_time(time)),
                Some(time),
                "{}",
                write_time(time)
            );
        }
        assert_eq!(write_time(1_500_000_000), "1.5");
        assert_eq!(
            read_time("1354040105.123456789"),
            Some(1_354_040_105_123_456_789)
        );
        assert_eq!(read_time("1354040105"), Some(1_354_040_105_000_000_000));
        assert_eq!(read_time("yesterday"), None);
        assert_eq!(read_time("1.2x"), None);
    }
}
