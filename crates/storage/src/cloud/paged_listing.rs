//! Listings that the service continues at a token of its own.

use super::pending_names::{FrameWriter, PendingNames, read_frame, sort_key};
use crate::backend::{Cursor, Listing, Page};
use crate::error::{Error, ErrorKind, Result};
use crate::{BoxFuture, Entry};

/// A page of the service.
#[derive(Debug, Default)]
pub(crate) struct RawPage {
    /// Keys and folders below the requested prefix, in the order of the service.
    pub(crate) items: Vec<Item>,
    /// The token of the next page.
    pub(crate) token: Option<String>,
}

/// An item of a page.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Item {
    Entry(Entry),
    /// An empty file that is marked as a folder.
    Stub(Entry),
}

/// The pages of a remote folder.
pub(crate) trait PageSource: Send + Sync + 'static {
    fn fetch<'a>(&'a self, token: Option<&'a str>) -> BoxFuture<'a, Result<RawPage>>;

    /// Returns whether the folder exists although it is empty.
    fn folder_exists(&self) -> BoxFuture<'_, Result<bool>>;

    fn failure(&self, kind: ErrorKind, message: &str) -> Error;
}

pub(crate) struct PagedListing<P> {
    pages: P,
    progress: ListingProgress,
    any: bool,
    ended: bool,
}

/// The progress of a listing.
#[derive(Default, Debug, PartialEq, Eq)]
struct ListingProgress {
    token: Option<String>,
    /// The last name, with its slash if it was a folder.
    last: Vec<u8>,
    pending: PendingNames,
}

impl<P: PageSource> PagedListing<P> {
    pub(crate) fn new(pages: P, from: Option<&Cursor>) -> PagedListing<P> {
        let progress = from.and_then(|cursor| ListingProgress::read(cursor));
        PagedListing {
            pages,
            any: progress.is_some(),
            progress: progress.unwrap_or_default(),
            ended: false,
        }
    }

    async fn page(&mut self) -> Result<Option<Page>> {
        if self.ended {
            return Ok(None);
        }
        let batch = self.pages.fetch(self.progress.token.as_deref()).await?;
        if batch.token.is_some() && batch.token == self.progress.token {
            let message = "the listing does not advance: it repeats its token";
            return Err(self.pages.failure(ErrorKind::Other, message));
        }
        // A page may be empty although others follow.
        self.any |= !batch.items.is_empty();
        if !self.any && batch.token.is_none() && !self.pages.folder_exists().await? {
            let message = "no object has this key or prefix";
            return Err(self.pages.failure(ErrorKind::NotFound, message));
        }
        let mut entries = Vec::with_capacity(batch.items.len());
        for item in batch.items {
            self.progress.push(item, &mut entries);
        }
        self.progress.token = batch.token;
        self.ended = self.progress.token.is_none();
        let cursor = match self.ended {
            true => {
                self.progress.pending.release_all(&mut entries);
                None
            }
            false => Some(self.progress.write()),
        };
        Ok(Some(Page { entries, cursor }))
    }
}

impl<P: PageSource> Listing for PagedListing<P> {
    fn next(&mut self) -> BoxFuture<'_, Result<Option<Page>>> {
        Box::pin(self.page())
    }
}

impl ListingProgress {
    fn push(&mut self, item: Item, entries: &mut Vec<Entry>) {
        match item {
            Item::Stub(stub) => {
                self.last.clone_from(&stub.name);
                self.pending.push_stub(stub, entries);
            }
            Item::Entry(entry) => {
                let key = sort_key(&entry);
                // A page may start with the folder that ended the previous one.
                if key != self.last || key.is_empty() {
                    self.pending.push(entry, entries);
                    self.last = key;
                }
            }
        }
    }

    fn write(&self) -> Cursor {
        let mut frames = FrameWriter::default();
        frames.put(self.token.as_deref().unwrap_or_default().as_bytes());
        frames.put(&self.last);
        self.pending.write(&mut frames);
        frames.finish()
    }

    fn read(mut cursor: &[u8]) -> Option<ListingProgress> {
        let token = std::str::from_utf8(read_frame(&mut cursor)?).ok()?;
        Some(ListingProgress {
            token: (!token.is_empty()).then(|| token.to_owned()),
            last: read_frame(&mut cursor)?.to_vec(),
            pending: PendingNames::read(&mut cursor)?,
        })
    }
}

/// Parses the bytes as a cursor, and accepts the items of a page.
pub(crate) fn fuzz_page(bytes: &[u8], batch: Option<RawPage>) {
    let _ = ListingProgress::read(bytes);
    let Some(batch) = batch else { return };
    let (mut progress, mut entries) = (ListingProgress::default(), Vec::new());
    for item in batch.items {
        progress.push(item, &mut entries);
    }
    progress.token = batch.token.filter(|token| !token.is_empty());
    let again = ListingProgress::read(&progress.write()).expect("a written cursor can be read");
    assert_eq!(
        (&again.token, &again.last),
        (&progress.token, &progress.last)
    );
}
