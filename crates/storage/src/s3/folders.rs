//! Looking at, moving and removing what keys have in common.

use super::bucket::Bucket;
use super::copy;
use super::listing::list_call;
use super::object::DRESS;
use crate::cloud::keys::{Key, Keys};
use crate::cloud::{Pieces, percent, xml};
use crate::error::{ErrorKind, Result};
use crate::{Entry, Kind};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use http::Method;
use md5::{Digest, Md5};
use std::fmt::Write;

impl Keys for Bucket {
    fn root(&self) -> &[u8] {
        &self.prefix
    }

    async fn look(&self) -> Result<()> {
        let name = self.name.as_bytes();
        let call = self.call("head", "look at the bucket", name, Method::HEAD);
        self.fetch(&call).await.map(drop)
    }

    async fn entry(&self, key: &[u8], name: &[u8]) -> Result<Entry> {
        Ok(DRESS.entry_of(name, &self.head(key).await?))
    }

    async fn any_below(&self, path: &[u8], prefix: &[u8]) -> Result<bool> {
        let call = list_call(self, path, prefix).query("max-keys", "1");
        let whole = self.fetch(&call).await?;
        Ok(xml::find(&whole.body, "Key").is_some())
    }

    async fn below(&self, prefix: &[u8]) -> Result<Vec<Key>> {
        keys_below(self, prefix).await
    }

    async fn copy(&self, from: &Key, onto: &[u8]) -> Result<()> {
        // A large one goes in parts.
        let size = match from.size {
            Some(size) => size,
            None => DRESS.entry_of(b"", &self.head(&from.key).await?).size,
        };
        let entry = Entry {
            size,
            ..Entry::new(Vec::new(), Kind::File)
        };
        let copied = copy::copy(self, &from.key, self, onto, &entry).await;
        copied.map(drop)
    }

    async fn delete(&self, key: &[u8]) -> Result<()> {
        let call = self.at("delete", "remove", key, Method::DELETE)?;
        match self.fetch(&call).await {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            deleted => deleted.map(drop),
        }
    }

    /// A page of them in one request.
    async fn delete_all(&self, prefix: &[u8], keys: &[Key]) -> Result<()> {
        remove_keys(self, prefix, keys).await
    }
}

/// A page of the keys that begin with a prefix.
async fn keys_below(bucket: &Bucket, prefix: &[u8]) -> Result<Vec<Key>> {
    let call = list_call(bucket, prefix, prefix);
    let whole = bucket.fetch(&call).await?;
    let mut keys = Vec::new();
    let (mut key, mut size, mut encoded) = (Vec::new(), None, false);
    let read = xml::each(&whole.body, |path, text| match path {
        [_, name] if name == "EncodingType" => encoded = text == "url",
        [_, contents, name] if contents == "Contents" && name == "Key" => {
            key = text.as_bytes().to_vec();
        }
        [_, contents, name] if contents == "Contents" && name == "Size" => {
            size = text.parse().ok();
        }
        [_, contents] if contents == "Contents" => {
            let (key, size) = (std::mem::take(&mut key), size.take());
            keys.push(Key { key, size });
        }
        _ => {}
    });
    read.map_err(|words| call.wrong(ErrorKind::Temporary, words))?;
    if encoded {
        keys.iter_mut()
            .for_each(|key| key.key = percent::decode_form(&key.key));
    }
    Ok(keys)
}

async fn remove_keys(bucket: &Bucket, path: &[u8], keys: &[Key]) -> Result<()> {
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
        .body(Pieces::from(body));
    let whole = bucket.fetch(&call).await?;
    match xml::find(&whole.body, "Message") {
        None => Ok(()),
        Some(words) => Err(call.wrong(ErrorKind::Denied, words)),
    }
}
