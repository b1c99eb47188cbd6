//! Server-side copies.

use super::bucket::Bucket;
use super::multipart::{Multipart, UploadedPart};
use super::object::HEADERS;
use crate::Entry;
use crate::cloud::object_headers::version;
use crate::cloud::{Call, xml};
use crate::error::Result;
use http::Method;

/// Maximum size of a copy in one request.
const MAX_SINGLE_COPY: u64 = 5 << 30;
/// Bytes per request of a larger copy.
const COPY_PART_SIZE: u64 = 1 << 30;

/// Copies an object with its metadata, if it is still the listed version.
pub(super) async fn copy(
    from: &Bucket,
    key: &[u8],
    to: &Bucket,
    target_key: &[u8],
    entry: &Entry,
) -> Result<Entry> {
    let with_source = |call: Call| {
        let call = call
            .header("x-amz-copy-source", &from.copy_source(key))
            .expect_xml();
        match entry.etag() {
            Some(version) => {
                let version = format!("\"{}\"", version.escape_ascii());
                call.header("x-amz-copy-source-if-match", &version)
            }
            None => call,
        }
    };
    let etag = match entry.size > MAX_SINGLE_COPY {
        false => {
            let call = with_source(to.object_call("copy", "copy", target_key, Method::PUT)?);
            let response = to.fetch_checked(&call).await?;
            xml::find(&response.body, "ETag")
        }
        true => in_parts(from, key, to, target_key, entry.size, &with_source).await?,
    };
    Ok(Entry {
        version: etag.as_deref().map(version),
        ..entry.clone()
    })
}

async fn in_parts(
    from: &Bucket,
    key: &[u8],
    to: &Bucket,
    target_key: &[u8],
    size: u64,
    with_source: &(dyn Fn(Call) -> Call + Sync),
) -> Result<Option<String>> {
    let headers = from.head(key).await?;
    let call = to.object_call("create upload", "copy", target_key, Method::POST)?;
    let modified = HEADERS.entry_of(b"", &headers).modified;
    let call = HEADERS.apply(call, target_key, modified, &HEADERS.extended_of(&headers));
    let mut multipart = Multipart::begin(to, target_key, call).await?;
    let mut number = 0;
    while u64::from(number) * COPY_PART_SIZE < size {
        let begin = u64::from(number) * COPY_PART_SIZE;
        let end = size.min(begin + COPY_PART_SIZE);
        number += 1;
        let call = with_source(multipart.part_call(to, target_key, number)?);
        let call = call.header(
            "x-amz-copy-source-range",
            &format!("bytes={begin}-{}", end - 1),
        );
        let response = match to.fetch_checked(&call).await {
            Ok(response) => response,
            Err(error) => {
                multipart.abort(to, target_key).await?;
                return Err(error);
            }
        };
        let sent = UploadedPart {
            etag: String::from_utf8_lossy(&version(
                &xml::find(&response.body, "ETag").unwrap_or_default(),
            ))
            .into_owned(),
            sha256: xml::find(&response.body, "ChecksumSHA256"),
            size: end - begin,
        };
        multipart.uploaded.insert(number, sent);
    }
    let call = multipart.complete_call(to, target_key, number)?;
    let response = to.fetch_checked(&call).await?;
    Ok(xml::find(&response.body, "ETag"))
}

/// Sets the time of an object by copying it onto itself.
pub(super) async fn set_object_headers(
    bucket: &Bucket,
    key: &[u8],
    name: &[u8],
    like: &Entry,
    extended: &crate::Extended,
) -> Result<Entry> {
    let headers = bucket.head(key).await?;
    let mut all = HEADERS.extended_of(&headers);
    all.extend(extended.iter().cloned());
    let call = HEADERS.apply(
        bucket.object_call("copy", "set attributes of", key, Method::PUT)?,
        key,
        like.modified,
        &all,
    );
    let call = call
        .expect_xml()
        .header("x-amz-copy-source", &bucket.copy_source(key))
        .header("x-amz-metadata-directive", "REPLACE");
    let response = bucket.fetch_checked(&call).await?;
    Ok(Entry {
        modified: like.modified,
        version: xml::find(&response.body, "ETag").as_deref().map(version),
        ..HEADERS.entry_of(name, &headers)
    })
}
