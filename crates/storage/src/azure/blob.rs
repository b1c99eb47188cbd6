//! Single blobs: their headers, and reading them.

use super::container::Container;
use super::metadata;
use crate::backend::Extended;
use crate::cloud::checksum::{Algorithm, Checksum};
use crate::cloud::object_headers::{ObjectHeaders, read_rfc3339, write_rfc3339};
use crate::cloud::ranged_read::RangeSource;
use crate::cloud::{Call, StreamedResponse, header_text};
use crate::error::{Error, ErrorKind, Result};
use crate::{BoxFuture, Entry};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use http::header::CONTENT_RANGE;
use http::{HeaderMap, Method};
use std::sync::Arc;

/// The modification time is stored as rclone stores it.
pub(super) const HEADERS: ObjectHeaders = ObjectHeaders {
    metadata_prefix: "x-ms-meta-",
    standard_prefix: "x-ms-blob-",
    mtime_header: "x-ms-meta-mtime",
    write_time: write_rfc3339,
    read_time: read_rfc3339,
};
/// The metadata with which other programs mark an empty blob as a folder.
pub(super) const FOLDER_STUB: &str = "hdi_isfolder";

/// Returns whether a blob is a marker for a folder of its name. A blob whose name ends with a slash
/// is the entry of the folder itself, as in other object stores.
pub(super) fn is_folder_stub(key: &[u8], headers: &HeaderMap) -> bool {
    !key.ends_with(b"/")
        && header_text(headers, "x-ms-meta-hdi_isfolder").is_some_and(|value| value == "true")
        && header_text(headers, "content-length") == Some("0")
}

/// Adds the headers of a new blob to a call.
pub(super) fn with_object_headers(
    call: Call,
    key: &[u8],
    modified: Option<i64>,
    extended: &Extended,
) -> Result<Call> {
    let extended = metadata::encode(extended)
        .map_err(|message| call.failure(ErrorKind::Unsupported, message))?;
    Ok(HEADERS.apply(call, key, modified, &extended))
}

pub(super) fn extended_of(headers: &HeaderMap) -> Extended {
    metadata::decode(&HEADERS.extended_of(headers))
}

impl Container {
    pub(super) async fn head(&self, key: &[u8]) -> Result<HeaderMap> {
        let call = self.object_call("head", "look at", key, Method::HEAD)?;
        Ok(self.fetch(&call).await?.headers)
    }

    /// Creates the empty blob that represents an empty folder, marked as rclone marks it.
    pub(super) async fn put_folder(&self, key: &[u8]) -> Result<()> {
        let call = self
            .object_call("put", "make", key, Method::PUT)?
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

impl RangeSource for Blob {
    fn request_range<'a>(
        &'a self,
        range: Option<&'a str>,
        version: Option<&'a [u8]>,
    ) -> BoxFuture<'a, Result<StreamedResponse>> {
        Box::pin(async move {
            let mut call = self
                .container
                .object_call("get", "read", &self.key, Method::GET)?;
            if let Some(version) = version {
                call = call.if_match(version);
            }
            if let Some(range) = range {
                call = call.header("range", range);
            }
            self.container.endpoint.open(&*self.container, &call).await
        })
    }

    fn info(&self, headers: &HeaderMap) -> (Entry, Extended) {
        (HEADERS.entry_of(&self.name, headers), extended_of(headers))
    }

    fn check(&self, headers: &HeaderMap) -> Option<Checksum> {
        // In the response to a range, `content-md5` would be that of the range.
        let name = match headers.contains_key(CONTENT_RANGE) {
            true => "x-ms-blob-content-md5",
            false => "content-md5",
        };
        let md5 = BASE64_STANDARD.decode(header_text(headers, name)?).ok()?;
        Some(Checksum::new(Algorithm::Md5, md5))
    }

    fn failure(&self, kind: ErrorKind, message: &str) -> Error {
        let call = self.container.call("get", "read", &self.key, Method::GET);
        call.failure(kind, message)
    }
}
