//! Server-side copies within an account.

use super::blob::{HEADERS, extended_of, with_object_headers};
use super::container::Container;
use crate::Entry;
use crate::cloud::object_headers::version;
use crate::cloud::{Call, header_text, quoted_etag};
use crate::error::{ErrorKind, Result};
use http::{HeaderMap, Method};
use std::time::Duration;

/// Initial and maximum delay between two polls of a pending copy.
const COPY_POLL: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// Copies a blob with its metadata, if it is still the listed version. Returns the version of the
/// copy.
pub(super) async fn copy(
    from: &Container,
    key: &[u8],
    to: &Container,
    target_key: &[u8],
    listed: Option<&Entry>,
) -> Result<Option<Vec<u8>>> {
    let call = to.object_call("copy", "copy", target_key, Method::PUT)?;
    let mut call = call.header("x-ms-copy-source", &from.address(key));
    if let Some(is) = listed.and_then(|listed| listed.version.as_deref()) {
        call = call.header("x-ms-source-if-match", &quoted_etag(is));
    }
    // Upload times are whole seconds. An upload time does not survive a copy, so it is set
    // explicitly.
    let modified = listed.and_then(|listed| listed.modified);
    if modified.is_none_or(|time| time % 1_000_000_000 == 0) {
        let headers = from.head(key).await?;
        if !headers.contains_key(HEADERS.mtime_header) {
            let modified = HEADERS.entry_of(b"", &headers).modified;
            call = with_object_headers(call, key, modified, &extended_of(&headers))?;
        }
    }
    let mut headers = to.fetch(&call).await?.headers;
    let mut pause = COPY_POLL.0;
    while is_pending(&call, &headers)? {
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(COPY_POLL.1);
        headers = to.head(target_key).await?;
    }
    Ok(header_text(&headers, "etag").map(version))
}

/// Returns whether a copy is still running. A large copy may outlast its response.
fn is_pending(call: &Call, headers: &HeaderMap) -> Result<bool> {
    match header_text(headers, "x-ms-copy-status") {
        Some("pending") => Ok(true),
        Some("success") | None => Ok(false),
        Some(other) => {
            let message = format!("the service reports the copy as {other}");
            Err(call.failure(ErrorKind::Temporary, message))
        }
    }
}

/// Sets the time of a blob.
pub(super) async fn set_object_headers(
    container: &Container,
    key: &[u8],
    name: &[u8],
    like: &Entry,
    extended: &crate::Extended,
) -> Result<Entry> {
    let headers = container.head(key).await?;
    let mut all = extended_of(&headers);
    all.extend(extended.iter().cloned());
    let call = container.object_call("set metadata", "set attributes of", key, Method::PUT)?;
    let call = with_object_headers(call.query("comp", "metadata"), key, like.modified, &all)?;
    let response = container.fetch(&call).await?;
    Ok(Entry {
        modified: like.modified,
        version: header_text(&response.headers, "etag").map(version),
        ..HEADERS.entry_of(name, &headers)
    })
}
