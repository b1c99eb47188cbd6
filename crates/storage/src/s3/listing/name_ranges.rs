//! The progress of a listing: one range of names at first, and several that are listed in parallel
//! when there are many.

use crate::backend::Cursor;
use crate::cloud::pending_names::{FrameWriter, PendingNames, read_frame, sort_key};
use crate::display;
use crate::{Entry, Kind};
use std::cmp::Ordering;

/// A range of a folder's names: those after `start`, up to and including `end`.
#[derive(Default, Debug)]
pub(super) struct NameRange {
    pub(super) start: Vec<u8>,
    /// The last name, with its slash if it was a folder.
    pub(super) after: Vec<u8>,
    /// `None` for the end of the folder.
    pub(super) end: Option<Vec<u8>>,
    pub(super) done: bool,
    pending: PendingNames,
    /// Folders of this range whose files of the same name belong to an earlier range.
    early_folders: Vec<Vec<u8>>,
    /// Its id in this process.
    pub(super) id: u32,
    /// The token of the next page, if this process has one.
    pub(super) token: Option<String>,
    /// Whether a page is being fetched.
    pub(super) busy: bool,
    /// Consecutive empty pages.
    pub(super) empty: u32,
    /// Pages since the last split, and the number of splits.
    pub(super) pages: u32,
    pub(super) cuts: u32,
}

impl NameRange {
    /// Accepts a page, and returns the entries that are final. `is_last` if the service has no
    /// more.
    pub(super) fn accept(
        &mut self,
        items: Vec<Entry>,
        is_last: bool,
        entries: &mut Vec<Entry>,
    ) -> Result<(), String> {
        for item in items {
            let key = sort_key(&item);
            // A listing resumed after a folder may start with that folder again. An earlier name
            // would be lost to a process that resumes from here, so such a listing cannot be used.
            match key.cmp(&self.after) {
                _ if self.after.is_empty() => {}
                Ordering::Less => return Err(out_of_order(&key, &self.after)),
                Ordering::Equal => continue,
                Ordering::Greater => {}
            }
            if self.end.as_ref().is_some_and(|end| key > *end) {
                self.done = true;
                break;
            }
            if item.kind == Kind::Folder && self.belongs_before(&item.name) {
                self.early_folders.push(item.name.clone());
            }
            self.pending.push(item, entries);
            self.after = key;
        }
        // With its last name the range is complete: another page would only contain the next range.
        self.done |= is_last || self.end.as_ref() == Some(&self.after);
        if self.done {
            self.pending
                .release_up_to(&[], self.end.as_deref(), entries);
        }
        Ok(())
    }

    /// Returns whether a file of this name belongs to an earlier range, although the folder is in
    /// this one.
    fn belongs_before(&self, name: &[u8]) -> bool {
        !self.start.is_empty() && name <= self.start.as_slice()
    }

    /// Merges a range with the next one. Both are complete.
    fn join(&mut self, next: NameRange, entries: &mut Vec<Entry>) {
        self.pending
            .release_up_to(&next.early_folders, next.end.as_deref(), entries);
        self.pending.append(next.pending);
        let mut early_folders = next.early_folders;
        early_folders.retain(|name| self.belongs_before(name));
        self.early_folders.append(&mut early_folders);
        (self.after, self.end) = (next.after, next.end);
    }

    fn write(&self, frames: &mut FrameWriter) {
        frames.put(&self.start);
        frames.put(&self.after);
        frames.put(&[u8::from(self.done), u8::from(self.end.is_some())]);
        frames.put(self.end.as_deref().unwrap_or_default());
        let (mut pending, mut early_folders) = (FrameWriter::default(), FrameWriter::default());
        self.pending.write(&mut pending);
        frames.put(&pending.finish());
        self.early_folders
            .iter()
            .for_each(|name| early_folders.put(name));
        frames.put(&early_folders.finish());
    }

    fn read(cursor: &mut &[u8]) -> Option<NameRange> {
        let start = read_frame(cursor)?.to_vec();
        let after = read_frame(cursor)?.to_vec();
        let &[done, ended] = read_frame(cursor)? else {
            return None;
        };
        let end = read_frame(cursor)?;
        let pending = PendingNames::read(&mut read_frame(cursor)?)?;
        let mut early_folders = read_frame(cursor)?;
        Some(NameRange {
            start,
            after,
            end: (ended == 1).then(|| end.to_vec()),
            done: done == 1,
            pending,
            early_folders: std::iter::from_fn(|| {
                read_frame(&mut early_folders).map(<[u8]>::to_vec)
            })
            .collect(),
            ..NameRange::default()
        })
    }
}

fn out_of_order(key: &[u8], after: &[u8]) -> String {
    let (key, after) = (display(key), display(after));
    format!("the listing is not sorted: `{key}` comes after `{after}`")
}

/// The start of a cursor with several ranges. An older version wrote a single range without it.
const MULTI_RANGE: [u8; 4] = [0xff; 4];

/// All ranges in order, which together are the folder.
#[derive(Debug)]
pub(super) struct NameRanges {
    pub(super) all: Vec<NameRange>,
    made: u32,
}

impl Default for NameRanges {
    fn default() -> Self {
        NameRanges {
            all: vec![NameRange::default()],
            made: 1,
        }
    }
}

impl NameRanges {
    /// Splits a range in two.
    pub(super) fn cut(&mut self, at: usize, middle: Vec<u8>) {
        let range = &mut self.all[at];
        range.cuts += 1;
        range.pages = 0;
        let next = NameRange {
            start: middle.clone(),
            after: middle.clone(),
            end: range.end.replace(middle),
            id: self.made,
            cuts: range.cuts,
            ..NameRange::default()
        };
        self.made += 1;
        self.all.insert(at + 1, next);
    }

    /// Returns the range to split at a name, unless it has passed the name.
    pub(super) fn range_containing(&self, name: Vec<u8>) -> Option<(usize, Vec<u8>)> {
        let is_in = |range: &NameRange| {
            let ends_after = range.end.as_ref().is_none_or(|end| name < *end);
            !range.done && range.after < name && ends_after
        };
        Some((self.all.iter().position(is_in)?, name))
    }

    /// Merges adjacent complete ranges, and returns the entries that this decides.
    pub(super) fn merge_done(&mut self, entries: &mut Vec<Entry>) {
        let mut at = 0;
        while at + 1 < self.all.len() {
            if self.all[at].done && self.all[at + 1].done {
                let next = self.all.remove(at + 1);
                self.all[at].join(next, entries);
            } else {
                at += 1;
            }
        }
    }

    /// Returns whether the listing is complete, after complete ranges were merged.
    pub(super) fn is_complete(&self) -> bool {
        matches!(&*self.all, [one] if one.done)
    }

    /// Returns the incomplete ranges.
    pub(super) fn open(&mut self) -> impl Iterator<Item = &mut NameRange> {
        self.all.iter_mut().filter(|range| !range.done)
    }

    pub(super) fn find(&mut self, id: u32) -> Option<&mut NameRange> {
        self.open().find(|range| range.id == id)
    }

    pub(super) fn write(&self) -> Cursor {
        let mut frames = FrameWriter::default();
        self.all.iter().for_each(|range| range.write(&mut frames));
        [&MULTI_RANGE[..], &frames.finish()].concat()
    }

    pub(super) fn read(mut cursor: &[u8]) -> Option<NameRanges> {
        let Some(mut rest) = cursor.strip_prefix(&MULTI_RANGE) else {
            let after = read_frame(&mut cursor)?.to_vec();
            let pending = PendingNames::read(&mut cursor)?;
            let one = NameRange {
                after,
                pending,
                ..NameRange::default()
            };
            return Some(NameRanges {
                all: vec![one],
                made: 1,
            });
        };
        let mut all: Vec<NameRange> = Vec::new();
        while !rest.is_empty() {
            let range = NameRange::read(&mut rest)?;
            let before = all.last().map(|range| range.end.as_deref());
            let follows = before.unwrap_or(Some(b"")) == Some(&range.start);
            if !follows || range.after < range.start {
                return None;
            }
            all.push(NameRange {
                id: all.len() as u32,
                ..range
            });
        }
        let is_whole = all.last()?.end.is_none();
        let made = all.len() as u32;
        is_whole.then_some(NameRanges { all, made })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(item: &str) -> Entry {
        match item.strip_suffix('/') {
            Some(folder) => Entry::new(folder, Kind::Folder),
            None => Entry::new(item, Kind::File),
        }
    }

    fn display(entries: &[Entry]) -> Vec<String> {
        let show = |entry: &Entry| {
            let kind = if entry.kind == Kind::Folder { 'd' } else { 'f' };
            format!("{kind}:{}", String::from_utf8_lossy(&entry.name))
        };
        let mut lines: Vec<String> = entries.iter().map(show).collect();
        lines.sort();
        lines
    }

    /// Lists a fake server in pages of two, its ranges in the order of `turns`, each page as by
    /// another process.
    fn list(all: &[&str], cuts: &[&str], turns: impl Fn(usize, usize) -> usize) -> Vec<String> {
        let mut ranges = NameRanges::default();
        for cut in cuts {
            let at = ranges.all.len() - 1;
            ranges.cut(at, cut.as_bytes().to_vec());
        }
        let mut entries = Vec::new();
        for turn in 0.. {
            let open = ranges.open().count();
            if open == 0 {
                break;
            }
            let range = ranges.open().nth(turns(turn, open) % open).unwrap();
            let after = String::from_utf8(range.after.clone()).unwrap();
            let rest: Vec<&&str> = all
                .iter()
                .filter(|item| after.is_empty() || ***item > *after)
                .collect();
            let page = rest.iter().take(2).map(|item| entry(item)).collect();
            range.accept(page, rest.len() <= 2, &mut entries).unwrap();
            ranges.merge_done(&mut entries);
            ranges = NameRanges::read(&ranges.write()).unwrap();
        }
        assert!(ranges.is_complete());
        display(&entries)
    }

    const AWKWARD: [&str; 12] = [
        "", "a", "a!", "a!/", "a!b", "a-", "a-b/", "a/", "a0", "b", "b/", "c",
    ];

    #[test]
    fn a_file_next_to_a_folder_of_its_name_is_recognised_at_any_split() {
        let listed = list(&AWKWARD, &[], |_, _| 0);
        let right = [
            "d:a", "d:a!", "d:a-b", "d:b", "f:", "f:a!/", "f:a!b", "f:a-", "f:a/", "f:a0", "f:b/",
            "f:c",
        ];
        assert_eq!(listed, right);
        let bounds = [
            "a", "a ", "a!", "a!!", "a!b", "a,", "a-", "a-b", "a.", "a0", "b", "b.", "bb", "d",
        ];
        for (at, one) in bounds.iter().enumerate() {
            for turns in 0..3 {
                let turn = |turn: usize, open: usize| match turns {
                    0 => 0,
                    1 => open - 1,
                    _ => turn,
                };
                assert_eq!(list(&AWKWARD, &[one], turn), right, "cut at {one:?}");
                for two in &bounds[at + 1..] {
                    let cuts = [*one, *two];
                    assert_eq!(list(&AWKWARD, &cuts, turn), right, "cut at {cuts:?}");
                }
            }
        }
    }

    #[test]
    fn a_folder_that_comes_again_after_a_cursor_is_listed_once() {
        let (mut range, mut entries) = (NameRange::default(), Vec::new());
        range
            .accept(vec![entry("a/")], false, &mut entries)
            .unwrap();
        let again = vec![entry("a/"), entry("b")];
        range.accept(again, true, &mut entries).unwrap();
        assert_eq!(display(&entries), ["d:a", "f:b"]);
    }

    #[test]
    fn a_range_is_complete_with_its_last_name() {
        let mut ranges = NameRanges::default();
        ranges.cut(0, b"b".to_vec());
        let page = vec![entry("a"), entry("b")];
        ranges.all[0].accept(page, false, &mut Vec::new()).unwrap();
        assert!(ranges.all[0].done && !ranges.all[1].done);
    }

    #[test]
    fn the_marker_of_the_folder_has_no_name() {
        let listed = |items: &[&str]| list(items, &[], |_, _| 0);
        assert_eq!(listed(&["", "/", "x"]), ["d:", "f:/", "f:x"]);
        assert_eq!(listed(&["", "x"]), ["f:", "f:x"]);
    }

    #[test]
    fn a_listing_out_of_order_is_refused() {
        let mut range = NameRange::default();
        let mut take = |name: &str| range.accept(vec![entry(name)], false, &mut Vec::new());
        take("y").unwrap();
        take("y").unwrap();
        assert!(take("a").unwrap_err().contains("not sorted"));
    }

    #[test]
    fn older_cursors_with_one_range_are_read() {
        let mut frames = FrameWriter::default();
        frames.put(b"key-7");
        let ranges = NameRanges::read(&frames.finish()).unwrap();
        assert_eq!(ranges.all[0].after, b"key-7");
        assert!(ranges.all[0].end.is_none() && !ranges.all[0].done);
    }

    #[test]
    fn damaged_cursors_never_panic_nor_leave_names_out() {
        let mut ranges = NameRanges::default();
        ranges.cut(0, b"key-5".to_vec());
        ranges.all[0]
            .accept(vec![entry("key"), entry("key-1")], false, &mut Vec::new())
            .unwrap();
        let cursor = ranges.write();
        for at in 0..cursor.len() {
            for bit in 0..8 {
                let mut damaged = cursor.clone();
                damaged[at] ^= 1 << bit;
                let _ = NameRanges::read(&damaged[..at]);
                let Some(read) = NameRanges::read(&damaged) else {
                    continue;
                };
                assert!(read.all[0].start.is_empty() && read.all.last().unwrap().end.is_none());
                let pairs = read.all.windows(2);
                assert!(
                    pairs
                        .into_iter()
                        .all(|two| two[0].end.as_ref() == Some(&two[1].start))
                );
            }
        }
    }
}
