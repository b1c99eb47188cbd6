//! Listing a folder: the objects with a prefix, up to the next slash, with their times.

use super::bucket::Bucket;
use super::object::Resource;
use crate::cloud::Call;
use crate::cloud::object_store::ObjectStore;
use crate::cloud::paged_listing::{Item, PageSource, RawPage, fuzz_page};
use crate::cloud::pending_names::sort_key;
use crate::error::{Error, ErrorKind, Result};
use crate::{BoxFuture, Entry, Folder, Kind};
use http::Method;
use serde::Deserialize;
use std::sync::Arc;

/// The requested fields.
const FIELDS: &str = "kind,nextPageToken,prefixes,items(name,size,generation,updated,metadata)";

/// The pages of a folder.
pub(super) struct FolderPages {
    bucket: Arc<Bucket>,
    path: Vec<u8>,
    prefix: Vec<u8>,
    is_root: bool,
}

impl FolderPages {
    pub(super) fn new(bucket: Arc<Bucket>, folder: &Folder) -> FolderPages {
        FolderPages {
            path: folder.as_bytes().to_vec(),
            prefix: bucket.prefix(folder),
            is_root: folder.is_root(),
            bucket,
        }
    }

    fn call(&self) -> Call {
        let call = list_call(&self.bucket, &self.path, &self.prefix).query("delimiter", "/");
        match &self.bucket.page {
            Some(page) => call.query("maxResults", page),
            None => call,
        }
    }
}

/// Returns a call that lists objects with a prefix.
pub(super) fn list_call(bucket: &Bucket, path: &[u8], prefix: &[u8]) -> Call {
    bucket
        .call(("list", "list", path), Method::GET, "/o")
        .query("prefix", &String::from_utf8_lossy(prefix))
        .query("fields", FIELDS)
        .expect_json()
}

impl PageSource for FolderPages {
    fn fetch<'a>(&'a self, token: Option<&'a str>) -> BoxFuture<'a, Result<RawPage>> {
        Box::pin(async move {
            let mut call = self.call();
            if std::str::from_utf8(&self.prefix).is_err() {
                let message = "the name is not UTF-8, as object names must be";
                return Err(call.failure(ErrorKind::NotFound, message));
            }
            if let Some(token) = token {
                call = call.query("pageToken", token);
            }
            let response = self.bucket.fetch(&call).await?;
            parse(&response.body, &self.prefix)
                .map_err(|message| call.failure(ErrorKind::Temporary, message))
        })
    }

    fn folder_exists(&self) -> BoxFuture<'_, Result<bool>> {
        Box::pin(std::future::ready(Ok(self.is_root)))
    }

    fn failure(&self, kind: ErrorKind, message: &str) -> Error {
        self.call().failure(kind, message)
    }
}

/// Parses the bytes as a page and as a cursor.
pub(crate) fn fuzz_listing(bytes: &[u8], prefix: &[u8]) {
    fuzz_page(bytes, parse(bytes, prefix).ok());
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Page {
    /// Required: other JSON must not pass for an empty folder.
    kind: String,
    #[serde(default)]
    pub(super) next_page_token: Option<String>,
    #[serde(default)]
    prefixes: Vec<String>,
    #[serde(default)]
    pub(super) items: Vec<Resource>,
}

pub(super) fn read(document: &[u8]) -> std::result::Result<Page, String> {
    let page: Page = serde_json::from_slice(document)
        .map_err(|error| format!("the response is not a listing: {error}"))?;
    match page.kind == "storage#objects" {
        true => Ok(page),
        false => Err(format!("the response is not a listing but `{}`", page.kind)),
    }
}

fn parse(document: &[u8], prefix: &[u8]) -> std::result::Result<RawPage, String> {
    let page = read(document)?;
    let below = |key: &str| {
        let name = key.as_bytes().strip_prefix(prefix).map(<[u8]>::to_vec);
        name.ok_or_else(|| {
            format!(
                "the listing contains `{}`, which is outside the prefix",
                key.escape_debug()
            )
        })
    };
    let mut entries = Vec::with_capacity(page.items.len() + page.prefixes.len());
    for item in &page.items {
        entries.push(item.entry(&below(&item.name)?));
    }
    for key in &page.prefixes {
        let mut name = below(key)?;
        if name.ends_with(b"/") {
            name.pop();
        }
        entries.push(Entry::new(name, Kind::Folder));
    }
    entries.sort_by_cached_key(sort_key);
    Ok(RawPage {
        items: entries.into_iter().map(Item::Entry).collect(),
        token: page.next_page_token.filter(|token| !token.is_empty()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = r#"{"kind": "storage#objects", "nextPageToken": "go on", "prefixes": ["p/d/", "p//"], "items": [
        {"name": "p/ a \"b\" ", "size": "5", "generation": "17", "updated": "2020-09-13T12:26:40.123Z",
         "metadata": {"mtime": "2020-09-13T12:26:40.000000001Z"}},
        {"name": "p/d", "size": "0", "generation": "18", "updated": "2020-09-13T12:26:40.123Z", "metadata": null}]}"#;

    #[test]
    fn pages_are_read_with_their_times() {
        let batch = parse(PAGE.as_bytes(), b"p/").unwrap();
        assert_eq!(batch.token.as_deref(), Some("go on"));
        let entries: Vec<&Entry> = batch
            .items
            .iter()
            .map(|item| match item {
                Item::Entry(entry) | Item::Stub(entry) => entry,
            })
            .collect();
        let names: Vec<&[u8]> = entries.iter().map(|entry| entry.name.as_slice()).collect();
        let expected: [&[u8]; 4] = [b" a \"b\" ", b"", b"d", b"d"];
        assert_eq!(names, expected);
        assert_eq!(entries[0].version.as_deref(), Some(&b"17"[..]));
        assert_eq!(entries[0].modified, Some(1_600_000_000_000_000_001));
        assert_eq!(entries[2].modified, Some(1_600_000_000_123_000_000));
    }

    #[test]
    fn other_documents_are_not_empty_listings() {
        let empty = br#"{"kind": "storage#objects"}"#;
        assert!(parse(empty, b"").unwrap().items.is_empty());
        for other in ["{}", "[]", "", "<html/>", r#"{"kind": "storage#object"}"#] {
            assert!(parse(other.as_bytes(), b"").is_err(), "{other}");
        }
        assert!(parse(PAGE.as_bytes(), b"q/").is_err(), "outside the prefix");
    }
}
