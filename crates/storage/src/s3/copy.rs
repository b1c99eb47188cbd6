//! What the far side does by itself: copies, moves, and the removal of many keys.

use super::bucket::Bucket;
use super::multipart::{Multipart, Sent};
use super::object::DRESS;
use crate::backend::{Copied, Order};
use crate::cloud::dress::version;
use crate::cloud::{Call, Pieces, percent, xml};
use crate::error::{Error, ErrorKind, Result};
use crate::{Entry, Folder};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use futures_util::StreamExt;
use http::Method;
use md5::{Digest, Md5};
use std::fmt::Write;

/// No copy in one request may be larger.
const LARGEST: u64 = 5 << 30;
/// What is copied in one request of many.
const PART: u64 = 1 << 30;
/// Copies of a batch at once.
const AT_ONCE: usize = 8;

/// Copies what was ordered, each by itself.
pub(super) async fn batch(
    from: &Bucket,
    to: &Bucket,
    folder: &Folder,
    orders: &[Order],
) -> Vec<Result<Copied>> {
    let copies: Vec<_> = orders
        .iter()
        .map(|order| ordered(from, to, folder, order))
        .collect();
    let copies = futures_util::stream::iter(copies);
    copies.buffered(AT_ONCE).collect().await
}

async fn ordered(from: &Bucket, to: &Bucket, folder: &Folder, order: &Order) -> Result<Copied> {
    let name = &order.entry.name;
    let (key, onto) = (from.key(folder, name), to.key(folder, name));
    match copy(from, &key, to, &onto, &order.entry).await {
        Ok(entry) => Ok(Copied::Done(entry)),
        Err(error) if error.kind() == ErrorKind::Changed => Ok(Copied::Changed),
        Err(error) => Err(error),
    }
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

/// The keys that begin with a prefix, a page of them, and their sizes.
async fn keys_below(bucket: &Bucket, prefix: &[u8], after: &[u8]) -> Result<Vec<(Vec<u8>, u64)>> {
    let mut call = super::listing::list_call(bucket, prefix, prefix);
    if !after.is_empty() {
        call = call.query("start-after", &String::from_utf8_lossy(after));
    }
    let whole = bucket.fetch(&call).await?;
    let mut keys = Vec::new();
    let (mut key, mut size, mut encoded) = (Vec::new(), 0, false);
    let read = xml::each(&whole.body, |path, text| match path {
        [_, name] if name == "EncodingType" => encoded = text == "url",
        [_, contents, name] if contents == "Contents" && name == "Key" => {
            key = text.as_bytes().to_vec();
        }
        [_, contents, name] if contents == "Contents" && name == "Size" => {
            size = text.parse().unwrap_or(0);
        }
        [_, contents] if contents == "Contents" => keys.push((std::mem::take(&mut key), size)),
        _ => {}
    });
    read.map_err(|words| call.wrong(ErrorKind::Temporary, words))?;
    if encoded {
        keys.iter_mut()
            .for_each(|(key, _)| *key = percent::decode_form(key));
    }
    Ok(keys)
}

/// Removes every key that begins with a prefix. Answers whether there was any.
pub(super) async fn remove_below(bucket: &Bucket, prefix: &[u8]) -> Result<bool> {
    let mut any = false;
    loop {
        let keys = keys_below(bucket, prefix, b"").await?;
        if keys.is_empty() {
            return Ok(any);
        }
        any = true;
        remove_keys(bucket, prefix, &keys).await?;
    }
}

async fn remove_keys(bucket: &Bucket, path: &[u8], keys: &[(Vec<u8>, u64)]) -> Result<()> {
    let mut body = String::from(
        "<Delete xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Quiet>true</Quiet>",
    );
    for (key, _) in keys {
        let key = xml::escape(&String::from_utf8_lossy(key));
        let _ = write!(body, "<Object><Key>{key}</Key></Object>");
    }
    body.push_str("</Delete>");
    let digest = BASE64_STANDARD.encode(Md5::digest(body.as_bytes()));
    let call = bucket
        .call("delete", "remove", path, Method::POST)
        .query("delete", "")
        .header("content-md5", &digest)
        .body(Pieces::from(body));
    let whole = bucket.fetch(&call).await?;
    match xml::find(&whole.body, "Message") {
        None => Ok(()),
        Some(words) => Err(call.wrong(ErrorKind::Denied, words)),
    }
}

/// Moves an object, or all that is in a folder, never onto something else.
pub(super) async fn rename(bucket: &Bucket, key: &[u8], onto: &[u8]) -> Result<()> {
    let below = [key, b"/"].concat();
    let (target, whole) = (onto, [onto, b"/"].concat());
    let taken = match bucket.head(target).await {
        Ok(_) => true,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            bucket.any_below(&whole, &whole).await?
        }
        Err(error) => return Err(error),
    };
    if taken {
        let words = "there is something of that name";
        return Err(Error::new(ErrorKind::Exists, "move to", onto, words));
    }
    let mut moved = false;
    loop {
        let keys = keys_below(bucket, &below, b"").await?;
        if keys.is_empty() {
            break;
        }
        moved = true;
        for (from, size) in &keys {
            let to = [whole.as_slice(), &from[below.len()..]].concat();
            move_one(bucket, from, &to, *size).await?;
        }
    }
    if moved {
        return Ok(());
    }
    let size = DRESS.entry_of(b"", &bucket.head(key).await?).size;
    move_one(bucket, key, target, size).await
}

async fn move_one(bucket: &Bucket, key: &[u8], onto: &[u8], size: u64) -> Result<()> {
    let entry = Entry {
        size,
        ..Entry::new(Vec::new(), crate::Kind::File)
    };
    copy(bucket, key, bucket, onto, &entry).await?;
    bucket.delete(key).await
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
