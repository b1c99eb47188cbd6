//! Single objects: looking at them, reading them, removing and copying them.

use super::bucket::Bucket;
use super::listing::version;
use crate::backend::{Chunks, Extended};
use crate::cloud::{Answer, Call, Pieces, next, text};
use crate::error::{Error, ErrorKind, Result};
use crate::{BoxFuture, Entry, Kind};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use http::{HeaderMap, Method};
use md5::Md5;
use sha2::{Digest, Sha256};
use std::sync::Arc;

/// The header in which the modification time is kept, as rclone keeps it: seconds with a fraction.
const MTIME: &str = "x-amz-meta-mtime";
const META: &str = "x-amz-meta-";
/// What else of an object is kept.
const KEPT: [&str; 5] = [
    "content-type",
    "cache-control",
    "content-disposition",
    "content-encoding",
    "content-language",
];
/// Larger objects are not read from their beginning to their end in one call.
const WHOLE: u64 = 8 << 20;
/// How often a read that breaks off goes on where it was.
const RESUMES: u32 = 8;

/// A time as it is written.
pub(super) fn write_time(nanos: i64) -> String {
    let sign = if nanos < 0 { "-" } else { "" };
    let nanos = nanos.unsigned_abs();
    let (seconds, fraction) = (nanos / 1_000_000_000, nanos % 1_000_000_000);
    let text = format!("{sign}{seconds}.{fraction:09}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// A time as it was written, to the nanosecond.
pub(super) fn read_time(text: &str) -> Option<i64> {
    let (negative, text) = text
        .strip_prefix('-')
        .map_or((false, text), |rest| (true, rest));
    let (seconds, fraction) = text.split_once('.').unwrap_or((text, ""));
    let digits = fraction.get(..9).unwrap_or(fraction);
    if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let nanos: i64 = format!("{digits:0<9}").parse().ok()?;
    let whole = seconds
        .parse::<i64>()
        .ok()
        .filter(|s| *s >= 0)?
        .checked_mul(1_000_000_000)?;
    let time = whole.checked_add(nanos)?;
    Some(if negative { -time } else { time })
}

/// What the headers of an answer say of an object.
pub(super) fn entry_of(name: &[u8], headers: &HeaderMap) -> Entry {
    let total =
        text(headers, "content-range").and_then(|range| range.rsplit_once('/')?.1.parse().ok());
    let length = text(headers, "content-length").and_then(|length| length.parse().ok());
    let written = text(headers, MTIME).and_then(read_time);
    let arrived = || {
        let date = text(headers, "last-modified")?;
        let date = jiff::fmt::rfc2822::parse(date).ok()?;
        i64::try_from(date.timestamp().as_nanosecond()).ok()
    };
    Entry {
        size: total.or(length).unwrap_or(0),
        modified: written.or_else(arrived),
        version: text(headers, "etag").map(version),
        ..Entry::new(name, Kind::File)
    }
}

/// Content type and metadata, without what is ours.
pub(super) fn extended_of(headers: &HeaderMap) -> Extended {
    let kept = KEPT
        .iter()
        .filter_map(|name| Some((name.as_bytes().to_vec(), headers.get(*name)?)));
    let meta = headers.iter().filter(|(name, _)| *name != MTIME);
    let meta = meta.filter_map(|(name, value)| {
        let rest = name.as_str().strip_prefix(META)?;
        Some((format!("meta-{rest}").into_bytes(), value))
    });
    let pair = |(name, value): (Vec<u8>, &http::HeaderValue)| (name, value.as_bytes().to_vec());
    kept.chain(meta).map(pair).collect()
}

/// The headers that a new object is dressed with.
pub(super) fn dress(
    mut call: Call,
    key: &[u8],
    modified: Option<i64>,
    extended: &Extended,
) -> Call {
    call = call.header("content-type", super::media::of(key));
    for (name, value) in extended {
        let name = match name.strip_prefix(b"meta-") {
            Some(rest) => [META.as_bytes(), rest].concat(),
            None if KEPT.iter().any(|kept| kept.as_bytes() == name) => name.clone(),
            None => continue,
        };
        let name = http::HeaderName::from_bytes(&name);
        if let (Ok(name), Ok(value)) = (name, http::HeaderValue::from_bytes(value)) {
            call.headers.insert(name, value);
        }
    }
    match modified {
        Some(modified) => call.header(MTIME, &write_time(modified)),
        None => call,
    }
}

impl Bucket {
    pub(super) async fn head(&self, key: &[u8]) -> Result<HeaderMap> {
        let call = self.at("head", "look at", key, Method::HEAD)?;
        Ok(self.fetch(&call).await?.headers)
    }

    /// Whether any key begins with this.
    pub(super) async fn any_below(&self, path: &[u8], prefix: &[u8]) -> Result<bool> {
        let call = super::listing::list_call(self, path, prefix).query("max-keys", "1");
        let whole = self.fetch(&call).await?;
        Ok(crate::cloud::xml::find(&whole.body, "Key").is_some())
    }

    pub(super) async fn delete(&self, key: &[u8]) -> Result<()> {
        let call = self.at("delete", "remove", key, Method::DELETE)?;
        match self.fetch(&call).await {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            deleted => deleted.map(drop),
        }
    }

    /// An object of a few bytes that nothing depends on.
    pub(super) async fn put_empty(&self, key: &[u8]) -> Result<()> {
        let call = self
            .at("put", "make", key, Method::PUT)?
            .body(Pieces::default());
        self.fetch(&call).await.map(drop)
    }
}

/// What the bytes of an object must come to.
enum Check {
    Sha256(Sha256, Vec<u8>),
    Md5(Md5, Vec<u8>),
}

impl Check {
    /// From the headers of an answer that brings the whole object.
    fn of(headers: &HeaderMap) -> Option<Check> {
        let told = text(headers, "x-amz-checksum-sha256");
        if let Some(hash) = told.and_then(|told| BASE64_STANDARD.decode(told).ok()) {
            return Some(Check::Sha256(Sha256::new(), hash));
        }
        // With keys of one's own, and for objects of several parts, the etag is no hash of the bytes.
        let encrypted = text(headers, "x-amz-server-side-encryption")
            .is_some_and(|by| by != "AES256")
            || headers.contains_key("x-amz-server-side-encryption-customer-algorithm");
        let etag = version(text(headers, "etag")?);
        let is_md5 = etag.len() == 32 && etag.iter().all(u8::is_ascii_hexdigit);
        (is_md5 && !encrypted).then(|| Check::Md5(Md5::new(), etag.to_ascii_lowercase()))
    }

    fn update(&mut self, bytes: &[u8]) {
        match self {
            Check::Sha256(hasher, _) => hasher.update(bytes),
            Check::Md5(hasher, _) => hasher.update(bytes),
        }
    }

    fn agrees(self) -> bool {
        match self {
            Check::Sha256(hasher, wanted) => hasher.finalize().as_slice() == wanted,
            Check::Md5(hasher, wanted) => super::sign::hex(&hasher.finalize()).as_bytes() == wanted,
        }
    }
}

/// An object being read. When the answer breaks off, another one goes on where it was.
pub(super) struct S3Chunks {
    bucket: Arc<Bucket>,
    key: Vec<u8>,
    found: Entry,
    extended: Extended,
    answer: Option<Answer>,
    at: u64,
    end: u64,
    check: Option<Check>,
    resumes: u32,
}

impl S3Chunks {
    pub(super) async fn open(
        bucket: Arc<Bucket>,
        key: Vec<u8>,
        name: &[u8],
        offset: u64,
        length: u64,
    ) -> Result<S3Chunks> {
        let whole = offset == 0 && (length <= WHOLE || length == u64::MAX);
        let mut chunks = S3Chunks {
            bucket,
            key,
            found: Entry::new(name, Kind::File),
            extended: Extended::new(),
            answer: None,
            at: offset,
            end: offset.saturating_add(length),
            check: None,
            resumes: 0,
        };
        if offset > 0 && length == 0 {
            return Ok(chunks);
        }
        let answer = match chunks.ask(!whole, None).await {
            Ok(answer) => answer,
            Err(error) if error.cause().starts_with("416") => return Ok(chunks),
            Err(error) => return Err(error),
        };
        chunks.found = entry_of(name, &answer.headers);
        chunks.extended = extended_of(&answer.headers);
        chunks.end = chunks.end.min(chunks.found.size);
        if whole && chunks.end == chunks.found.size && chunks.bucket.checksums {
            chunks.check = Check::of(&answer.headers);
        }
        chunks.answer = Some(answer);
        Ok(chunks)
    }

    async fn ask(&self, ranged: bool, version: Option<&[u8]>) -> Result<Answer> {
        let mut call = self.bucket.at("get", "read", &self.key, Method::GET)?;
        if self.bucket.checksums {
            call = call.header("x-amz-checksum-mode", "ENABLED");
        }
        if let Some(version) = version {
            call = call.header("if-match", &format!("\"{}\"", version.escape_ascii()));
        }
        if ranged {
            let range = match self.end {
                u64::MAX => format!("bytes={}-", self.at),
                end => format!("bytes={}-{}", self.at, end - 1),
            };
            call = call.header("range", &range);
        }
        let answer = self.bucket.endpoint.open(&*self.bucket, &call).await?;
        let range = text(&answer.headers, "content-range");
        let begins = range.and_then(|range| {
            range
                .strip_prefix("bytes ")?
                .split('-')
                .next()?
                .parse()
                .ok()
        });
        match ranged && begins != Some(self.at) {
            false => Ok(answer),
            true => Err(call.wrong(ErrorKind::Unsupported, "the far side does not read ranges")),
        }
    }

    fn broken(&self, words: &str) -> Error {
        let call = self.bucket.call("get", "read", &self.key, Method::GET);
        call.wrong(ErrorKind::Temporary, words)
    }

    async fn go_on(&mut self, words: &str) -> Result<()> {
        self.resumes += 1;
        if self.resumes > RESUMES {
            return Err(self.broken(words));
        }
        self.answer = None;
        self.answer = Some(self.ask(true, self.found.version.as_deref()).await?);
        Ok(())
    }

    async fn bytes(&mut self) -> Result<Option<Bytes>> {
        loop {
            let left = self.end.saturating_sub(self.at);
            let Some(answer) = self.answer.as_mut().filter(|_| left > 0) else {
                return self.ended();
            };
            let words = match next(&mut answer.body).await {
                Ok(Some(mut bytes)) => {
                    bytes.truncate(usize::try_from(left).unwrap_or(usize::MAX));
                    self.at += bytes.len() as u64;
                    if let Some(check) = &mut self.check {
                        check.update(&bytes);
                    }
                    return Ok(Some(bytes));
                }
                Ok(None) => "it ended early".to_owned(),
                Err(words) => words,
            };
            self.go_on(&words).await?;
        }
    }

    fn ended(&mut self) -> Result<Option<Bytes>> {
        self.answer = None;
        match self.check.take().is_none_or(Check::agrees) {
            true => Ok(None),
            false => Err(self.broken("the bytes do not match their checksum")),
        }
    }
}

impl Chunks for S3Chunks {
    fn next(&mut self) -> BoxFuture<'_, Result<Option<Bytes>>> {
        Box::pin(self.bytes())
    }

    fn found(&self) -> Option<(&Entry, &Extended)> {
        Some((&self.found, &self.extended))
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
