//! Listing a folder: the keys with a prefix, up to the next slash.
//!
//! A folder of many pages is split into ranges of names that are listed in parallel
//! (`docs/adr/0016`). Pages are returned as they arrive, each with a cursor that contains the
//! progress of every range, so a durable page is never fetched again. Memory holds at most one page
//! per range.

mod listing_probe;
mod name_ranges;
mod page;
mod prefix_listing;
mod split;
#[cfg(test)]
mod tests;

use super::bucket::Bucket;
use crate::backend::{Cursor, Listing, Page};
use crate::cloud::Call;
use crate::cloud::object_store::ObjectStore;
use crate::cloud::pending_names::sort_key;
use crate::error::{Error, ErrorKind, Result};
use crate::{BoxFuture, Entry, Folder, Kind};
use http::Method;
use name_ranges::{NameRange, NameRanges};
use page::{ListPage, parse};
pub(super) use prefix_listing::PrefixListing;
use split::{Alphabet, common_prefix, first_after_prefix};
use std::sync::Arc;
use tokio::task::JoinSet;

/// Maximum number of ranges listed in parallel.
const MAX_PARALLEL: usize = 8;
/// Number of pages after which a folder counts as large.
const LARGE_AFTER_PAGES: u32 = 4;
/// Number of free splits. Every further one must be earned by this many pages of its range.
const FREE_CUTS: u32 = 2 * MAX_PARALLEL as u32;
const PAGES_PER_CUT: u32 = 8;
/// More empty pages than any service needs to skip deleted keys.
const EMPTY_PAGES: u32 = 1000;

pub(super) struct S3Listing {
    folder: Arc<RemoteFolder>,
    is_root: bool,
    ranges: NameRanges,
    running: JoinSet<Fetched>,
    begun: bool,
    ended: bool,
    /// Pages and splits of this process.
    pages: u32,
    cuts: u32,
    /// The first name of the last range.
    first: Option<Vec<u8>>,
    alphabet: Alphabet,
    upper_bound: UpperBound,
    /// Good positions for splits.
    good_cuts: Vec<Vec<u8>>,
    /// The cache for folders that arrive with the first page, if that is allowed.
    prefix_listing: Option<Arc<PrefixListing>>,
}

/// Knowledge about the last names. Only a hint: the last range has no end.
enum UpperBound {
    Unknown,
    Searching,
    /// Before this name, if known.
    Near(Option<Vec<u8>>),
    /// The service ignores `start-after` or rejects it: nothing is split.
    Unavailable,
}

enum Fetched {
    /// The id of the range, and the page.
    Page(u32, Result<ListPage>),
    /// The bound, and names after each of which others follow.
    UpperBound(UpperBound, Vec<Vec<u8>>),
}

/// A remote folder.
struct RemoteFolder {
    bucket: Arc<Bucket>,
    path: Vec<u8>,
    prefix: Vec<u8>,
}

impl RemoteFolder {
    /// Returns a call for all keys below the folder.
    fn all_keys(&self) -> Call {
        list_call(&self.bucket, &self.path, &self.prefix)
    }

    /// Returns a call for the entries of the folder.
    fn call(&self) -> Call {
        self.all_keys().query("delimiter", "/")
    }

    /// Returns a call for the entries after a name.
    fn after(&self, name: &[u8]) -> Call {
        let after = [self.prefix.as_slice(), name].concat();
        let call = self.call();
        call.query("start-after", &String::from_utf8_lossy(&after))
    }

    fn failure(&self, kind: ErrorKind, message: &str) -> Error {
        self.call().failure(kind, message)
    }

    async fn page(&self, token: Option<String>, after: Vec<u8>) -> Result<ListPage> {
        let call = match token {
            Some(token) => self.call().query("continuation-token", &token),
            // A name is valid forever; a token may expire.
            None if !after.is_empty() => self.after(&after),
            None => self.call(),
        };
        self.fetch(&self.sized(call)).await
    }

    async fn first(&self) -> Result<ListPage> {
        self.page(None, Vec::new()).await
    }

    /// Fetches a page of all keys below the folder. If grouped, keys with two consecutive slashes
    /// are returned as common prefixes.
    async fn all_keys_page(&self, grouped: bool) -> Result<ListPage> {
        let call = match grouped {
            true => self.all_keys().query("delimiter", "//"),
            false => self.all_keys(),
        };
        let page = self.fetch(&self.sized(call)).await?;
        let is_other = |item: &Entry| item.kind == Kind::Folder && !item.name.ends_with(b"/");
        match page.items.iter().any(is_other) {
            false => Ok(page),
            true => {
                let message = "the service ignores the requested delimiter";
                Err(self.failure(ErrorKind::Unsupported, message))
            }
        }
    }

    fn sized(&self, call: Call) -> Call {
        match &self.bucket.page {
            Some(page) => call.query("max-keys", page),
            None => call,
        }
    }

    async fn fetch(&self, call: &Call) -> Result<ListPage> {
        let response = self.bucket.fetch(call).await?;
        parse(&response.body, &self.prefix)
            .map_err(|message| call.failure(ErrorKind::Temporary, message))
    }

    /// Searches for a name after all others, by the length of the prefix that the last of them
    /// shares with `name`. Known names differ after `same` characters. A binary search over prefix
    /// lengths.
    async fn upper_bound(&self, name: &str, same: usize) -> Option<Fetched> {
        // All names share the first `low` characters; not all share the first `high`.
        let (mut low, mut high, mut step) = (0, same + 1, 1);
        let mut passed = Vec::new();
        while high - low > 1 {
            let at = match low {
                0 => high.saturating_sub(step).max(1),
                _ => low + (high - low) / 2,
            };
            step *= 2;
            let cut = first_after_prefix(name, at)?;
            match self.has_names_beyond(&cut).await? {
                true => {
                    high = at;
                    passed.push(cut.into_bytes());
                }
                false => low = at,
            }
        }
        let upper_bound = UpperBound::Near(first_after_prefix(name, low).map(String::into_bytes));
        Some(Fetched::UpperBound(upper_bound, passed))
    }

    async fn has_names_beyond(&self, name: &str) -> Option<bool> {
        let call = self.after(name.as_bytes()).query("max-keys", "1");
        let page = self.fetch(&call).await.ok()?;
        let first = page.items.first().map(sort_key);
        let is_honoured = first
            .as_ref()
            .is_none_or(|first| &**first >= name.as_bytes());
        is_honoured.then_some(first.is_some())
    }
}

/// Returns a call that lists keys with a prefix.
pub(super) fn list_call(bucket: &Bucket, path: &[u8], prefix: &[u8]) -> Call {
    bucket
        .call("list", "list", path, Method::GET)
        .query("list-type", "2")
        .query("encoding-type", "url")
        .query("prefix", &String::from_utf8_lossy(prefix))
        .expect_xml()
}

impl S3Listing {
    pub(super) fn new(bucket: Arc<Bucket>, folder: &Folder, from: Option<&Cursor>) -> S3Listing {
        let ranges = from.and_then(|cursor| NameRanges::read(cursor));
        let remote = RemoteFolder {
            path: folder.as_bytes().to_vec(),
            prefix: bucket.prefix(folder),
            bucket,
        };
        S3Listing {
            folder: Arc::new(remote),
            is_root: folder.is_root(),
            running: JoinSet::new(),
            begun: ranges.is_some(),
            ended: ranges.as_ref().is_some_and(NameRanges::is_complete),
            ranges: ranges.unwrap_or_default(),
            pages: 0,
            cuts: 0,
            first: None,
            alphabet: Alphabet::default(),
            upper_bound: UpperBound::Unknown,
            good_cuts: Vec::new(),
            prefix_listing: None,
        }
    }

    /// Uses a prefix listing for the first page, unless the listing is resumed. The root likely has
    /// more than a page of keys.
    pub(super) fn with_prefix_listing(mut self, prefix_listing: &Arc<PrefixListing>) -> S3Listing {
        self.prefix_listing = (!self.begun && !self.is_root).then(|| prefix_listing.clone());
        self
    }

    async fn page(&mut self) -> Result<Option<Page>> {
        if std::str::from_utf8(&self.folder.prefix).is_err() {
            let message = "the name is not UTF-8, as keys must be";
            return Err(self.folder.failure(ErrorKind::NotFound, message));
        }
        if self.pages == 0 && !self.begun {
            return self.first_page().await.map(Some);
        }
        while !self.ended {
            self.fetch_more();
            match self.running.join_next().await {
                Some(Ok(Fetched::Page(id, page))) => {
                    return self.accept(id, false, page?).map(Some);
                }
                Some(Ok(Fetched::UpperBound(upper_bound, cuts))) => {
                    (self.upper_bound, self.good_cuts) = (upper_bound, cuts);
                    self.cut();
                }
                Some(Err(failed)) => std::panic::resume_unwind(failed.into_panic()),
                None => unreachable!("an incomplete listing has a page in flight"),
            }
        }
        Ok(None)
    }

    /// Fetches the first page. Most folders have no other, so it needs no task.
    async fn first_page(&mut self) -> Result<Page> {
        let first = self.ranges.open().next().map(|range| range.id);
        let id = first.expect("the range is open before the first page");
        let (page, all_keys) = match self.prefix_listing.take() {
            Some(below) => below.first_page(&self.folder).await?,
            None => (self.folder.first().await?, false),
        };
        self.accept(id, all_keys, page)
    }

    fn fetch_more(&mut self) {
        let busy = self.ranges.open().filter(|range| range.busy).count();
        let idle = self.ranges.open().filter(|range| !range.busy);
        for range in idle.take(MAX_PARALLEL.saturating_sub(busy)) {
            range.busy = true;
            let (folder, id) = (self.folder.clone(), range.id);
            let (token, after) = (range.token.clone(), range.after.clone());
            self.running.spawn(async move {
                let page = folder.page(token, after).await;
                Fetched::Page(id, page)
            });
        }
    }

    /// Accepts a page of a range, which may have been one of all keys, and requests the next.
    fn accept(&mut self, id: u32, all_keys: bool, page: ListPage) -> Result<Page> {
        let ListPage { items, token } = page;
        if !self.begun && !self.is_root && token.is_none() && items.is_empty() {
            let message = "no key has this prefix";
            return Err(self.folder.failure(ErrorKind::NotFound, message));
        }
        self.begun |= !items.is_empty();
        self.pages += 1;
        self.learn(&items);
        let mut entries = Vec::with_capacity(items.len());
        let range = self.ranges.find(id).expect("the range is not complete");
        let is_last = range.end.is_none();
        let taken = range.accept_page(items, token, &mut entries);
        if all_keys {
            // The token would continue with all keys.
            range.token = None;
        }
        let first = entries.first().map(sort_key);
        taken.map_err(|message| self.folder.failure(ErrorKind::Other, &message))?;
        self.first = self.first.take().or(first.filter(|_| is_last));
        self.ranges.merge_done(&mut entries);
        self.ended = self.ranges.is_complete();
        self.cut();
        if !self.ended {
            self.fetch_more();
        }
        let cursor = (!self.ended).then(|| self.ranges.write());
        Ok(Page { entries, cursor })
    }

    fn learn(&mut self, items: &[Entry]) {
        let names: Vec<&[u8]> = items.iter().map(|item| item.name.as_slice()).collect();
        self.alphabet.learn(&names);
    }

    /// Splits the rest of a large folder, as long as more ranges could be listed in parallel.
    fn cut(&mut self) {
        if self.pages < LARGE_AFTER_PAGES {
            return;
        }
        if matches!(self.upper_bound, UpperBound::Unknown) {
            self.find_upper_bound();
        }
        while matches!(self.upper_bound, UpperBound::Near(_))
            && self.ranges.open().count() < MAX_PARALLEL
        {
            let cut = self.good_cuts.pop();
            let cut = cut.and_then(|name| self.ranges.range_containing(name));
            let Some((at, middle)) = cut.or_else(|| self.middle()) else {
                return;
            };
            self.ranges.cut(at, middle);
            self.cuts += 1;
        }
    }

    fn find_upper_bound(&mut self) {
        let last = self.ranges.all.last().filter(|range| !range.done);
        let Some(name) = last.and_then(|range| String::from_utf8(range.after.clone()).ok()) else {
            self.upper_bound = UpperBound::Near(None);
            return;
        };
        let Some(first) = &self.first else { return };
        let same = name.get(..common_prefix(first, name.as_bytes()));
        let same = same.map_or(0, |same| same.chars().count());
        self.upper_bound = UpperBound::Searching;
        let folder = self.folder.clone();
        self.running.spawn(async move {
            let edge = folder.upper_bound(&name, same).await;
            edge.unwrap_or(Fetched::UpperBound(UpperBound::Unavailable, Vec::new()))
        });
    }

    /// Returns the next split of the range that was split least often.
    fn middle(&self) -> Option<(usize, Vec<u8>)> {
        let UpperBound::Near(edge) = &self.upper_bound else {
            return None;
        };
        let is_early = self.cuts < FREE_CUTS;
        let candidates = self.ranges.all.iter().enumerate();
        let candidates = candidates.filter_map(|(at, range)| {
            let may = !range.done && (is_early || range.pages >= PAGES_PER_CUT);
            let end = range.end.as_deref().or(edge.as_deref());
            let end = end.filter(|end| *end > range.after.as_slice());
            let middle = may.then(|| self.alphabet.middle(&range.after, end))??;
            Some((range.cuts, at, middle))
        });
        let (_, at, middle) = candidates.min_by_key(|(cuts, ..)| *cuts)?;
        Some((at, middle))
    }
}

impl Listing for S3Listing {
    fn next(&mut self) -> BoxFuture<'_, Result<Option<Page>>> {
        Box::pin(self.page())
    }
}

impl NameRange {
    /// Accepts a page of the service, and its token.
    fn accept_page(
        &mut self,
        items: Vec<Entry>,
        token: Option<String>,
        entries: &mut Vec<Entry>,
    ) -> std::result::Result<(), String> {
        self.busy = false;
        self.pages += 1;
        self.empty = match items.is_empty() {
            true => self.empty + 1,
            false => 0,
        };
        if self.empty > EMPTY_PAGES {
            return Err(format!(
                "the listing does not advance: {EMPTY_PAGES} pages are empty"
            ));
        }
        if self.token.is_some() && self.token == token {
            return Err("the listing does not advance: it repeats its token".to_owned());
        }
        self.accept(items, token.is_none(), entries)?;
        self.token = token;
        Ok(())
    }
}

/// Parses the bytes as a page and as a cursor.
pub(crate) fn fuzz_listing(bytes: &[u8], prefix: &[u8]) {
    if let Ok(page) = parse(bytes, prefix) {
        let (mut ranges, mut entries) = (NameRanges::default(), Vec::new());
        let _ = ranges.all[0].accept(page.items, page.token.is_none(), &mut entries);
        let names: Vec<&[u8]> = entries.iter().map(|entry| entry.name.as_slice()).collect();
        let mut alphabet = Alphabet::default();
        alphabet.learn(&names);
        if let Some(middle) = alphabet.middle(&ranges.all[0].after, None) {
            ranges.cut(0, middle);
        }
        let again = NameRanges::read(&ranges.write()).expect("a written cursor can be read");
        assert_eq!(again.write(), ranges.write());
    }
    if let Some(ranges) = NameRanges::read(bytes) {
        assert!(NameRanges::read(&ranges.write()).is_some());
    }
}
