//! What the far side does by itself: copies.

use super::bucket::Bucket;
use super::multipart::{Multipart, Sent};
use super::object::DRESS;
use crate::backend::{Copied, Order};
use crate::cloud::dress::version;
use crate::cloud::keys::{self, Keys};
use crate::cloud::{Call, xml};
use crate::error::Result;
use crate::{Entry, Folder};
use http::Method;

/// No copy in one request may be larger.
const LARGEST: u64 = 5 << 30;
/// What is copied in one request of many.
const PART: u64 = 1 << 30;

/// Copies what was ordered, each by itself.
pub(super) async fn batch(
    from: &Bucket,
    to: &Bucket,
    folder: &Folder,
    orders: &[Order],
) -> Vec<Result<Copied>> {
    keys::batch(orders, |order| {
        let entry = order.entry.clone();
        let (key, onto) = (from.key(folder, &entry.name), to.key(folder, &entry.name));
        async move { copy(from, &key, to, &onto, &entry).await }
    })
    .await
}

/// Copies an object with all that belongs to it, if it still is the version that was listed.
pub(super) async fn copy(
    from: &Bucket,
    key: &[u8],
    to: &Bucket,
    onto: &[u8],
    entry: &Entry,
) -> Result<Entry> {
    let sourced = |call: Call| {
        let call = call
            .header("x-amz-copy-source", &from.copy_source(key))
            .document();
        match entry.etag() {
            Some(version) => {
                let version = format!("\"{}\"", version.escape_ascii());
                call.header("x-amz-copy-source-if-match", &version)
            }
            None => call,
        }
    };
    let etag = match entry.size > LARGEST {
        false => {
            let call = sourced(to.at("copy", "copy", onto, Method::PUT)?);
            let whole = to.fetch_checked(&call).await?;
            xml::find(&whole.body, "ETag")
        }
        true => in_parts(from, key, to, onto, entry.size, &sourced).await?,
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
    onto: &[u8],
    size: u64,
    sourced: &(dyn Fn(Call) -> Call + Sync),
) -> Result<Option<String>> {
    let headers = from.head(key).await?;
    let call = to.at("create upload", "copy", onto, Method::POST)?;
    let modified = DRESS.entry_of(b"", &headers).modified;
    let call = DRESS.dress(call, onto, modified, &DRESS.extended_of(&headers));
    let mut multipart = Multipart::begin(to, onto, call).await?;
    let mut number = 0;
    while u64::from(number) * PART < size {
        let begin = u64::from(number) * PART;
        let end = size.min(begin + PART);
        number += 1;
        let call = sourced(multipart.part_call(to, onto, number)?);
        let call = call.header(
            "x-amz-copy-source-range",
            &format!("bytes={begin}-{}", end - 1),
        );
        let whole = match to.fetch_checked(&call).await {
            Ok(whole) => whole,
            Err(error) => {
                multipart.abort(to, onto).await?;
                return Err(error);
            }
        };
        let sent = Sent {
            etag: String::from_utf8_lossy(&version(
                &xml::find(&whole.body, "ETag").unwrap_or_default(),
            ))
            .into_owned(),
            sha256: xml::find(&whole.body, "ChecksumSHA256"),
            size: end - begin,
        };
        multipart.there.insert(number, sent);
    }
    let call = multipart.complete_call(to, onto, number)?;
    let whole = to.fetch_checked(&call).await?;
    Ok(xml::find(&whole.body, "ETag"))
}

/// Gives an object another time, by a copy of it onto itself.
pub(super) async fn dress_again(
    bucket: &Bucket,
    key: &[u8],
    name: &[u8],
    like: &Entry,
    extended: &crate::Extended,
) -> Result<Entry> {
    let headers = bucket.head(key).await?;
    let mut all = DRESS.extended_of(&headers);
    all.extend(extended.iter().cloned());
    let call = DRESS.dress(
        bucket.at("copy", "set attributes of", key, Method::PUT)?,
        key,
        like.modified,
        &all,
    );
    let call = call
        .document()
        .header("x-amz-copy-source", &bucket.copy_source(key))
        .header("x-amz-metadata-directive", "REPLACE");
    let whole = bucket.fetch_checked(&call).await?;
    Ok(Entry {
        modified: like.modified,
        version: xml::find(&whole.body, "ETag").as_deref().map(version),
        ..DRESS.entry_of(name, &headers)
    })
}
