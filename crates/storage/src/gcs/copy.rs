//! What the far side does by itself: copies and moves; and the removal of many objects.

use super::bucket::Bucket;
use super::listing::keys_below;
use super::object::Resource;
use crate::backend::{Copied, Order};
use crate::cloud::Pieces;
use crate::error::{Error, ErrorKind, Result};
use crate::{Entry, Folder};
use futures_util::{StreamExt, TryStreamExt};
use http::Method;
use serde::Deserialize;

/// Copies of a batch at once, and removals.
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
    match copy(from, &key, to, &onto, Some(&order.entry)).await {
        Ok(made) => Ok(Copied::Done(Entry {
            modified: order.entry.modified,
            ..made.entry(name)
        })),
        Err(error) if error.kind() == ErrorKind::Changed => Ok(Copied::Changed),
        Err(error) => Err(error),
    }
}

/// A copy, or how much there is of it.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Rewritten {
    done: bool,
    rewrite_token: Option<String>,
    resource: Option<Resource>,
}

/// Copies an object with all that belongs to it, if it still is the version that was listed. Answers what the copy is.
async fn copy(
    from: &Bucket,
    key: &[u8],
    to: &Bucket,
    onto: &[u8],
    listed: Option<&Entry>,
) -> Result<Resource> {
    to.at("copy", "copy", onto, Method::POST)?;
    let mut call = from.at("copy", "copy", key, Method::POST)?.json();
    call.target = format!("{}/rewriteTo{}", call.target, to.onto(onto));
    if let Some(version) = listed.and_then(|listed| listed.version.as_deref()) {
        call = call.query("ifSourceGenerationMatch", &String::from_utf8_lossy(version));
    }
    // Times of arrival are whole microseconds at the most. Such a time belongs to the object that arrived: a copy has to be told it.
    let modified = listed.and_then(|listed| listed.modified);
    if modified.is_none_or(|time| time % 1_000 == 0) {
        let was = from.head(key).await?;
        if !was.is_dated() {
            let modified = was.entry(b"").modified;
            let told = Resource::new(onto, modified, &was.extended());
            let body = Pieces::from(told.json());
            call = call.header("content-type", "application/json").body(body);
        }
    }
    let mut token: Option<String> = None;
    loop {
        let call = match &token {
            None => call.clone(),
            Some(token) => call.clone().query("rewriteToken", token),
        };
        let whole = to.fetch(&call).await?;
        let wrong = |words: String| call.wrong(ErrorKind::Temporary, words);
        let rewritten: Rewritten =
            serde_json::from_slice(&whole.body).map_err(|error| wrong(error.to_string()))?;
        match rewritten {
            Rewritten {
                done: true,
                resource: Some(made),
                ..
            } => return Ok(made),
            Rewritten {
                rewrite_token: Some(next),
                ..
            } => token = Some(next),
            _ => {
                return Err(wrong(
                    "the answer names neither a copy nor a way on".to_owned(),
                ));
            }
        }
    }
}

/// Removes every object whose key begins with a prefix. Answers whether there was any.
pub(super) async fn remove_below(bucket: &Bucket, prefix: &[u8]) -> Result<bool> {
    let mut any = false;
    loop {
        let keys = keys_below(bucket, prefix, None).await?;
        if keys.is_empty() {
            return Ok(any);
        }
        any = true;
        let removals = keys.iter().map(|key| Ok(bucket.delete(key)));
        let removals = futures_util::stream::iter(removals.collect::<Vec<_>>());
        removals
            .try_buffer_unordered(AT_ONCE)
            .try_collect::<()>()
            .await?;
    }
}

/// Moves an object, or all that is in a folder, never onto something else.
pub(super) async fn rename(bucket: &Bucket, key: &[u8], onto: &[u8]) -> Result<()> {
    let (below, whole) = ([key, b"/"].concat(), [onto, b"/"].concat());
    let taken = match bucket.head(onto).await {
        Ok(_) => true,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            !keys_below(bucket, &whole, Some("1")).await?.is_empty()
        }
        Err(error) => return Err(error),
    };
    if taken {
        let words = "there is something of that name";
        return Err(Error::new(ErrorKind::Exists, "move to", onto, words));
    }
    let mut moved = false;
    loop {
        let keys = keys_below(bucket, &below, None).await?;
        if keys.is_empty() {
            break;
        }
        moved = true;
        for from in &keys {
            let to = [whole.as_slice(), &from[below.len()..]].concat();
            move_one(bucket, from, &to).await?;
        }
    }
    match moved {
        true => Ok(()),
        false => move_one(bucket, key, onto).await,
    }
}

async fn move_one(bucket: &Bucket, key: &[u8], onto: &[u8]) -> Result<()> {
    copy(bucket, key, bucket, onto, None).await?;
    bucket.delete(key).await
}
