//! Listings that the far side goes on with at a token of its own.

use super::pending_names::{FrameWriter, PendingNames, read_frame, sort_key};
use crate::backend::{Cursor, Listing, Page};
use crate::error::{Error, ErrorKind, Result};
use crate::{BoxFuture, Entry};

/// What one page of the far side holds.
#[derive(Debug, Default)]
pub(crate) struct RawPage {
    /// Keys and folders, below the prefix that was asked for, in the order of the far side.
    pub(crate) items: Vec<Item>,
    /// Where it goes on.
    pub(crate) token: Option<String>,
}

/// One of them.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Item {
    Entry(Entry),
    /// An empty file that says of itself that it is a folder.
    Stub(Entry),
}

/// A folder at a far side.
pub(crate) trait PageSource: Send + Sync + 'static {
    fn fetch<'a>(&'a self, token: Option<&'a str>) -> BoxFuture<'a, Result<RawPage>>;

    /// Whether there is such a folder although nothing is in it.
    fn folder_exists(&self) -> BoxFuture<'_, Result<bool>>;

    fn failure(&self, kind: ErrorKind, message: &str) -> Error;
}

pub(crate) struct PagedListing<P> {
    pages: P,
    progress: ListingProgress,
    any: bool,
    ended: bool,
}

/// How far a listing is.
#[derive(Default, Debug, PartialEq, Eq)]
struct ListingProgress {
    token: Option<String>,
    /// The last name that came, with its slash if it was a folder.
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
            let message = "the listing does not go on: it names the same place again";
            return Err(self.pages.failure(ErrorKind::Other, message));
        }
        // A page may be empty although others follow.
        self.any |= !batch.items.is_empty();
        if !self.any && batch.token.is_none() && !self.pages.folder_exists().await? {
            let message = "there is no such key, and none below it";
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
                // A page may begin with the folder that the one before it ended with.
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

/// Reads the bytes as a cursor, and takes the items of a page.
pub(crate) fn fuzz_page(bytes: &[u8], batch: Option<RawPage>) {
    let _ = ListingProgress::read(bytes);
    let Some(batch) = batch else { return };
    let (mut progress, mut entries) = (ListingProgress::default(), Vec::new());
    for item in batch.items {
        progress.push(item, &mut entries);
    }
    progress.token = batch.token.filter(|token| !token.is_empty());
    let again = ListingProgress::read(&progress.write()).expect("what was written is read");
    assert_eq!(
        (&again.token, &again.last),
        (&progress.token, &progress.last)
    );
}
