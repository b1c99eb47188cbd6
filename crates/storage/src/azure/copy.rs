//! What the far side does by itself inside an account: copies and moves; and the removal of many blobs.

use super::blob::{DRESS, dressed, extended_of};
use super::container::Container;
use crate::backend::{Copied, Order};
use crate::cloud::dress::version;
use crate::cloud::{Call, quoted, text, xml};
use crate::error::{Error, ErrorKind, Result};
use crate::{Entry, Folder};
use futures_util::{StreamExt, TryStreamExt};
use http::{HeaderMap, Method};
use std::time::Duration;

/// Copies of a batch at once, and removals.
const AT_ONCE: usize = 8;
/// How long to wait before a copy that goes on by itself is looked at again, at first and at most.
const LOOK: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// Copies what was ordered, each by itself.
pub(super) async fn batch(
    from: &Container,
    to: &Container,
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

async fn ordered(
    from: &Container,
    to: &Container,
    folder: &Folder,
    order: &Order,
) -> Result<Copied> {
    let name = &order.entry.name;
    let (key, onto) = (from.key(folder, name), to.key(folder, name));
    match copy(from, &key, to, &onto, Some(&order.entry)).await {
        Ok(version) => Ok(Copied::Done(Entry {
            version,
            ..order.entry.clone()
        })),
        Err(error) if error.kind() == ErrorKind::Changed => Ok(Copied::Changed),
        Err(error) => Err(error),
    }
}

/// Copies a blob with all that belongs to it, if it still is the version that was listed. Answers what the copy is.
async fn copy(
    from: &Container,
    key: &[u8],
    to: &Container,
    onto: &[u8],
    listed: Option<&Entry>,
) -> Result<Option<Vec<u8>>> {
    let call = to.at("copy", "copy", onto, Method::PUT)?;
    let mut call = call.header("x-ms-copy-source", &from.address(key));
    if let Some(is) = listed.and_then(|listed| listed.version.as_deref()) {
        call = call.header("x-ms-source-if-match", &quoted(is));
    }
    // Times of arrival are whole seconds. Such a time belongs to the blob that arrived: a copy has to be told it.
    let modified = listed.and_then(|listed| listed.modified);
    if modified.is_none_or(|time| time % 1_000_000_000 == 0) {
        let headers = from.head(key).await?;
        if !headers.contains_key(DRESS.mtime) {
            let modified = DRESS.entry_of(b"", &headers).modified;
            call = dressed(call, key, modified, &extended_of(&headers))?;
        }
    }
    let mut headers = to.fetch(&call).await?.headers;
    let mut pause = LOOK.0;
    while is_pending(&call, &headers)? {
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LOOK.1);
        headers = to.head(onto).await?;
    }
    Ok(text(&headers, "etag").map(version))
}

/// A large copy may go on after its answer.
fn is_pending(call: &Call, headers: &HeaderMap) -> Result<bool> {
    match text(headers, "x-ms-copy-status") {
        Some("pending") => Ok(true),
        Some("success") | None => Ok(false),
        Some(other) => {
            let words = format!("the far side says that the copy is {other}");
            Err(call.wrong(ErrorKind::Temporary, words))
        }
    }
}

/// A page of the keys that begin with a prefix.
async fn keys_below(container: &Container, prefix: &[u8]) -> Result<Vec<Vec<u8>>> {
    let call = super::listing::list_call(container, prefix, prefix);
    let mut marker = String::new();
    loop {
        let call = call.clone().query("marker", &marker);
        let whole = container.fetch(&call).await?;
        let mut keys = Vec::new();
        let read = xml::each(&whole.body, |path, text| match path {
            [_, _, blob, name] if blob == "Blob" && name == "Name" => keys.push(text.into()),
            [_, name] if name == "NextMarker" => text.clone_into(&mut marker),
            _ => {}
        });
        read.map_err(|words| call.wrong(ErrorKind::Temporary, words))?;
        if !keys.is_empty() || marker.is_empty() {
            return Ok(keys);
        }
    }
}

/// Removes every blob whose key begins with a prefix. Answers whether there was any.
pub(super) async fn remove_below(container: &Container, prefix: &[u8]) -> Result<bool> {
    let mut any = false;
    loop {
        let keys = keys_below(container, prefix).await?;
        if keys.is_empty() {
            return Ok(any);
        }
        any = true;
        let removals = keys.iter().map(|key| Ok(container.delete(key)));
        let removals = futures_util::stream::iter(removals.collect::<Vec<_>>());
        removals
            .try_buffer_unordered(AT_ONCE)
            .try_collect::<()>()
            .await?;
    }
}

/// Moves a blob, or all that is in a folder, never onto something else.
pub(super) async fn rename(container: &Container, key: &[u8], onto: &[u8]) -> Result<()> {
    let (below, whole) = ([key, b"/"].concat(), [onto, b"/"].concat());
    let taken = match container.head(onto).await {
        Ok(_) => true,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            container.any_below(&whole, &whole).await?
        }
        Err(error) => return Err(error),
    };
    if taken {
        let words = "there is something of that name";
        return Err(Error::new(ErrorKind::Exists, "move to", onto, words));
    }
    let mut moved = false;
    loop {
        let keys = keys_below(container, &below).await?;
        if keys.is_empty() {
            break;
        }
        moved = true;
        for from in &keys {
            let to = [whole.as_slice(), &from[below.len()..]].concat();
            move_one(container, from, &to).await?;
        }
    }
    match moved {
        true => Ok(()),
        false => move_one(container, key, onto).await,
    }
}

async fn move_one(container: &Container, key: &[u8], onto: &[u8]) -> Result<()> {
    copy(container, key, container, onto, None).await?;
    container.delete(key).await
}

/// Gives a blob another time.
pub(super) async fn dress_again(
    container: &Container,
    key: &[u8],
    name: &[u8],
    like: &Entry,
    extended: &crate::Extended,
) -> Result<Entry> {
    let headers = container.head(key).await?;
    let mut all = extended_of(&headers);
    all.extend(extended.iter().cloned());
    let call = container.at("set metadata", "set attributes of", key, Method::PUT)?;
    let call = dressed(call.query("comp", "metadata"), key, like.modified, &all)?;
    let whole = container.fetch(&call).await?;
    Ok(Entry {
        modified: like.modified,
        version: text(&whole.headers, "etag").map(version),
        ..DRESS.entry_of(name, &headers)
    })
}
