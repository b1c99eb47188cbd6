//! Server-side copies.

use super::bucket::Bucket;
use super::object::Resource;
use crate::Entry;
use crate::cloud::SegmentedBytes;
use crate::error::{ErrorKind, Result};
use http::Method;
use serde::Deserialize;

/// The response to a rewrite: the copy, or a token to continue.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Rewritten {
    done: bool,
    rewrite_token: Option<String>,
    resource: Option<Resource>,
}

/// Copies an object with its metadata, if it is still the listed version. Returns the copy.
pub(super) async fn copy(
    from: &Bucket,
    key: &[u8],
    to: &Bucket,
    target_key: &[u8],
    listed: Option<&Entry>,
) -> Result<Resource> {
    to.object_call("copy", "copy", target_key, Method::POST)?;
    let mut call = from
        .object_call("copy", "copy", key, Method::POST)?
        .expect_json();
    call.target = format!("{}/rewriteTo{}", call.target, to.copy_target(target_key));
    if let Some(version) = listed.and_then(|listed| listed.version.as_deref()) {
        call = call.query("ifSourceGenerationMatch", &String::from_utf8_lossy(version));
    }
    // Upload times have at most microseconds. An upload time does not survive a copy, so it is set
    // explicitly.
    let modified = listed.and_then(|listed| listed.modified);
    if modified.is_none_or(|time| time % 1_000 == 0) {
        let was = from.head(key).await?;
        if !was.has_mtime() {
            let modified = was.entry(b"").modified;
            let resource = Resource::new(target_key, modified, &was.extended());
            let body = SegmentedBytes::from(resource.json());
            call = call.header("content-type", "application/json").body(body);
        }
    }
    let mut token: Option<String> = None;
    loop {
        let call = match &token {
            None => call.clone(),
            Some(token) => call.clone().query("rewriteToken", token),
        };
        let response = to.fetch(&call).await?;
        let fail = |message: String| call.failure(ErrorKind::Temporary, message);
        let rewritten: Rewritten =
            serde_json::from_slice(&response.body).map_err(|error| fail(error.to_string()))?;
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
                return Err(fail(
                    "the response has neither a copy nor a token".to_owned(),
                ));
            }
        }
    }
}
