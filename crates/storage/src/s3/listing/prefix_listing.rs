//! Several folders for one request: a page of all keys below a folder, sorted out by the folders
//! that they are in.
//!
//! Who walks a whole tree asks for every folder once, sooner or later. Where folders are small, a
//! page without a delimiter has many of them; those that it has whole are kept until they are asked
//! for, as long as there is room.

use super::RemoteFolder;
use super::listing_probe::ListingProbes;
use super::name_ranges::NameRange;
use super::page::ListPage;
use crate::backend::{Listing, Page};
use crate::error::Result;
use crate::{BoxFuture, Entry, Folder, Kind};
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// Entries that are kept at most, a folder counting as one more. About sixteen megabytes.
const MAX_ENTRIES: usize = 65_536;
/// What a page may take up.
const PAGE_RESERVATION: usize = 2_000;

/// Folders that came before they were asked for.
pub(in crate::s3) struct PrefixListing {
    cache: Mutex<Cache>,
    /// Whether it pays, where that is to be found out.
    probes: Option<ListingProbes>,
}

#[derive(Default)]
struct Cache {
    folders: HashMap<Vec<u8>, Vec<Entry>>,
    entries_held: usize,
}

/// Room for what a page may bring; what is not used is given back.
pub(super) struct Reservation {
    listing: Arc<PrefixListing>,
    left: usize,
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.listing.cache.lock().entries_held -= self.left;
    }
}

impl PrefixListing {
    pub(in crate::s3) fn always() -> PrefixListing {
        PrefixListing {
            cache: Mutex::default(),
            probes: None,
        }
    }

    pub(in crate::s3) fn when_cheaper() -> PrefixListing {
        PrefixListing {
            cache: Mutex::default(),
            probes: Some(ListingProbes::default()),
        }
    }

    /// A folder that came already, once.
    pub(in crate::s3) fn take_cached(&self, folder: &Folder) -> Option<Box<dyn Listing>> {
        let mut cache = self.cache.lock();
        let entries = cache.folders.remove(folder.as_bytes())?;
        cache.entries_held -= entries.len() + 1;
        Some(Box::new(CachedListing(Some(entries))))
    }

    #[cfg(test)]
    pub(in crate::s3) fn cached_entries(&self) -> usize {
        self.cache.lock().entries_held
    }

    /// The first page of a folder, and whether it was one of all keys below it.
    pub(super) async fn first_page(
        self: &Arc<PrefixListing>,
        folder: &RemoteFolder,
    ) -> Result<(ListPage, bool)> {
        let cheaper = match &self.probes {
            None => true,
            // It cannot be found out without room either.
            Some(_) if self.reserve().is_none() => false,
            Some(probes) => {
                let (cheaper, page) = probes.is_cheaper(folder, || self.reserve()).await?;
                if let Some(page) = page {
                    return Ok((page, false));
                }
                cheaper
            }
        };
        let Some(mut reservation) = cheaper.then(|| self.reserve()).flatten() else {
            return Ok((folder.first().await?, false));
        };
        let mut page = folder.all_keys_page(self.probes.is_some()).await?;
        let folders = split_by_folder(&mut page);
        reservation.keep(&folder.path, folders);
        Ok((page, true))
    }

    /// Room for a page, if there is some.
    fn reserve(self: &Arc<PrefixListing>) -> Option<Reservation> {
        let mut cache = self.cache.lock();
        (cache.entries_held + PAGE_RESERVATION <= MAX_ENTRIES).then(|| {
            cache.entries_held += PAGE_RESERVATION;
            Reservation {
                listing: self.clone(),
                left: PAGE_RESERVATION,
            }
        })
    }
}

impl Reservation {
    /// Keeps folders below `folder`; how many.
    pub(super) fn keep(&mut self, folder: &[u8], folders: Vec<(Vec<u8>, Vec<Entry>)>) -> u32 {
        let mut count = 0;
        let mut cache = self.listing.cache.lock();
        for (name, entries) in folders {
            let cost = entries.len() + 1;
            if cost <= self.left {
                self.left -= cost;
                count += 1;
                cache.folders.insert([folder, &name].concat(), entries);
            }
        }
        count
    }
}

/// The folders that a page has whole. What is left is what a page of the folder itself would have
/// had.
pub(super) fn split_by_folder(page: &mut ListPage) -> Vec<(Vec<u8>, Vec<Entry>)> {
    let last = page.token.as_ref().and(page.items.last());
    let last = last.map(|last| last.name.clone()).unwrap_or_default();
    let mut folders = group_by_folder(std::mem::take(&mut page.items));
    page.items = folders.remove(&b""[..]).unwrap_or_default();
    let whole = folders.into_iter().filter_map(|(name, items)| {
        let mut entries = Vec::with_capacity(items.len());
        // More of what the last key is in may follow.
        let is_whole = !last.starts_with(&name)
            && NameRange::default()
                .accept(items, true, &mut entries)
                .is_ok();
        is_whole.then_some((name, entries))
    });
    whole.collect()
}

/// Keys in order, by the folder that each is in; folders are entries of those that they are in, in
/// the order of names.
fn group_by_folder(keys: Vec<Entry>) -> BTreeMap<Vec<u8>, Vec<Entry>> {
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
            let parent = folders.entry(key.name[..begin].to_vec()).or_default();
            // All that is in a folder comes in a row.
            let is_there = |last: &Entry| last.kind == Kind::Folder && last.name == name;
            if !parent.last().is_some_and(is_there) {
                parent.push(Entry::new(name, Kind::Folder));
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
struct CachedListing(Option<Vec<Entry>>);

impl Listing for CachedListing {
    fn next(&mut self) -> BoxFuture<'_, Result<Option<Page>>> {
        let entries = self.0.take();
        let page = entries.map(|entries| Page {
            entries,
            cursor: None,
        });
        Box::pin(std::future::ready(Ok(page)))
    }
}
