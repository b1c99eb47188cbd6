//! The check of a whole folder by its listing.
//!
//! A listing states the attributes of a thousand entries per request, where a look-up costs a
//! request per entry. It can only confirm: if anything is not as recorded, the caller looks at
//! every entry by itself, and that decides.

use super::Scope;
use super::check::compare_entries;
use crate::error::{Error, Result};
use crate::job::Job;
use crate::queries::{StateReader, first_link, status};
use crate::status::Status;
use crate::store::{FolderId, Pair, read_folder};
use headworks_storage::{Entry, Kind, Local};
use std::collections::HashMap;

/// Entries that the usual object store returns per request.
const LISTED_PER_REQUEST: u64 = 1000;
/// Entries in memory that have no partner yet. Storages that list in order of names need a few
/// pages; a huge folder in another order is checked entry by entry.
const MAX_UNPAIRED: usize = 50_000;

impl Job {
    /// Confirms all entries of a folder by its listing, and returns their number. Returns `None` if
    /// that is not cheaper, or something is not as recorded.
    pub(super) async fn verify_listed(
        &self,
        state: &StateReader,
        scope: Scope,
        first_page: &[Pair],
    ) -> Result<Option<u64>> {
        let checked = first_page.iter().filter(|pair| scope.includes(pair));
        let Some(parent) = first_page.first().map(|pair| pair.parent) else {
            return Ok(None);
        };
        let is_local = self.destination.as_any().is::<Local>();
        if is_local || scope.hash || !listing_is_cheaper(state, parent, checked.count())? {
            return Ok(None);
        }
        let folder = &*first_page[0].folder;
        let Ok(mut listing) = self.destination.list(folder, None).await else {
            return Ok(None);
        };
        let mut matcher = Matcher::new(self, state, scope, parent);
        loop {
            self.progress
                .wait_while_paused(|| self.stop.is_cancelled())
                .await;
            if self.stop.is_cancelled() {
                return Err(Error::Stopped);
            }
            let Ok(page) = listing.next().await else {
                return Ok(None);
            };
            let is_last = page.is_none();
            let listed = page.map(|page| page.entries).unwrap_or_default();
            if !matcher.add(listed, is_last)? {
                return Ok(None);
            }
            if is_last {
                return Ok(matcher.end());
            }
        }
    }
}

/// Returns whether listing a folder takes fewer requests than looking at some of its entries.
fn listing_is_cheaper(state: &StateReader, folder: FolderId, checked: usize) -> Result<bool> {
    let query = "SELECT coalesce((SELECT entries FROM files WHERE folder = ?1), 0)
                 + (SELECT count(*) FROM source WHERE parent = ?1)";
    let entries: i64 = state
        .connection()
        .query_row(query, [folder], |row| row.get(0))?;
    Ok(checked as u64 > entries.cast_unsigned() / LISTED_PER_REQUEST + 1)
}

/// Pairs listed entries with recorded ones as both are read.
struct Matcher<'a> {
    job: &'a Job,
    state: &'a StateReader,
    scope: Scope,
    folder: FolderId,
    /// The last name that was read from the state file.
    after: Vec<u8>,
    recorded: HashMap<Vec<u8>, Pair>,
    listed: HashMap<Vec<u8>, Entry>,
    confirmed: u64,
}

impl<'a> Matcher<'a> {
    fn new(job: &'a Job, state: &'a StateReader, scope: Scope, folder: FolderId) -> Matcher<'a> {
        Matcher {
            job,
            state,
            scope,
            folder,
            after: Vec::new(),
            recorded: HashMap::new(),
            listed: HashMap::new(),
            confirmed: 0,
        }
    }

    /// Adds a page of the listing and as many recorded entries. Returns whether everything is as
    /// recorded so far.
    fn add(&mut self, page: Vec<Entry>, is_last: bool) -> Result<bool> {
        let wanted = page.len().max(LISTED_PER_REQUEST as usize);
        self.listed
            .extend(page.into_iter().map(|entry| (entry.name.clone(), entry)));
        loop {
            let connection = self.state.connection();
            let pairs = read_folder(connection, self.folder, &self.after, wanted)?;
            let is_end = pairs.len() < wanted;
            if let Some(last) = pairs.last() {
                self.after.clone_from(&last.entry.name);
            }
            let named = pairs
                .into_iter()
                .map(|pair| (pair.entry.name.clone(), pair));
            self.recorded.extend(named);
            if !is_last || is_end || self.recorded.len() > MAX_UNPAIRED {
                break;
            }
        }
        self.match_up()
    }

    fn match_up(&mut self) -> Result<bool> {
        let (recorded, listed) = (std::mem::take(&mut self.recorded), &mut self.listed);
        for (name, pair) in recorded {
            match listed.remove(&name) {
                Some(existing) => match self
                    .job
                    .confirms(self.state, self.scope, &pair, &existing)?
                {
                    Some(entries) => self.confirmed += entries,
                    None => return Ok(false),
                },
                None => drop(self.recorded.insert(name, pair)),
            }
        }
        Ok(self.recorded.len() + self.listed.len() <= MAX_UNPAIRED)
    }

    /// Returns the number of confirmed entries, if none is missing.
    fn end(self) -> Option<u64> {
        let is_checked = |pair: &Pair| self.scope.includes(pair);
        (!self.recorded.values().any(is_checked)).then_some(self.confirmed)
    }
}

impl Job {
    /// Returns the number of entries that a listed entry confirms: 0 for one that is not to be
    /// checked, `None` if it confirms nothing.
    fn confirms(
        &self,
        state: &StateReader,
        scope: Scope,
        pair: &Pair,
        existing: &Entry,
    ) -> Result<Option<u64>> {
        if !scope.includes(pair) {
            return Ok(Some(0));
        }
        let recorded = status(state.connection(), &self.compare, pair)?;
        if recorded != Status::Same || first_link(state.connection(), pair)?.is_some() {
            return Ok(None);
        }
        // Where listings have no times, the version proves that the object is still the one that
        // was written, or whose time the plan compared.
        let is_timed =
            self.destination.capabilities().listed_times || pair.entry.kind != Kind::File;
        let version = pair.existing.as_ref().and_then(Entry::etag);
        let is_written = is_timed || version.is_some() && version == existing.etag();
        let is_same = compare_entries(&self.compare, &pair.entry, existing) == Status::Same;
        Ok((is_written && is_same).then_some(1))
    }
}
