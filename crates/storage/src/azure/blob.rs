//! Single blobs: looking at them, reading them, removing them.

use super::container::Container;
use super::metadata;
use crate::backend::Extended;
use crate::cloud::chunks::{Check, Ranges};
use crate::cloud::dress::{Dress, read_rfc3339, write_rfc3339};
use crate::cloud::{Answer, Call, hex, text};
use crate::error::{Error, ErrorKind, Result};
use crate::{BoxFuture, Entry};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use http::{HeaderMap, Method};
use std::sync::Arc;

/// The modification time is kept as rclone keeps it.
pub(super) const DRESS: Dress = Dress {
    meta: "x-ms-meta-",
    own: "x-ms-blob-",
    mtime: "x-ms-meta-mtime",
    write_time: write_rfc3339,
    read_time: read_rfc3339,
};
/// By this, other programs say that an empty blob is a folder.
pub(super) const STUB: &str = "hdi_isfolder";

/// Whether a blob stands for a folder of its name. With a slash at its end it is the entry of the
/// folder itself, like that of any other storage of objects.
pub(super) fn is_stub(key: &[u8], headers: &HeaderMap) -> bool {
    !key.ends_with(b"/")
        && text(headers, "x-ms-meta-hdi_isfolder").is_some_and(|told| told == "true")
        && text(headers, "content-length") == Some("0")
}

/// The call with all that belongs to a new blob beside its bytes.
pub(super) fn dressed(
    call: Call,
    key: &[u8],
    modified: Option<i64>,
    extended: &Extended,
) -> Result<Call> {
    let extended =
        metadata::express(extended).map_err(|words| call.wrong(ErrorKind::Unsupported, words))?;
    Ok(DRESS.dress(call, key, modified, &extended))
}

pub(super) fn extended_of(headers: &HeaderMap) -> Extended {
    metadata::recover(&DRESS.extended_of(headers))
}

impl Container {
    pub(super) async fn head(&self, key: &[u8]) -> Result<HeaderMap> {
        let call = self.at("head", "look at", key, Method::HEAD)?;
        Ok(self.fetch(&call).await?.headers)
    }

    /// The empty blob that a folder in which nothing is consists of, marked as rclone marks it.
    pub(super) async fn put_folder(&self, key: &[u8]) -> Result<()> {
        let call = self
            .at("put", "make", key, Method::PUT)?
            .header("x-ms-blob-type", "BlockBlob")
            .header("x-ms-meta-hdi_isfolder", "true");
        self.fetch(&call).await.map(drop)
    }
}

/// A blob to be read.
pub(super) struct Blob {
    pub(super) container: Arc<Container>,
    pub(super) key: Vec<u8>,
    pub(super) name: Vec<u8>,
}

impl Ranges for Blob {
    fn ask<'a>(
        &'a self,
        range: Option<&'a str>,
        version: Option<&'a [u8]>,
    ) -> BoxFuture<'a, Result<Answer>> {
        Box::pin(async move {
            let mut call = self.container.at("get", "read", &self.key, Method::GET)?;
            if let Some(version) = version {
                call = call.if_match(version);
            }
            if let Some(range) = range {
                call = call.header("range", range);
            }
            self.container.endpoint.open(&*self.container, &call).await
        })
    }

    fn found(&self, headers: &HeaderMap) -> (Entry, Extended) {
        (DRESS.entry_of(&self.name, headers), extended_of(headers))
    }

    fn check(&self, headers: &HeaderMap) -> Option<Check> {
        let told = BASE64_STANDARD.decode(text(headers, "content-md5")?).ok()?;
        Some(Check::md5(hex(&told).as_bytes()))
    }

    fn wrong(&self, kind: ErrorKind, words: &str) -> Error {
        let call = self.container.call("get", "read", &self.key, Method::GET);
        call.wrong(kind, words)
    }
}
