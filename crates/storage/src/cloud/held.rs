//! Files that are held back in a listing, because a folder of their name may follow.
//!
//! Names come in order, but a folder `a/` may come long after the file `a`, with `a!` and `a-` in
//! between. A file is handed on when it is sure that no folder of its name follows. What is held
//! can only be names with which the last one begins, so there are few.

use crate::{Entry, Kind};

/// What is held, each the beginning of the next: files, and folders that a file of their name
/// stands for.
#[derive(Default, Debug, PartialEq, Eq)]
pub(crate) struct Held(Vec<Entry>);

/// An entry as it stands in the order of names: a folder with its slash.
pub(crate) fn place(entry: &Entry) -> Vec<u8> {
    let slash: &[u8] = if entry.kind == Kind::Folder {
        b"/"
    } else {
        b""
    };
    [entry.name.as_slice(), slash].concat()
}

impl Held {
    /// Takes the next item; hands on what nothing can change any more. A file beside a folder of
    /// its name gets a slash at the end of its own.
    pub(crate) fn take(&mut self, item: Entry, entries: &mut Vec<Entry>) {
        let is_folder = item.kind == Kind::Folder;
        self.pass(&place(&item), is_folder.then_some(&item.name), entries);
        match is_folder {
            true => entries.push(item),
            false => self.0.push(item),
        }
    }

    /// The same for an empty file that says of itself that it is a folder: it is one, and once only
    /// if there is something in it.
    pub(crate) fn take_stub(&mut self, item: Entry, entries: &mut Vec<Entry>) {
        self.pass(&item.name, None, entries);
        self.0.push(Entry {
            kind: Kind::Folder,
            ..item
        });
    }

    fn pass(&mut self, place: &[u8], folder: Option<&Vec<u8>>, entries: &mut Vec<Entry>) {
        while let Some(last) = self.0.last() {
            let beyond = place.strip_prefix(last.name.as_slice());
            if beyond.is_some_and(|rest| rest.first().is_some_and(|&byte| byte < b'/')) {
                break;
            }
            let Some(mut held) = self.0.pop() else { break };
            match folder == Some(&held.name) {
                true if held.kind == Kind::Folder => continue,
                true => held.name.push(b'/'),
                false => {}
            }
            entries.push(held);
        }
    }

    /// Nothing follows: hands on what is left.
    pub(crate) fn release(&mut self, entries: &mut Vec<Entry>) {
        entries.append(&mut self.0);
    }

    /// The names up to `end` have come, and these folders among them: hands on what that decides.
    pub(crate) fn pass_to(
        &mut self,
        met: &[Vec<u8>],
        end: Option<&[u8]>,
        entries: &mut Vec<Entry>,
    ) {
        let is_open = |held: &Entry| end.is_some_and(|end| *[&*held.name, b"/"].concat() > *end);
        for mut held in std::mem::take(&mut self.0) {
            let beside = met.contains(&held.name);
            if !beside && is_open(&held) {
                self.0.push(held);
                continue;
            }
            held.name.extend(beside.then_some(b'/'));
            entries.push(held);
        }
    }

    /// Takes over what is held of the names that follow.
    pub(crate) fn append(&mut self, mut next: Held) {
        self.0.append(&mut next.0);
    }

    pub(crate) fn write(&self, frames: &mut Frames) {
        for held in &self.0 {
            frames.put(&held.name);
            let mut numbers = held.size.to_le_bytes().to_vec();
            let time = held.modified.map(i64::to_le_bytes);
            numbers.extend(time.iter().flatten());
            numbers.extend((held.kind == Kind::Folder).then_some(1));
            frames.put(&numbers);
            frames.put(held.version.as_deref().unwrap_or_default());
        }
    }

    pub(crate) fn read(frames: &mut &[u8]) -> Option<Held> {
        let mut held = Vec::new();
        while let (Some(name), Some(numbers), Some(version)) =
            (frame(frames), frame(frames), frame(frames))
        {
            let (size, time) = numbers.split_first_chunk::<8>()?;
            let kind = match time.len() % 8 {
                0 => Kind::File,
                _ => Kind::Folder,
            };
            let time = time.first_chunk::<8>();
            held.push(Entry {
                size: u64::from_le_bytes(*size),
                modified: time.map(|time| i64::from_le_bytes(*time)),
                version: (!version.is_empty()).then(|| version.to_vec()),
                ..Entry::new(name, kind)
            });
        }
        Some(Held(held))
    }
}

/// A cursor being written: strings of bytes, each behind its length.
#[derive(Default)]
pub(crate) struct Frames(Vec<u8>);

impl Frames {
    pub(crate) fn put(&mut self, bytes: &[u8]) {
        self.0
            .extend_from_slice(&(bytes.len() as u32).to_le_bytes());
        self.0.extend_from_slice(bytes);
    }

    pub(crate) fn finish(self) -> Vec<u8> {
        self.0
    }
}

/// The next string of a cursor, if it is whole.
pub(crate) fn frame<'a>(frames: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (length, rest) = frames.split_first_chunk::<4>()?;
    let (bytes, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
    *frames = rest;
    Some(bytes)
}
