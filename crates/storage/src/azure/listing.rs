//! Listing a folder: the blobs with a prefix, up to the next slash, with their times.

use super::blob::{FOLDER_STUB, is_folder_stub};
use super::container::Container;
use crate::cloud::object_headers::{http_time, read_rfc3339, version};
use crate::cloud::object_store::ObjectStore;
use crate::cloud::paged_listing::{Item, PageSource, RawPage, fuzz_page};
use crate::cloud::pending_names::sort_key;
use crate::cloud::{Call, percent, xml};
use crate::display;
use crate::error::{Error, ErrorKind, Result};
use crate::{BoxFuture, Entry, Folder, Kind};
use http::Method;
use std::sync::Arc;

/// The pages of a folder.
pub(super) struct FolderPages {
    container: Arc<Container>,
    path: Vec<u8>,
    prefix: Vec<u8>,
    is_root: bool,
}

impl FolderPages {
    pub(super) fn new(container: Arc<Container>, folder: &Folder) -> FolderPages {
        FolderPages {
            path: folder.as_bytes().to_vec(),
            prefix: container.prefix(folder),
            is_root: folder.is_root(),
            container,
        }
    }

    fn call(&self) -> Call {
        let call = list_call(&self.container, &self.path, &self.prefix)
            .query("delimiter", "/")
            .query("include", "metadata");
        match &self.container.page {
            Some(page) => call.query("maxresults", page),
            None => call,
        }
    }
}

/// Returns a call that lists blobs with a prefix.
pub(super) fn list_call(container: &Container, path: &[u8], prefix: &[u8]) -> Call {
    container
        .call("list", "list", path, Method::GET)
        .query("comp", "list")
        .query("prefix", &String::from_utf8_lossy(prefix))
        .expect_xml()
}

impl PageSource for FolderPages {
    fn fetch<'a>(&'a self, token: Option<&'a str>) -> BoxFuture<'a, Result<RawPage>> {
        Box::pin(async move {
            let mut call = self.call();
            if std::str::from_utf8(&self.prefix).is_err() {
                let message = "the name is not UTF-8, as blob names must be";
                return Err(call.failure(ErrorKind::NotFound, message));
            }
            if let Some(token) = token {
                call = call.query("marker", token);
            }
            let response = self.container.fetch(&call).await?;
            parse(&response.body, &self.prefix)
                .map_err(|message| call.failure(ErrorKind::Temporary, message))
        })
    }

    fn folder_exists(&self) -> BoxFuture<'_, Result<bool>> {
        Box::pin(async {
            let key = self.prefix.strip_suffix(b"/").unwrap_or(&self.prefix);
            if self.is_root || key.is_empty() {
                return Ok(self.is_root);
            }
            match self.container.head(key).await {
                Ok(headers) => Ok(is_folder_stub(key, &headers)),
                Err(error) => match error.kind() {
                    ErrorKind::NotFound | ErrorKind::BadName => Ok(false),
                    _ => Err(error),
                },
            }
        })
    }

    fn failure(&self, kind: ErrorKind, message: &str) -> Error {
        self.call().failure(kind, message)
    }
}

/// Parses the bytes as a page and as a cursor.
pub(crate) fn fuzz_listing(bytes: &[u8], prefix: &[u8]) {
    fuzz_page(bytes, parse(bytes, prefix).ok());
}

/// The blob that is being parsed.
#[derive(Default)]
struct BlobElement {
    name: Vec<u8>,
    size: u64,
    etag: Vec<u8>,
    written: Option<i64>,
    arrived: Option<i64>,
    is_folder_stub: bool,
}

impl BlobElement {
    fn property(&mut self, name: &str, text: &str) {
        match name {
            "Content-Length" => self.size = text.parse().unwrap_or(0),
            "Etag" => self.etag = version(text),
            "Last-Modified" => self.arrived = http_time(text),
            _ => {}
        }
    }

    fn metadata(&mut self, name: &str, text: &str) {
        if name.eq_ignore_ascii_case("mtime") {
            self.written = read_rfc3339(text);
        }
        self.is_folder_stub |= name.eq_ignore_ascii_case(FOLDER_STUB) && text == "true";
    }

    fn item(self) -> (Vec<u8>, Item) {
        let entry = Entry {
            size: self.size,
            modified: self.written.or(self.arrived),
            changed: self.arrived,
            version: (!self.etag.is_empty()).then_some(self.etag),
            ..Entry::new(Vec::new(), Kind::File)
        };
        let is_folder_stub = self.is_folder_stub && self.size == 0 && !self.name.ends_with(b"/");
        let item = if is_folder_stub {
            Item::Stub
        } else {
            Item::Entry
        };
        (self.name, item(entry))
    }
}

fn parse(document: &[u8], prefix: &[u8]) -> std::result::Result<RawPage, String> {
    let (mut root, mut next) = (String::new(), None);
    let (mut blob, mut items) = (BlobElement::default(), Vec::new());
    // A name that XML cannot represent is percent-encoded, and marked so.
    let name_of = |text: &str, encoded: bool| match encoded {
        true => percent::decode(text.as_bytes()),
        false => text.as_bytes().to_vec(),
    };
    xml::visit_flagged(document, "Encoded", |path, text, encoded| match path {
        [_, name] if name == "NextMarker" => next = Some(text.to_owned()),
        [_, _, element, name] if element == "Blob" && name == "Name" => {
            blob.name = name_of(text, encoded);
        }
        [_, _, element, of, name] if element == "Blob" && of == "Properties" => {
            blob.property(name, text);
        }
        [_, _, element, of, name] if element == "Blob" && of == "Metadata" => {
            blob.metadata(name, text);
        }
        [_, _, element] if element == "Blob" => items.push(std::mem::take(&mut blob).item()),
        [_, _, folder, name] if folder == "BlobPrefix" && name == "Name" => {
            let mut name = name_of(text, encoded);
            if name.ends_with(b"/") {
                name.pop();
            }
            items.push((name, Item::Entry(Entry::new(Vec::new(), Kind::Folder))));
        }
        [name] => root.clone_from(name),
        _ => {}
    })?;
    // Anything else, such as an error or a proxy's page, must not pass for an empty folder.
    let Some(next) = next.filter(|_| root == "EnumerationResults") else {
        return Err(format!("the response is not a listing but `{root}`"));
    };
    let mut batch = RawPage {
        items: Vec::with_capacity(items.len()),
        token: (!next.is_empty()).then_some(next),
    };
    for (key, mut item) in items {
        let Some(name) = key.strip_prefix(prefix) else {
            return Err(format!(
                "the listing contains `{}`, which is outside the prefix",
                display(&key)
            ));
        };
        let (Item::Entry(entry) | Item::Stub(entry)) = &mut item;
        entry.name = name.to_vec();
        batch.items.push(item);
    }
    batch.items.sort_by_cached_key(sort_units);
    Ok(batch)
}

/// Returns the service's sort key (UTF-16), by which blobs and folders of a page are merged.
fn sort_units(item: &Item) -> Vec<u16> {
    let (Item::Entry(entry) | Item::Stub(entry)) = item;
    let key = sort_key(entry);
    String::from_utf8_lossy(&key).encode_utf16().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "<?xml version=\"1.0\" encoding=\"utf-8\"?><EnumerationResults ServiceEndpoint=\"x\" ContainerName=\"c\">\
        <Prefix>p/</Prefix><Blobs>\
        <Blob><Name>p/ a &amp; b </Name><Properties><Last-Modified>Sun, 13 Sep 2020 12:26:40 GMT</Last-Modified>\
        <Etag>0x8D</Etag><Content-Length>5</Content-Length></Properties>\
        <Metadata><Mtime>2020-09-13T12:26:40.000000001Z</Mtime></Metadata></Blob>\
        <Blob><Name Encoded=\"true\">p/x%EF%BF%BE</Name><Properties>\
        <Last-Modified>Sun, 13 Sep 2020 12:26:40 GMT</Last-Modified><Content-Length>0</Content-Length></Properties></Blob>\
        <Blob><Name>p/dir</Name><Properties><Content-Length>0</Content-Length></Properties>\
        <Metadata><hdi_isfolder>true</hdi_isfolder></Metadata></Blob>\
        <BlobPrefix><Name>p/dir/</Name></BlobPrefix><BlobPrefix><Name>p//</Name></BlobPrefix>\
        </Blobs><NextMarker>go on</NextMarker></EnumerationResults>";

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
        let expected: [&[u8]; 5] = [b" a & b ", b"", b"dir", b"dir", "x\u{fffe}".as_bytes()];
        assert_eq!(names, expected);
        assert_eq!(entries[0].version.as_deref(), Some(&b"0x8D"[..]));
        assert_eq!(entries[0].modified, Some(1_600_000_000_000_000_001));
        assert_eq!(entries[4].modified, Some(1_600_000_000_000_000_000));
        assert!(matches!(batch.items[2], Item::Stub(_)));
    }

    #[test]
    fn other_documents_are_not_empty_listings() {
        let empty = b"<EnumerationResults><Blobs /><NextMarker /></EnumerationResults>";
        let batch = parse(empty, b"").unwrap();
        assert!(batch.items.is_empty() && batch.token.is_none());
        for other in [
            &b"<html><body><p>Login please</p></body></html>"[..],
            b"<Error><Code>AuthenticationFailed</Code></Error>",
            b"<EnumerationResults><Blobs /></EnumerationResults>",
            b"<html><NextMarker /></html>",
        ] {
            assert!(parse(other, b"").is_err(), "{}", other.escape_ascii());
        }
        assert!(parse(PAGE.as_bytes(), b"q/").is_err(), "outside the prefix");
    }

    #[test]
    fn damaged_pages_and_cursors_never_panic() {
        let page = PAGE.as_bytes();
        for at in 0..page.len() {
            fuzz_listing(&page[..at], b"p/");
            let mut damaged = page.to_vec();
            damaged[at] ^= 0x55;
            fuzz_listing(&damaged, b"p/");
        }
    }
}
