//! Single objects: their headers, and reading them.

use super::bucket::Bucket;
use crate::backend::Extended;
use crate::cloud::checksum::{Algorithm, Checksum};
use crate::cloud::object_headers::{ObjectHeaders, version};
use crate::cloud::ranged_read::RangeSource;
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

/// A hash, and the number of parts if it is that of their hashes.
type Stated = (Vec<u8>, Option<u64>);

/// Returns the SHA-256 in a header. Some services do not write the number of parts; of an object in
/// parts it is then that of all bytes only if the service says so.
fn sha256(headers: &HeaderMap) -> Option<Stated> {
    let text = header_text(headers, "x-amz-checksum-sha256")?;
    let is_in_parts = header_text(headers, "etag").is_some_and(|etag| etag.contains('-'));
    let kind = header_text(headers, "x-amz-checksum-type");
    if is_in_parts && !text.contains('-') && kind != Some("FULL_OBJECT") {
        return None;
    }
    let (hash, parts) = match text.split_once('-') {
        Some((hash, parts)) => (hash, Some(parts.parse().ok()?)),
        None => (text, None),
    };
    let hash = BASE64_STANDARD.decode(hash).ok()?;
    (hash.len() == 32).then_some((hash, parts))
}

/// Returns the MD5 in an etag. With other keys than the service's own it is encrypted.
fn md5(headers: &HeaderMap) -> Option<Stated> {
    let by = header_text(headers, "x-amz-server-side-encryption");
    let is_encrypted = by.is_some_and(|by| by != "AES256")
        || headers.contains_key("x-amz-server-side-encryption-customer-algorithm");
    let etag = version(header_text(headers, "etag")?);
    let text = std::str::from_utf8(&etag).ok().filter(|_| !is_encrypted)?;
    let (hash, parts) = match text.split_once('-') {
        Some((hash, parts)) => (hash, Some(parts.parse().ok()?)),
        None => (text, None),
    };
    let hash = hex::decode(hash).ok()?;
    (hash.len() == 16).then_some((hash, parts))
}

impl Object {
    /// Returns the headers of the object or of one of its parts, if the service has them.
    async fn head(&self, entry: &Entry, part: Option<u64>) -> Option<HeaderMap> {
        let (bucket, key) = (&self.bucket, &self.key);
        if !bucket.checksums {
            return None;
        }
        let call = bucket.object_call("head", "look at", key, Method::HEAD);
        let mut call = call.ok()?.header("x-amz-checksum-mode", "ENABLED");
        if let Some(version) = &entry.version {
            call = call.if_match(version);
        }
        if let Some(part) = part {
            call = call.query("partNumber", &part.to_string());
        }
        // Without a response the checksum counts as not stated.
        let response = bucket.fetch(&call).await.ok()?;
        Some(response.headers)
    }

    async fn part_size(&self, entry: &Entry, part: u64) -> Option<u64> {
        let headers = self.head(entry, Some(part)).await?;
        header_text(&headers, "content-length")?.parse().ok()
    }
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
        match sha256(headers).filter(|_| whole) {
            Some((hash, None)) => Some(Checksum::new(Algorithm::Sha256, hash)),
            _ => match md5(headers)? {
                (hash, None) => Some(Checksum::new(Algorithm::Md5, hash)),
                _ => None,
            },
        }
    }

    fn ask_checksum<'a>(&'a self, entry: &'a Entry) -> BoxFuture<'a, Option<Checksum>> {
        Box::pin(async move {
            let headers = self.head(entry, None).await?;
            let stated = sha256(&headers).map(|stated| (Algorithm::Sha256, stated));
            let etag = || md5(&headers).map(|stated| (Algorithm::Md5, stated));
            match stated.or_else(etag)? {
                (algorithm, (hash, None)) => Some(Checksum::new(algorithm, hash)),
                (algorithm, (hash, Some(parts))) => {
                    let size = self.part_size(entry, 1).await?;
                    let is_even = size > 0 && entry.size.div_ceil(size) == parts;
                    is_even.then(|| Checksum::of_parts(algorithm, hash, size))
                }
            }
        })
    }

    fn has_parts_of<'a>(&'a self, entry: &'a Entry, size: u64) -> BoxFuture<'a, Option<bool>> {
        Box::pin(async move {
            for part in 1..entry.size.div_ceil(size) {
                if self.part_size(entry, part).await? != size {
                    return Some(false);
                }
            }
            Some(true)
        })
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

    #[test]
    fn the_hashes_of_an_object_and_of_its_parts_are_distinguished() {
        let stated = |name: &'static str, value: &str| {
            HeaderMap::from_iter([(http::HeaderName::from_static(name), value.parse().unwrap())])
        };
        let etag = "0123456789abcdef0123456789ABCDEF";
        let hash = hex::decode(etag).unwrap();
        assert_eq!(
            md5(&stated("etag", &format!("\"{etag}\""))),
            Some((hash.clone(), None))
        );
        let of_parts = stated("etag", &format!("\"{etag}-12\""));
        assert_eq!(md5(&of_parts), Some((hash, Some(12))));
        for other in ["", "abc", "0x8D", "0123-2", &etag[1..]] {
            assert_eq!(md5(&stated("etag", other)), None, "{other}");
        }
        let text = BASE64_STANDARD.encode([7; 32]);
        let name = "x-amz-checksum-sha256";
        assert_eq!(sha256(&stated(name, &text)), Some((vec![7; 32], None)));
        let of_parts = stated(name, &format!("{text}-3"));
        assert_eq!(sha256(&of_parts), Some((vec![7; 32], Some(3))));
        assert_eq!(sha256(&stated(name, "AAAA")), None);
        // Of the whole or of the parts?
        let mut untold = stated(name, &text);
        untold.insert("etag", format!("\"{etag}-2\"").parse().unwrap());
        assert_eq!(sha256(&untold), None);
        untold.insert("x-amz-checksum-type", "FULL_OBJECT".parse().unwrap());
        assert_eq!(sha256(&untold), Some((vec![7; 32], None)));
    }
}
