//! Listings that the far side goes on with at a token of its own.

use super::held::{Frames, Held, frame, place};
use crate::backend::{Cursor, Listing, Page};
use crate::error::{Error, ErrorKind, Result};
use crate::{BoxFuture, Entry};

/// What one page of the far side holds.
#[derive(Debug, Default)]
pub(crate) struct Batch {
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
pub(crate) trait Pages: Send + Sync + 'static {
    fn fetch<'a>(&'a self, token: Option<&'a str>) -> BoxFuture<'a, Result<Batch>>;

    /// Whether there is such a folder although nothing is in it.
    fn is_there(&self) -> BoxFuture<'_, Result<bool>>;

    fn wrong(&self, kind: ErrorKind, words: &str) -> Error;
}

pub(crate) struct Paged<P> {
    pages: P,
    progress: Progress,
    any: bool,
    ended: bool,
}

/// How far a listing is.
#[derive(Default, Debug, PartialEq, Eq)]
struct Progress {
    token: Option<String>,
    /// The last name that came, with its slash if it was a folder.
    last: Vec<u8>,
    held: Held,
}

impl<P: Pages> Paged<P> {
    pub(crate) fn new(pages: P, from: Option<&Cursor>) -> Paged<P> {
        let progress = from.and_then(|cursor| Progress::read(cursor));
        Paged {
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
            let words = "the listing does not go on: it names the same place again";
            return Err(self.pages.wrong(ErrorKind::Other, words));
        }
        // A page may be empty although others follow.
        self.any |= !batch.items.is_empty();
        if !self.any && batch.token.is_none() && !self.pages.is_there().await? {
            let words = "there is no such key, and none below it";
            return Err(self.pages.wrong(ErrorKind::NotFound, words));
        }
        let mut entries = Vec::with_capacity(batch.items.len());
        for item in batch.items {
            self.progress.take(item, &mut entries);
        }
        self.progress.token = batch.token;
        self.ended = self.progress.token.is_none();
        let cursor = match self.ended {
            true => {
                self.progress.held.release(&mut entries);
                None
            }
            false => Some(self.progress.write()),
        };
        Ok(Some(Page { entries, cursor }))
    }
}

impl<P: Pages> Listing for Paged<P> {
    fn next(&mut self) -> BoxFuture<'_, Result<Option<Page>>> {
        Box::pin(self.page())
    }
}

impl Progress {
    fn take(&mut self, item: Item, entries: &mut Vec<Entry>) {
        match item {
            Item::Stub(stub) => {
                self.last.clone_from(&stub.name);
                self.held.take_stub(stub, entries);
            }
            Item::Entry(entry) => {
                let place = place(&entry);
                // A page may begin with the folder that the one before it ended with.
                if place != self.last || place.is_empty() {
                    self.held.take(entry, entries);
                    self.last = place;
                }
            }
        }
    }

    fn write(&self) -> Cursor {
        let mut frames = Frames::default();
        frames.put(self.token.as_deref().unwrap_or_default().as_bytes());
        frames.put(&self.last);
        self.held.write(&mut frames);
        frames.finish()
    }

    fn read(mut cursor: &[u8]) -> Option<Progress> {
        let token = std::str::from_utf8(frame(&mut cursor)?).ok()?;
        Some(Progress {
            token: (!token.is_empty()).then(|| token.to_owned()),
            last: frame(&mut cursor)?.to_vec(),
            held: Held::read(&mut cursor)?,
        })
    }
}

/// Reads the bytes as a cursor, and takes the items of a page.
pub(crate) fn try_to_take(bytes: &[u8], batch: Option<Batch>) {
    let _ = Progress::read(bytes);
    let Some(batch) = batch else { return };
    let (mut progress, mut entries) = (Progress::default(), Vec::new());
    for item in batch.items {
        progress.take(item, &mut entries);
    }
    progress.token = batch.token.filter(|token| !token.is_empty());
    let again = Progress::read(&progress.write()).expect("what was written is read");
    assert_eq!(
        (&again.token, &again.last),
        (&progress.token, &progress.last)
    );
}
