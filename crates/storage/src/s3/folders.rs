//! Folders as common prefixes of keys: stat, move and remove.

use super::bucket::Bucket;
use super::copy;
use super::listing::list_call;
use super::object::HEADERS;
use crate::cloud::object_store::{ListedKey, ObjectStore};
use crate::cloud::{SegmentedBytes, percent, xml};
use crate::error::{ErrorKind, Result};
use crate::{Entry, Kind};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use http::Method;
use md5::{Digest, Md5};
use std::fmt::Write;

impl ObjectStore for Bucket {
    fn root(&self) -> &[u8] {
        &self.prefix
    }

    async fn check(&self) -> Result<()> {
        let name = self.name.as_bytes();
        let call = self.call("head", "look at the bucket", name, Method::HEAD);
        self.fetch(&call).await.map(drop)
    }

    async fn entry(&self, key: &[u8], name: &[u8]) -> Result<Entry> {
        Ok(HEADERS.entry_of(name, &self.head(key).await?))
    }

    async fn any_below(&self, path: &[u8], prefix: &[u8]) -> Result<bool> {
        let call = list_call(self, path, prefix).query("max-keys", "1");
        let response = self.fetch(&call).await?;
        Ok(xml::find(&response.body, "Key").is_some())
    }

    async fn list_prefix(&self, prefix: &[u8]) -> Result<Vec<ListedKey>> {
        keys_below(self, prefix).await
    }

    async fn copy(&self, from: &ListedKey, target_key: &[u8]) -> Result<()> {
        // A large object is copied in parts.
        let size = match from.size {
            Some(size) => size,
            None => HEADERS.entry_of(b"", &self.head(&from.key).await?).size,
        };
        let entry = Entry {
            size,
            ..Entry::new(Vec::new(), Kind::File)
        };
        let copied = copy::copy(self, &from.key, self, target_key, &entry).await;
        copied.map(drop)
    }

    async fn delete(&self, key: &[u8]) -> Result<()> {
        let call = self.object_call("delete", "remove", key, Method::DELETE)?;
        match self.fetch(&call).await {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            deleted => deleted.map(drop),
        }
    }

    /// Removes a page of keys in one request.
    async fn delete_all(&self, prefix: &[u8], keys: &[ListedKey]) -> Result<()> {
        remove_keys(self, prefix, keys).await
    }
}

/// Returns a page of the keys with a prefix.
async fn keys_below(bucket: &Bucket, prefix: &[u8]) -> Result<Vec<ListedKey>> {
    let call = list_call(bucket, prefix, prefix);
    let response = bucket.fetch(&call).await?;
    let mut keys = Vec::new();
    let (mut key, mut size, mut encoded) = (Vec::new(), None, false);
    let read = xml::visit(&response.body, |path, text| match path {
        [_, name] if name == "EncodingType" => encoded = text == "url",
        [_, contents, name] if contents == "Contents" && name == "Key" => {
            key = text.as_bytes().to_vec();
        }
        [_, contents, name] if contents == "Contents" && name == "Size" => {
            size = text.parse().ok();
        }
        [_, contents] if contents == "Contents" => {
            let (key, size) = (std::mem::take(&mut key), size.take());
            keys.push(ListedKey { key, size });
        }
        _ => {}
    });
    read.map_err(|message| call.failure(ErrorKind::Temporary, message))?;
    if encoded {
        keys.iter_mut()
            .for_each(|key| key.key = percent::decode_form(&key.key));
    }
    Ok(keys)
}

async fn remove_keys(bucket: &Bucket, path: &[u8], keys: &[ListedKey]) -> Result<()> {
    let mut body = String::from(
        "<Delete xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Quiet>true</Quiet>",
    );
    for key in keys {
        let key = xml::escape(&String::from_utf8_lossy(&key.key));
        let _ = write!(body, "<Object><Key>{key}</Key></Object>");
    }
    body.push_str("</Delete>");
    let digest = BASE64_STANDARD.encode(Md5::digest(body.as_bytes()));
    let call = bucket
        .call("delete", "remove", path, Method::POST)
        .query("delete", "")
        .header("content-md5", &digest)
        .body(SegmentedBytes::from(body));
    let response = bucket.fetch(&call).await?;
    match xml::find(&response.body, "Message") {
        None => Ok(()),
        Some(message) => Err(call.failure(ErrorKind::Denied, message)),
    }
}
