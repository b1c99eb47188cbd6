//! Listing a folder: the keys below a prefix, up to the next slash.
//!
//! A folder of many pages is cut into stretches of names that are listed at the same time. Pages
//! are handed on as they come, each with a cursor that says of every stretch how far it is, so what
//! is durable is never fetched again. In memory there is at most a page of each stretch.

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

/// Stretches that are listed at the same time.
const MAX_PARALLEL: usize = 8;
/// Pages after which a folder is a large one.
const LARGE_AFTER_PAGES: u32 = 4;
/// Cuts, good or bad, until every further one has to be earned by so many pages of its stretch.
const FREE_CUTS: u32 = 2 * MAX_PARALLEL as u32;
const PAGES_PER_CUT: u32 = 8;
/// More pages without anything in them than any far side needs to pass over what was deleted.
const EMPTY_PAGES: u32 = 1000;

pub(super) struct S3Listing {
    folder: Arc<RemoteFolder>,
    is_root: bool,
    ranges: NameRanges,
    running: JoinSet<Fetched>,
    begun: bool,
    ended: bool,
    /// Of this process: pages that came, and cuts that were made.
    pages: u32,
    cuts: u32,
    /// The first name that came of the last stretch.
    first: Option<Vec<u8>>,
    alphabet: Alphabet,
    upper_bound: UpperBound,
    /// Good places to cut.
    good_cuts: Vec<Vec<u8>>,
    /// Where folders go that come with the first page, if they may.
    prefix_listing: Option<Arc<PrefixListing>>,
}

/// What is known of where the last names are. Only a hint: the last stretch has no end.
enum UpperBound {
    Unknown,
    Searching,
    /// Before this name, if that is known.
    Near(Option<Vec<u8>>),
    /// The far side does not begin where it is asked to, or refuses to say: nothing is cut.
    Unavailable,
}

enum Fetched {
    /// Of which stretch.
    Page(u32, Result<ListPage>),
    /// And names behind each of which something comes.
    UpperBound(UpperBound, Vec<Vec<u8>>),
}

/// A folder at the far side.
struct RemoteFolder {
    bucket: Arc<Bucket>,
    path: Vec<u8>,
    prefix: Vec<u8>,
}

impl RemoteFolder {
    /// For all keys below.
    fn all_keys(&self) -> Call {
        list_call(&self.bucket, &self.path, &self.prefix)
    }

    /// For what is in it.
    fn call(&self) -> Call {
        self.all_keys().query("delimiter", "/")
    }

    /// The same after a name.
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
            // A name is good for ever; a token may be forgotten.
            None if !after.is_empty() => self.after(&after),
            None => self.call(),
        };
        self.fetch(&self.sized(call)).await
    }

    async fn first(&self) -> Result<ListPage> {
        self.page(None, Vec::new()).await
    }

    /// A page of all keys below. Grouped, those with two slashes in a row are told by what they
    /// have in common.
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
                let message = "the far side groups keys otherwise than it was asked to";
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
        let whole = self.bucket.fetch(call).await?;
        parse(&whole.body, &self.prefix)
            .map_err(|message| call.failure(ErrorKind::Temporary, message))
    }

    /// Looks for a name that all others come before, by how much of its beginning the last of them
    /// has in common with `name`. Names seen so far differ after `same` characters.
    async fn upper_bound(&self, name: &str, same: usize) -> Option<Fetched> {
        // All begin with the first `low` characters; not all begin with the first `high`.
        let (mut low, mut high, mut step) = (0, same + 1, 1);
        let mut passed = Vec::new();
        while high - low > 1 {
            let at = match low {
                0 => high.saturating_sub(step).max(1),
                _ => low + (high - low) / 2,
            };
            step *= 2;
            let place = first_after_prefix(name, at)?;
            match self.has_names_beyond(&place).await? {
                true => {
                    high = at;
                    passed.push(place.into_bytes());
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

/// A call for keys that begin with a prefix.
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

    /// The same with a first page of all keys below, unless it is gone on with. The root is likely
    /// to have more than a page of them.
    pub(super) fn with_prefix_listing(mut self, prefix_listing: &Arc<PrefixListing>) -> S3Listing {
        self.prefix_listing = (!self.begun && !self.is_root).then(|| prefix_listing.clone());
        self
    }

    async fn page(&mut self) -> Result<Option<Page>> {
        if std::str::from_utf8(&self.folder.prefix).is_err() {
            let message = "keys are UTF-8, and this name is not";
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
                Some(Ok(Fetched::UpperBound(upper_bound, places))) => {
                    (self.upper_bound, self.good_cuts) = (upper_bound, places);
                    self.cut();
                }
                Some(Err(failed)) => std::panic::resume_unwind(failed.into_panic()),
                None => unreachable!("what is not over is being fetched"),
            }
        }
        Ok(None)
    }

    /// Most folders have one page only, which needs no task of its own.
    async fn first_page(&mut self) -> Result<Page> {
        let first = self.ranges.open().next().map(|range| range.id);
        let id = first.expect("nothing is done before the first page");
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

    /// Takes a page of a stretch, which may have been one of all keys below, and asks for the next.
    fn accept(&mut self, id: u32, all_keys: bool, page: ListPage) -> Result<Page> {
        let ListPage { items, token } = page;
        if !self.begun && !self.is_root && token.is_none() && items.is_empty() {
            let message = "no key begins with this";
            return Err(self.folder.failure(ErrorKind::NotFound, message));
        }
        self.begun |= !items.is_empty();
        self.pages += 1;
        self.learn(&items);
        let mut entries = Vec::with_capacity(items.len());
        let range = self.ranges.find(id).expect("it is not done");
        let is_last = range.end.is_none();
        let taken = range.accept_page(items, token, &mut entries);
        if all_keys {
            // It would go on with all keys.
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

    /// Cuts what is left of a large folder, as long as more could be listed at the same time.
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
            let place = self.good_cuts.pop();
            let place = place.and_then(|name| self.ranges.range_containing(name));
            let Some((at, middle)) = place.or_else(|| self.middle()) else {
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

    /// Where the stretch that was cut least often is cut next.
    fn middle(&self) -> Option<(usize, Vec<u8>)> {
        let UpperBound::Near(edge) = &self.upper_bound else {
            return None;
        };
        let is_early = self.cuts < FREE_CUTS;
        let places = self.ranges.all.iter().enumerate();
        let places = places.filter_map(|(at, range)| {
            let may = !range.done && (is_early || range.pages >= PAGES_PER_CUT);
            let end = range.end.as_deref().or(edge.as_deref());
            let end = end.filter(|end| *end > range.after.as_slice());
            let middle = may.then(|| self.alphabet.middle(&range.after, end))??;
            Some((range.cuts, at, middle))
        });
        let (_, at, middle) = places.min_by_key(|(cuts, ..)| *cuts)?;
        Some((at, middle))
    }
}

impl Listing for S3Listing {
    fn next(&mut self) -> BoxFuture<'_, Result<Option<Page>>> {
        Box::pin(self.page())
    }
}

impl NameRange {
    /// Takes a page of the far side, and where it goes on.
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
                "the listing does not go on: {EMPTY_PAGES} pages are empty"
            ));
        }
        if self.token.is_some() && self.token == token {
            return Err("the listing does not go on: it names the same place again".to_owned());
        }
        self.accept(items, token.is_none(), entries)?;
        self.token = token;
        Ok(())
    }
}

/// Reads the bytes as a page and as a cursor.
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
        let again = NameRanges::read(&ranges.write()).expect("what was written is read");
        assert_eq!(again.write(), ranges.write());
    }
    if let Some(ranges) = NameRanges::read(bytes) {
        assert!(NameRanges::read(&ranges.write()).is_some());
    }
}
