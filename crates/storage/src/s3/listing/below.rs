//! Several folders for one request: a page of all keys below a folder, sorted out by the folders
//! that they are in.
//!
//! Who walks a whole tree asks for every folder once, sooner or later. Where folders are small, a
//! page without a delimiter has many of them; those that it has whole are kept until they are asked
//! for, as long as there is room.

use super::Asked;
use super::page::Answer;
use super::ranges::Range;
use super::trial::Trials;
use crate::backend::{Listing, Page};
use crate::error::Result;
use crate::{BoxFuture, Entry, Folder, Kind};
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// Entries that are kept at most, a folder counting as one more. About sixteen megabytes.
const ROOM: usize = 65_536;
/// What a page may take up.
const PAGE: usize = 2_000;

/// Folders that came before they were asked for.
pub(in crate::s3) struct Below {
    kept: Mutex<Kept>,
    /// Whether it pays, where that is to be found out.
    trials: Option<Trials>,
}

#[derive(Default)]
struct Kept {
    folders: HashMap<Vec<u8>, Vec<Entry>>,
    taken: usize,
}

/// Room for what a page may bring; what is not used is given back.
pub(super) struct Room {
    below: Arc<Below>,
    left: usize,
}

impl Drop for Room {
    fn drop(&mut self) {
        self.below.kept.lock().taken -= self.left;
    }
}

impl Below {
    pub(in crate::s3) fn always() -> Below {
        Below {
            kept: Mutex::default(),
            trials: None,
        }
    }

    pub(in crate::s3) fn if_it_pays() -> Below {
        Below {
            kept: Mutex::default(),
            trials: Some(Trials::default()),
        }
    }

    /// A folder that came already, once.
    pub(in crate::s3) fn take(&self, folder: &Folder) -> Option<Box<dyn Listing>> {
        let mut kept = self.kept.lock();
        let entries = kept.folders.remove(folder.as_bytes())?;
        kept.taken -= entries.len() + 1;
        Some(Box::new(Whole(Some(entries))))
    }

    #[cfg(test)]
    pub(in crate::s3) fn kept(&self) -> usize {
        self.kept.lock().taken
    }

    /// The first page of a folder, and whether it was one of all keys below it.
    pub(super) async fn first_page(self: &Arc<Below>, asked: &Asked) -> Result<(Answer, bool)> {
        let pays = match &self.trials {
            None => true,
            // It cannot be found out without room either.
            Some(_) if self.room().is_none() => false,
            Some(trials) => {
                let (pays, page) = trials.of(asked, || self.room()).await?;
                if let Some(page) = page {
                    return Ok((page, false));
                }
                pays
            }
        };
        let Some(mut room) = pays.then(|| self.room()).flatten() else {
            return Ok((asked.first().await?, false));
        };
        let mut answer = asked.page_of_all(self.trials.is_some()).await?;
        let folders = sort_out(&mut answer);
        room.keep(&asked.path, folders);
        Ok((answer, true))
    }

    /// Room for a page, if there is some.
    fn room(self: &Arc<Below>) -> Option<Room> {
        let mut kept = self.kept.lock();
        (kept.taken + PAGE <= ROOM).then(|| {
            kept.taken += PAGE;
            Room {
                below: self.clone(),
                left: PAGE,
            }
        })
    }
}

impl Room {
    /// Keeps folders below `folder`; how many.
    pub(super) fn keep(&mut self, folder: &[u8], folders: Vec<(Vec<u8>, Vec<Entry>)>) -> u32 {
        let mut count = 0;
        let mut kept = self.below.kept.lock();
        for (name, entries) in folders {
            let cost = entries.len() + 1;
            if cost <= self.left {
                self.left -= cost;
                count += 1;
                kept.folders.insert([folder, &name].concat(), entries);
            }
        }
        count
    }
}

/// The folders that a page has whole. What is left is what a page of the folder itself would have
/// had.
pub(super) fn sort_out(answer: &mut Answer) -> Vec<(Vec<u8>, Vec<Entry>)> {
    let last = answer.token.as_ref().and(answer.items.last());
    let last = last.map(|last| last.name.clone()).unwrap_or_default();
    let mut folders = by_folder(std::mem::take(&mut answer.items));
    answer.items = folders.remove(&b""[..]).unwrap_or_default();
    let whole = folders.into_iter().filter_map(|(name, items)| {
        let mut entries = Vec::with_capacity(items.len());
        // More of what the last key is in may follow.
        let is_whole =
            !last.starts_with(&name) && Range::default().take(items, true, &mut entries).is_ok();
        is_whole.then_some((name, entries))
    });
    whole.collect()
}

/// Keys in order, by the folder that each is in; folders are entries of those that they are in, in
/// the order of names.
fn by_folder(keys: Vec<Entry>) -> BTreeMap<Vec<u8>, Vec<Entry>> {
    let mut folders: BTreeMap<Vec<u8>, Vec<Entry>> = BTreeMap::new();
    for mut key in keys {
        let mut begin = 0;
        let slashes = key
            .name
            .iter()
            .enumerate()
            .filter(|(_, byte)| **byte == b'/');
        for (slash, _) in slashes {
            let name = &key.name[begin..slash];
            let above = folders.entry(key.name[..begin].to_vec()).or_default();
            // All that is in a folder comes in a row.
            let is_there = |last: &Entry| last.kind == Kind::Folder && last.name == name;
            if !above.last().is_some_and(is_there) {
                above.push(Entry::new(name, Kind::Folder));
            }
            begin = slash + 1;
        }
        let name = key.name.split_off(begin);
        let folder = std::mem::replace(&mut key.name, name);
        folders.entry(folder).or_default().push(key);
    }
    folders
}

/// A folder of which all is here.
struct Whole(Option<Vec<Entry>>);

impl Listing for Whole {
    fn next(&mut self) -> BoxFuture<'_, Result<Option<Page>>> {
        let entries = self.0.take();
        let page = entries.map(|entries| Page {
            entries,
            cursor: None,
        });
        Box::pin(std::future::ready(Ok(page)))
    }
}
