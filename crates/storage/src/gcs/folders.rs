//! Folders as common prefixes of object names: stat, move and remove.

use super::bucket::Bucket;
use super::copy;
use super::listing::{list_call, read};
use crate::Entry;
use crate::cloud::object_store::{ListedKey, ObjectStore};
use crate::error::{ErrorKind, Result};
use http::Method;

impl ObjectStore for Bucket {
    fn root(&self) -> &[u8] {
        &self.prefix
    }

    /// Checks by a listing, which every account that can migrate is allowed to do.
    async fn check(&self) -> Result<()> {
        let labels = ("list", "look at the bucket", self.name.as_bytes());
        let call = self
            .call(labels, Method::GET, "/o")
            .query("maxResults", "1");
        self.fetch(&call.expect_json()).await.map(drop)
    }

    async fn entry(&self, key: &[u8], name: &[u8]) -> Result<Entry> {
        Ok(self.head(key).await?.entry(name))
    }

    async fn any_below(&self, _path: &[u8], prefix: &[u8]) -> Result<bool> {
        Ok(!keys_below(self, prefix, Some("1")).await?.is_empty())
    }

    async fn list_prefix(&self, prefix: &[u8]) -> Result<Vec<ListedKey>> {
        keys_below(self, prefix, None).await
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

/// Returns some keys with a prefix; the list is empty only at the end.
async fn keys_below(bucket: &Bucket, prefix: &[u8], most: Option<&str>) -> Result<Vec<ListedKey>> {
    let mut call = list_call(bucket, prefix, prefix);
    if let Some(most) = most {
        call = call.query("maxResults", most);
    }
    let mut token: Option<String> = None;
    loop {
        let call = match &token {
            None => call.clone(),
            Some(token) => call.clone().query("pageToken", token),
        };
        let response = bucket.fetch(&call).await?;
        let page =
            read(&response.body).map_err(|message| call.failure(ErrorKind::Temporary, message))?;
        // A page may be empty although others follow.
        token = page.next_page_token;
        if !page.items.is_empty() || token.is_none() {
            let keys = page.items.into_iter().map(|item| ListedKey {
                key: item.name.into_bytes(),
                size: None,
            });
            return Ok(keys.collect());
        }
    }
}
