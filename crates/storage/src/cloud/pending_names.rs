//! Files of a listing that are held back, because a folder of the same name may follow.
//!
//! Names arrive in order, but a folder `a/` may come long after the file `a`, with `a!` and `a-` in
//! between. A file is released when no folder of its name can follow. Only prefixes of the last
//! name can be pending, so there are few.

use crate::{Entry, Kind};

/// The pending entries, each a prefix of the next: files, and folders that a marker file stands
/// for.
#[derive(Default, Debug, PartialEq, Eq)]
pub(crate) struct PendingNames(Vec<Entry>);

/// Returns the sort key of an entry: a folder with its slash.
pub(crate) fn sort_key(entry: &Entry) -> Vec<u8> {
    let slash: &[u8] = if entry.kind == Kind::Folder {
        b"/"
    } else {
        b""
    };
    [entry.name.as_slice(), slash].concat()
}

impl PendingNames {
    /// Adds the next entry, and releases those that are final. A file next to a folder of its name
    /// gets a slash appended.
    pub(crate) fn push(&mut self, item: Entry, entries: &mut Vec<Entry>) {
        let is_folder = item.kind == Kind::Folder;
        self.release_before(&sort_key(&item), is_folder.then_some(&item.name), entries);
        match is_folder {
            true => entries.push(item),
            false => self.0.push(item),
        }
    }

    /// Adds the marker of a folder: an empty file that is marked as a folder. It is listed as one,
    /// and only once if the folder has entries.
    pub(crate) fn push_stub(&mut self, item: Entry, entries: &mut Vec<Entry>) {
        self.release_before(&item.name, None, entries);
        self.0.push(Entry {
            kind: Kind::Folder,
            ..item
        });
    }

    fn release_before(&mut self, key: &[u8], folder: Option<&Vec<u8>>, entries: &mut Vec<Entry>) {
        while let Some(last) = self.0.last() {
            let beyond = key.strip_prefix(last.name.as_slice());
            if beyond.is_some_and(|rest| rest.first().is_some_and(|&byte| byte < b'/')) {
                break;
            }
            let Some(mut pending) = self.0.pop() else {
                break;
            };
            match folder == Some(&pending.name) {
                true if pending.kind == Kind::Folder => continue,
                true => pending.name.push(b'/'),
                false => {}
            }
            entries.push(pending);
        }
    }

    /// Releases all entries at the end of the listing.
    pub(crate) fn release_all(&mut self, entries: &mut Vec<Entry>) {
        entries.append(&mut self.0);
    }

    /// Releases the entries that are decided by the names up to `end` and these folders among them.
    pub(crate) fn release_up_to(
        &mut self,
        folders_seen: &[Vec<u8>],
        end: Option<&[u8]>,
        entries: &mut Vec<Entry>,
    ) {
        let is_open =
            |pending: &Entry| end.is_some_and(|end| *[&*pending.name, b"/"].concat() > *end);
        for mut pending in std::mem::take(&mut self.0) {
            let has_folder = folders_seen.contains(&pending.name);
            if !has_folder && is_open(&pending) {
                self.0.push(pending);
                continue;
            }
            pending.name.extend(has_folder.then_some(b'/'));
            entries.push(pending);
        }
    }

    /// Appends the pending entries of the following names.
    pub(crate) fn append(&mut self, mut next: PendingNames) {
        self.0.append(&mut next.0);
    }

    pub(crate) fn write(&self, frames: &mut FrameWriter) {
        for pending in &self.0 {
            frames.put(&pending.name);
            let mut numbers = pending.size.to_le_bytes().to_vec();
            let time = pending.modified.map(i64::to_le_bytes);
            numbers.extend(time.iter().flatten());
            numbers.extend((pending.kind == Kind::Folder).then_some(1));
            frames.put(&numbers);
            frames.put(pending.version.as_deref().unwrap_or_default());
        }
    }

    pub(crate) fn read(frames: &mut &[u8]) -> Option<PendingNames> {
        let mut pending = Vec::new();
        while let (Some(name), Some(numbers), Some(version)) =
            (read_frame(frames), read_frame(frames), read_frame(frames))
        {
            let (size, time) = numbers.split_first_chunk::<8>()?;
            let kind = match time.len() % 8 {
                0 => Kind::File,
                _ => Kind::Folder,
            };
            let time = time.first_chunk::<8>();
            pending.push(Entry {
                size: u64::from_le_bytes(*size),
                modified: time.map(|time| i64::from_le_bytes(*time)),
                version: (!version.is_empty()).then(|| version.to_vec()),
                ..Entry::new(name, kind)
            });
        }
        Some(PendingNames(pending))
    }
}

/// A cursor being written: length-prefixed byte strings.
#[derive(Default)]
pub(crate) struct FrameWriter(Vec<u8>);

impl FrameWriter {
    pub(crate) fn put(&mut self, bytes: &[u8]) {
        self.0
            .extend_from_slice(&(bytes.len() as u32).to_le_bytes());
        self.0.extend_from_slice(bytes);
    }

    pub(crate) fn finish(self) -> Vec<u8> {
        self.0
    }
}

/// Reads the next byte string of a cursor, if it is complete.
pub(crate) fn read_frame<'a>(frames: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (length, rest) = frames.split_first_chunk::<4>()?;
    let (bytes, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
    *frames = rest;
    Some(bytes)
}
