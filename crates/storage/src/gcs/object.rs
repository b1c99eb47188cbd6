//! Single objects: their metadata, and reading them.

use super::bucket::Bucket;
use crate::backend::Extended;
use crate::cloud::checksum::{Algorithm, Checksum};
use crate::cloud::object_headers::{is_kept, read_rfc3339, write_rfc3339};
use crate::cloud::ranged_read::RangeSource;
use crate::cloud::{SegmentedBytes, StreamedResponse, media_type};
use crate::error::{Error, ErrorKind, Result};
use crate::{BoxFuture, Entry, Kind};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use http::{HeaderMap, Method};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The metadata key of the modification time, as rclone uses it.
const MTIME: &str = "mtime";

/// An object resource of the JSON API.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Resource {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) name: String,
    #[serde(skip_serializing)]
    size: Option<String>,
    #[serde(skip_serializing)]
    pub(super) generation: Option<String>,
    #[serde(skip_serializing)]
    updated: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) md5_hash: Option<String>,
    #[serde(
        skip_serializing_if = "BTreeMap::is_empty",
        deserialize_with = "null_as_empty"
    )]
    pub(super) metadata: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content_type: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cache_control: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content_disposition: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content_encoding: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content_language: Option<String>,
}

/// Treats null like a missing map.
fn null_as_empty<'de, D: serde::Deserializer<'de>>(
    from: D,
) -> std::result::Result<BTreeMap<String, String>, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or_default())
}

impl Resource {
    /// Describes a new object.
    pub(super) fn new(key: &[u8], modified: Option<i64>, extended: &Extended) -> Resource {
        let mut resource = Resource::from_extended(extended);
        resource.name = String::from_utf8_lossy(key).into_owned();
        let usual = || media_type::for_key(key).to_owned();
        resource.content_type.get_or_insert_with(usual);
        if let Some(modified) = modified {
            resource.set_modified(modified);
        }
        resource
    }

    /// Describes the metadata of an object.
    pub(super) fn from_extended(extended: &Extended) -> Resource {
        let mut resource = Resource::default();
        for (name, value) in extended {
            let value = String::from_utf8_lossy(value).into_owned();
            match name.strip_prefix(b"meta-") {
                Some(rest) => {
                    let name = String::from_utf8_lossy(rest).into_owned();
                    resource.metadata.insert(name, value);
                }
                None if is_kept(name) => {
                    if let Some(field) = resource.field(name) {
                        *field = Some(value);
                    }
                }
                None => {}
            }
        }
        resource
    }

    fn field(&mut self, name: &[u8]) -> Option<&mut Option<String>> {
        match name {
            b"content-type" => Some(&mut self.content_type),
            b"cache-control" => Some(&mut self.cache_control),
            b"content-disposition" => Some(&mut self.content_disposition),
            b"content-encoding" => Some(&mut self.content_encoding),
            b"content-language" => Some(&mut self.content_language),
            _ => None,
        }
    }

    pub(super) fn set_modified(&mut self, modified: i64) {
        let time = write_rfc3339(modified);
        self.metadata.insert(MTIME.to_owned(), time);
    }

    /// Returns whether the object has a modification time, and not only an upload time.
    pub(super) fn has_mtime(&self) -> bool {
        self.metadata.contains_key(MTIME)
    }

    pub(super) fn entry(&self, name: &[u8]) -> Entry {
        let written = self.metadata.get(MTIME).and_then(|time| read_rfc3339(time));
        let arrived = self.updated.as_deref().and_then(read_rfc3339);
        let version = self.generation.clone().map(String::into_bytes);
        Entry {
            size: self
                .size
                .as_deref()
                .and_then(|size| size.parse().ok())
                .unwrap_or(0),
            modified: written.or(arrived),
            changed: arrived,
            version,
            ..Entry::new(name, Kind::File)
        }
    }

    pub(super) fn extended(&self) -> Extended {
        let fields = [
            ("content-type", &self.content_type),
            ("cache-control", &self.cache_control),
            ("content-disposition", &self.content_disposition),
            ("content-encoding", &self.content_encoding),
            ("content-language", &self.content_language),
        ];
        let fields = fields.into_iter().filter_map(|(name, value)| {
            let value = value.as_ref().filter(|value| !value.is_empty())?;
            Some((name.as_bytes().to_vec(), value.clone().into_bytes()))
        });
        let metadata = self.metadata.iter().filter(|(name, _)| *name != MTIME);
        let metadata = metadata.map(|(name, value)| {
            (
                format!("meta-{name}").into_bytes(),
                value.clone().into_bytes(),
            )
        });
        fields.chain(metadata).collect()
    }

    pub(super) fn json(&self) -> String {
        serde_json::to_string(self).expect("text and maps are JSON")
    }
}

impl Bucket {
    pub(super) async fn head(&self, key: &[u8]) -> Result<Resource> {
        let call = self
            .object_call("head", "look at", key, Method::GET)?
            .expect_json();
        let response = self.fetch(&call).await?;
        serde_json::from_slice(&response.body)
            .map_err(|error| call.failure(ErrorKind::Temporary, error.to_string()))
    }

    /// Updates the metadata of an object.
    pub(super) async fn patch(&self, key: &[u8], with: &Resource) -> Result<Resource> {
        let call = self.object_call("set metadata", "set attributes of", key, Method::PATCH)?;
        let call = call
            .header("content-type", "application/json")
            .expect_json();
        let response = self
            .fetch(&call.clone().body(SegmentedBytes::from(with.json())))
            .await?;
        serde_json::from_slice(&response.body)
            .map_err(|error| call.failure(ErrorKind::Temporary, error.to_string()))
    }
}

/// An object to be read. Its resource was fetched before, because the response with its bytes lacks
/// some metadata.
pub(super) struct Object {
    pub(super) bucket: Arc<Bucket>,
    pub(super) key: Vec<u8>,
    pub(super) name: Vec<u8>,
    pub(super) resource: Resource,
}

impl RangeSource for Object {
    fn request_range<'a>(
        &'a self,
        range: Option<&'a str>,
        _version: Option<&'a [u8]>,
    ) -> BoxFuture<'a, Result<StreamedResponse>> {
        Box::pin(async move {
            let call = self
                .bucket
                .object_call("get", "read", &self.key, Method::GET)?;
            // A compressed object is read as it is stored.
            let mut call = call.query("alt", "media").header("accept-encoding", "gzip");
            if let Some(generation) = &self.resource.generation {
                call = call.query("ifGenerationMatch", generation);
            }
            if let Some(range) = range {
                call = call.header("range", range);
            }
            self.bucket.endpoint.open(&*self.bucket, &call).await
        })
    }

    fn info(&self, _headers: &HeaderMap) -> (Entry, Extended) {
        (self.resource.entry(&self.name), self.resource.extended())
    }

    fn check(&self, _headers: &HeaderMap) -> Option<Checksum> {
        let decoded = BASE64_STANDARD
            .decode(self.resource.md5_hash.as_ref()?)
            .ok()?;
        Some(Checksum::new(Algorithm::Md5, decoded))
    }

    fn failure(&self, kind: ErrorKind, message: &str) -> Error {
        let labels = ("get", "read", self.key.as_slice());
        self.bucket
            .call(labels, Method::GET, "/o")
            .failure(kind, message)
    }
}
