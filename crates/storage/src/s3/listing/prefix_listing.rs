//! Listing several folders with one request: a page of all keys below a folder, grouped by the
//! folders that contain them.
//!
//! A walk requests every folder once, sooner or later. Where folders are small, a page without a
//! delimiter covers many of them; those that it covers completely are cached until they are
//! requested, within a limit.

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

/// Maximum number of cached entries, where a folder counts as one more. About sixteen megabytes.
const MAX_ENTRIES: usize = 65_536;
/// Entries reserved for a page.
const PAGE_RESERVATION: usize = 2_000;

/// A cache of folders that were listed before they were requested.
pub(in crate::s3) struct PrefixListing {
    cache: Mutex<Cache>,
    /// Probes whether prefix listings are cheaper, where that is unknown.
    probes: Option<ListingProbes>,
}

#[derive(Default)]
struct Cache {
    folders: HashMap<Vec<u8>, Vec<Entry>>,
    entries_held: usize,
}

/// A reservation for the entries of a page. The unused rest is released.
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

    /// Takes a folder from the cache.
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

    /// Returns the first page of a folder, and whether it was a page of all keys below it.
    pub(super) async fn first_page(
        self: &Arc<PrefixListing>,
        folder: &RemoteFolder,
    ) -> Result<(ListPage, bool)> {
        let cheaper = match &self.probes {
            None => true,
            // A probe needs a reservation, too.
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

    /// Reserves entries for a page, if the limit allows.
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
    /// Caches folders below `folder`. Returns how many.
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

/// Removes the folders that a page covers completely, and returns them. The rest is what a page of
/// the folder itself would have.
pub(super) fn split_by_folder(page: &mut ListPage) -> Vec<(Vec<u8>, Vec<Entry>)> {
    let last = page.token.as_ref().and(page.items.last());
    let last = last.map(|last| last.name.clone()).unwrap_or_default();
    let mut folders = group_by_folder(std::mem::take(&mut page.items));
    page.items = folders.remove(&b""[..]).unwrap_or_default();
    let complete = folders.into_iter().filter_map(|(name, items)| {
        let mut entries = Vec::with_capacity(items.len());
        // More keys of the last key's folders may follow.
        let is_whole = !last.starts_with(&name)
            && NameRange::default()
                .accept(items, true, &mut entries)
                .is_ok();
        is_whole.then_some((name, entries))
    });
    complete.collect()
}

/// Groups keys by folder. Subfolders become entries of their parents. Keys and entries are ordered
/// by name.
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
            // The keys of a folder are consecutive.
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

/// The listing of a folder from the cache: one page, without a request.
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
