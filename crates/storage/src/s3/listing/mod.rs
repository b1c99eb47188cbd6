//! Listing a folder: the keys below a prefix, up to the next slash.
//!
//! A folder of many pages is cut into stretches of names that are listed at the same time. Pages
//! are handed on as they come, each with a cursor that says of every stretch how far it is, so what
//! is durable is never fetched again. In memory there is at most a page of each stretch.

mod below;
mod page;
mod ranges;
mod split;
#[cfg(test)]
mod tests;
mod trial;

use super::bucket::Bucket;
use crate::backend::{Cursor, Listing, Page};
use crate::cloud::Call;
use crate::cloud::held::place;
use crate::cloud::keys::Keys;
use crate::error::{Error, ErrorKind, Result};
use crate::{BoxFuture, Entry, Folder, Kind};
pub(super) use below::Below;
use http::Method;
use page::{Answer, parse};
use ranges::{Range, Ranges};
use split::{Alphabet, beyond, common};
use std::sync::Arc;
use tokio::task::JoinSet;

/// Stretches that are listed at the same time.
const AT_ONCE: usize = 8;
/// Pages after which a folder is a large one.
const LARGE: u32 = 4;
/// Cuts, good or bad, until every further one has to be earned by so many pages of its stretch.
const CUTS: u32 = 2 * AT_ONCE as u32;
const EARNED: u32 = 8;
/// More pages without anything in them than any far side needs to pass over what was deleted.
const EMPTY_PAGES: u32 = 1000;

pub(super) struct S3Listing {
    asked: Arc<Asked>,
    is_root: bool,
    ranges: Ranges,
    running: JoinSet<Fetched>,
    begun: bool,
    ended: bool,
    /// Of this process: pages that came, and cuts that were made.
    pages: u32,
    cuts: u32,
    /// The first name that came of the last stretch.
    first: Option<Vec<u8>>,
    alphabet: Alphabet,
    edge: Edge,
    /// Good places to cut.
    places: Vec<Vec<u8>>,
    /// Where folders go that come with the first page, if they may.
    below: Option<Arc<Below>>,
}

/// What is known of where the last names are. Only a hint: the last stretch has no end.
enum Edge {
    Unknown,
    Sought,
    /// Before this name, if that is known.
    Near(Option<Vec<u8>>),
    /// The far side does not begin where it is asked to, or refuses to say: nothing is cut.
    Nowhere,
}

enum Fetched {
    /// Of which stretch.
    Page(u32, Result<Answer>),
    /// And names behind each of which something comes.
    Edge(Edge, Vec<Vec<u8>>),
}

/// A folder at the far side.
struct Asked {
    bucket: Arc<Bucket>,
    path: Vec<u8>,
    prefix: Vec<u8>,
}

impl Asked {
    /// For all keys below.
    fn below(&self) -> Call {
        list_call(&self.bucket, &self.path, &self.prefix)
    }

    /// For what is in it.
    fn call(&self) -> Call {
        self.below().query("delimiter", "/")
    }

    /// The same after a name.
    fn after(&self, name: &[u8]) -> Call {
        let after = [self.prefix.as_slice(), name].concat();
        let call = self.call();
        call.query("start-after", &String::from_utf8_lossy(&after))
    }

    fn wrong(&self, kind: ErrorKind, words: &str) -> Error {
        self.call().wrong(kind, words)
    }

    async fn page(&self, token: Option<String>, after: Vec<u8>) -> Result<Answer> {
        let call = match token {
            Some(token) => self.call().query("continuation-token", &token),
            // A name is good for ever; a token may be forgotten.
            None if !after.is_empty() => self.after(&after),
            None => self.call(),
        };
        self.fetch(&self.sized(call)).await
    }

    async fn first(&self) -> Result<Answer> {
        self.page(None, Vec::new()).await
    }

    /// A page of all keys below. Grouped, those with two slashes in a row are told by what they
    /// have in common.
    async fn page_of_all(&self, grouped: bool) -> Result<Answer> {
        let call = match grouped {
            true => self.below().query("delimiter", "//"),
            false => self.below(),
        };
        let answer = self.fetch(&self.sized(call)).await?;
        let is_other = |item: &Entry| item.kind == Kind::Folder && !item.name.ends_with(b"/");
        match answer.items.iter().any(is_other) {
            false => Ok(answer),
            true => {
                let words = "the far side groups keys otherwise than it was asked to";
                Err(self.wrong(ErrorKind::Unsupported, words))
            }
        }
    }

    fn sized(&self, call: Call) -> Call {
        match &self.bucket.page {
            Some(page) => call.query("max-keys", page),
            None => call,
        }
    }

    async fn fetch(&self, call: &Call) -> Result<Answer> {
        let whole = self.bucket.fetch(call).await?;
        parse(&whole.body, &self.prefix).map_err(|words| call.wrong(ErrorKind::Temporary, words))
    }

    /// Looks for a name that all others come before, by how much of its beginning the last of them
    /// has in common with `name`. Names seen so far differ after `same` characters.
    async fn edge(&self, name: &str, same: usize) -> Option<Fetched> {
        // All begin with the first `low` characters; not all begin with the first `high`.
        let (mut low, mut high, mut step) = (0, same + 1, 1);
        let mut passed = Vec::new();
        while high - low > 1 {
            let at = match low {
                0 => high.saturating_sub(step).max(1),
                _ => low + (high - low) / 2,
            };
            step *= 2;
            let place = beyond(name, at)?;
            match self.is_any_beyond(&place).await? {
                true => {
                    high = at;
                    passed.push(place.into_bytes());
                }
                false => low = at,
            }
        }
        let edge = Edge::Near(beyond(name, low).map(String::into_bytes));
        Some(Fetched::Edge(edge, passed))
    }

    async fn is_any_beyond(&self, name: &str) -> Option<bool> {
        let call = self.after(name.as_bytes()).query("max-keys", "1");
        let answer = self.fetch(&call).await.ok()?;
        let first = answer.items.first().map(place);
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
        .document()
}

impl S3Listing {
    pub(super) fn new(bucket: Arc<Bucket>, folder: &Folder, from: Option<&Cursor>) -> S3Listing {
        let ranges = from.and_then(|cursor| Ranges::read(cursor));
        let asked = Asked {
            path: folder.as_bytes().to_vec(),
            prefix: bucket.prefix(folder),
            bucket,
        };
        S3Listing {
            asked: Arc::new(asked),
            is_root: folder.is_root(),
            running: JoinSet::new(),
            begun: ranges.is_some(),
            ended: ranges.as_ref().is_some_and(Ranges::is_over),
            ranges: ranges.unwrap_or_default(),
            pages: 0,
            cuts: 0,
            first: None,
            alphabet: Alphabet::default(),
            edge: Edge::Unknown,
            places: Vec::new(),
            below: None,
        }
    }

    /// The same with a first page of all keys below, unless it is gone on with. The root is likely
    /// to have more than a page of them.
    pub(super) fn with_below(mut self, below: &Arc<Below>) -> S3Listing {
        self.below = (!self.begun && !self.is_root).then(|| below.clone());
        self
    }

    async fn page(&mut self) -> Result<Option<Page>> {
        if std::str::from_utf8(&self.asked.prefix).is_err() {
            let words = "keys are UTF-8, and this name is not";
            return Err(self.asked.wrong(ErrorKind::NotFound, words));
        }
        if self.pages == 0 && !self.begun {
            return self.first_page().await.map(Some);
        }
        while !self.ended {
            self.fetch_more();
            match self.running.join_next().await {
                Some(Ok(Fetched::Page(id, answer))) => {
                    return self.take(id, false, answer?).map(Some);
                }
                Some(Ok(Fetched::Edge(edge, places))) => {
                    (self.edge, self.places) = (edge, places);
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
        let (answer, of_all) = match self.below.take() {
            Some(below) => below.first_page(&self.asked).await?,
            None => (self.asked.first().await?, false),
        };
        self.take(id, of_all, answer)
    }

    fn fetch_more(&mut self) {
        let busy = self.ranges.open().filter(|range| range.busy).count();
        let idle = self.ranges.open().filter(|range| !range.busy);
        for range in idle.take(AT_ONCE.saturating_sub(busy)) {
            range.busy = true;
            let (asked, id) = (self.asked.clone(), range.id);
            let (token, after) = (range.token.clone(), range.after.clone());
            self.running.spawn(async move {
                let answer = asked.page(token, after).await;
                Fetched::Page(id, answer)
            });
        }
    }

    /// Takes a page of a stretch, which may have been one of all keys below, and asks for the next.
    fn take(&mut self, id: u32, of_all: bool, answer: Answer) -> Result<Page> {
        let Answer { items, token } = answer;
        if !self.begun && !self.is_root && token.is_none() && items.is_empty() {
            let words = "no key begins with this";
            return Err(self.asked.wrong(ErrorKind::NotFound, words));
        }
        self.begun |= !items.is_empty();
        self.pages += 1;
        self.learn(&items);
        let mut entries = Vec::with_capacity(items.len());
        let range = self.ranges.find(id).expect("it is not done");
        let is_last = range.end.is_none();
        let taken = range.turn(items, token, &mut entries);
        if of_all {
            // It would go on with all keys.
            range.token = None;
        }
        let first = entries.first().map(place);
        taken.map_err(|words| self.asked.wrong(ErrorKind::Other, &words))?;
        self.first = self.first.take().or(first.filter(|_| is_last));
        self.ranges.fold(&mut entries);
        self.ended = self.ranges.is_over();
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
        if self.pages < LARGE {
            return;
        }
        if matches!(self.edge, Edge::Unknown) {
            self.seek_edge();
        }
        while matches!(self.edge, Edge::Near(_)) && self.ranges.open().count() < AT_ONCE {
            let place = self.places.pop();
            let place = place.and_then(|name| self.ranges.place_of(name));
            let Some((at, middle)) = place.or_else(|| self.middle()) else {
                return;
            };
            self.ranges.cut(at, middle);
            self.cuts += 1;
        }
    }

    fn seek_edge(&mut self) {
        let last = self.ranges.all.last().filter(|range| !range.done);
        let Some(name) = last.and_then(|range| String::from_utf8(range.after.clone()).ok()) else {
            self.edge = Edge::Near(None);
            return;
        };
        let Some(first) = &self.first else { return };
        let same = name.get(..common(first, name.as_bytes()));
        let same = same.map_or(0, |same| same.chars().count());
        self.edge = Edge::Sought;
        let asked = self.asked.clone();
        self.running.spawn(async move {
            let edge = asked.edge(&name, same).await;
            edge.unwrap_or(Fetched::Edge(Edge::Nowhere, Vec::new()))
        });
    }

    /// Where the stretch that was cut least often is cut next.
    fn middle(&self) -> Option<(usize, Vec<u8>)> {
        let Edge::Near(edge) = &self.edge else {
            return None;
        };
        let is_early = self.cuts < CUTS;
        let places = self.ranges.all.iter().enumerate();
        let places = places.filter_map(|(at, range)| {
            let may = !range.done && (is_early || range.pages >= EARNED);
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

impl Range {
    /// Takes a page of the far side, and where it goes on.
    fn turn(
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
        self.take(items, token.is_none(), entries)?;
        self.token = token;
        Ok(())
    }
}

/// Reads the bytes as a page and as a cursor.
pub(crate) fn try_to_list(bytes: &[u8], prefix: &[u8]) {
    if let Ok(answer) = parse(bytes, prefix) {
        let (mut ranges, mut entries) = (Ranges::default(), Vec::new());
        let _ = ranges.all[0].take(answer.items, answer.token.is_none(), &mut entries);
        let names: Vec<&[u8]> = entries.iter().map(|entry| entry.name.as_slice()).collect();
        let mut alphabet = Alphabet::default();
        alphabet.learn(&names);
        if let Some(middle) = alphabet.middle(&ranges.all[0].after, None) {
            ranges.cut(0, middle);
        }
        let again = Ranges::read(&ranges.write()).expect("what was written is read");
        assert_eq!(again.write(), ranges.write());
    }
    if let Some(ranges) = Ranges::read(bytes) {
        assert!(Ranges::read(&ranges.write()).is_some());
    }
}
