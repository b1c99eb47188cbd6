//! Folders as common prefixes of blob names: stat, move and remove.

use super::blob::{HEADERS, is_folder_stub};
use super::container::Container;
use super::copy;
use super::listing::list_call;
use crate::cloud::object_store::{ListedKey, ObjectStore};
use crate::cloud::xml;
use crate::error::{ErrorKind, Result};
use crate::{Entry, Kind};
use http::Method;

impl ObjectStore for Container {
    fn root(&self) -> &[u8] {
        &self.prefix
    }

    /// Checks by a listing, which every signature that is sufficient for a migration allows.
    async fn check(&self) -> Result<()> {
        let name = self.name.as_bytes();
        let call = self.call("list", "look at the container", name, Method::GET);
        let call = call.query("comp", "list").query("maxresults", "1");
        self.fetch(&call.expect_xml()).await.map(drop)
    }

    async fn entry(&self, key: &[u8], name: &[u8]) -> Result<Entry> {
        let headers = self.head(key).await?;
        match is_folder_stub(key, &headers) {
            true => Ok(Entry::new(name, Kind::Folder)),
            false => Ok(HEADERS.entry_of(name, &headers)),
        }
    }

    async fn any_below(&self, path: &[u8], prefix: &[u8]) -> Result<bool> {
        let call = list_call(self, path, prefix).query("maxresults", "1");
        let mut marker = String::new();
        loop {
            let response = self.fetch(&call.clone().query("marker", &marker)).await?;
            if xml::find(&response.body, "Name").is_some() {
                return Ok(true);
            }
            // A page may be empty although others follow.
            marker = xml::find(&response.body, "NextMarker").unwrap_or_default();
            if marker.is_empty() {
                return Ok(false);
            }
        }
    }

    async fn list_prefix(&self, prefix: &[u8]) -> Result<Vec<ListedKey>> {
        keys_below(self, prefix).await
    }

    async fn copy(&self, from: &ListedKey, target_key: &[u8]) -> Result<()> {
        let copied = copy::copy(self, &from.key, self, target_key, None).await;
        copied.map(drop)
    }

    async fn delete(&self, key: &[u8]) -> Result<()> {
        let call = self.object_call("delete", "remove", key, Method::DELETE)?;
        match self.fetch(&call).await {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            deleted => deleted.map(drop),
        }
    }
}

/// Returns a page of the blobs with a prefix.
async fn keys_below(container: &Container, prefix: &[u8]) -> Result<Vec<ListedKey>> {
    let call = list_call(container, prefix, prefix);
    let mut marker = String::new();
    loop {
        let call = call.clone().query("marker", &marker);
        let response = container.fetch(&call).await?;
        let mut keys = Vec::new();
        let read = xml::visit(&response.body, |path, text| match path {
            [_, _, blob, name] if blob == "Blob" && name == "Name" => {
                let (key, size) = (text.into(), None);
                keys.push(ListedKey { key, size });
            }
            [_, name] if name == "NextMarker" => text.clone_into(&mut marker),
            _ => {}
        });
        read.map_err(|message| call.failure(ErrorKind::Temporary, message))?;
        if !keys.is_empty() || marker.is_empty() {
            return Ok(keys);
        }
    }
}
