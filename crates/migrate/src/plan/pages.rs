//! Writing listed pages to the store.

use super::folders::{add_folders, add_listed_folders};
use crate::side::Side;
use crate::status::{Comparison, Status};
use crate::store::{
    EntryRow, FolderRow, PackedFiles, Selection, known_modified, plain_files, put_destination,
    put_destinations, put_sources,
};
use headworks_storage::{Capabilities, Cursor, Entry, Kind};
use rusqlite::{Transaction, params};
use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

/// A page of a folder's listing.
pub(super) struct ListedPage {
    pub(super) rows: Vec<EntryRow>,
    /// Number of entries, including packed ones.
    pub(super) found: usize,
    /// The plain files, if the page is the whole folder; they are not among the rows.
    pub(super) files: PackedFiles,
    /// The cursor of the next page, if the backend has cursors.
    pub(super) cursor: Option<Cursor>,
    /// Whether earlier pages of a listing that cannot be resumed may be stored.
    pub(super) discard_previous: bool,
    pub(super) first: bool,
    pub(super) last: bool,
}

/// Writes a source page, except its packed files. Returns the number of subfolders.
pub(super) fn write_source_page(
    transaction: &Transaction<'_>,
    folder: &FolderRow,
    page: &ListedPage,
    compare: &Comparison,
) -> rusqlite::Result<u64> {
    if page.discard_previous {
        discard_pages(transaction, Side::Source, folder)?;
    }
    let whole = page.first && page.last;
    let takes_part = |row: &&EntryRow| whole && row.entry.kind == Kind::Folder && row.is_included();
    let names = page.rows.iter().filter(takes_part);
    let names: Vec<&[u8]> = names.map(|row| row.entry.name.as_slice()).collect();
    let mut children = add_folders(transaction, folder, &names)?;
    let mut rows = Vec::with_capacity(page.rows.len());
    for row in &page.rows {
        let child = takes_part(&row).then(|| children.next()).flatten();
        rows.push((
            row_with_time(transaction, Side::Source, folder, row)?,
            child,
        ));
    }
    let rows: Vec<_> = rows.iter().map(|(row, child)| (&**row, *child)).collect();
    put_sources(transaction, folder.id, &rows)?;
    if page.last && !whole && compare.folds_names() {
        mark_conflicts(transaction, folder, compare)?;
    }
    match (page.last, whole) {
        (false, _) => save_cursor(transaction, Side::Source, folder, page),
        (true, true) => Ok(names.len() as u64),
        (true, false) => add_listed_folders(transaction, folder),
    }
}

/// Writes a destination page. Returns whether its plain files are those of the source.
pub(super) fn write_destination_page(
    transaction: &Transaction<'_>,
    folder: &FolderRow,
    page: &ListedPage,
    compare: &Comparison,
) -> rusqlite::Result<bool> {
    if page.discard_previous {
        discard_pages(transaction, Side::Destination, folder)?;
    }
    let rows = page
        .rows
        .iter()
        .map(|row| row_with_time(transaction, Side::Destination, folder, row))
        .collect::<rusqlite::Result<Vec<_>>>()?;
    let mut entries: Vec<&Entry> = rows.iter().map(|row| &row.entry).collect();
    let identical = match page.files.len() {
        0 => page.first && page.last && has_same_files(transaction, folder, &mut entries, compare)?,
        _ => page.files.equals_source(transaction, folder.id)?,
    };
    put_destinations(transaction, folder.id, entries, 0)?;
    if !identical {
        put_destinations(transaction, folder.id, &page.files.unpack()?, 0)?;
    }
    if !page.last {
        save_cursor(transaction, Side::Destination, folder, page)?;
    } else if compare.folds_names() {
        take_names_of_source(transaction, folder, compare)?;
    }
    Ok(identical)
}

/// Marks entries whose names the destination cannot tell from those of others, after all pages of
/// the folder were written.
fn mark_conflicts(
    transaction: &Transaction<'_>,
    folder: &FolderRow,
    compare: &Comparison,
) -> rusqlite::Result<()> {
    let query = "SELECT name FROM source WHERE parent = ? AND excluded = 0 ORDER BY name";
    let mut taken = FoldedNames::new(compare.destination);
    let mark = "UPDATE source SET excluded = ? WHERE parent = ? AND name = ?";
    for name in names(transaction, query, folder)? {
        if !taken.take(&name) {
            let conflict = Selection::NameConflict as i64;
            transaction.execute(mark, params![conflict, folder.id, name])?;
        }
    }
    Ok(())
}

fn names(
    transaction: &Transaction<'_>,
    query: &str,
    folder: &FolderRow,
) -> rusqlite::Result<Vec<Vec<u8>>> {
    let mut statement = transaction.prepare_cached(query)?;
    let rows = statement.query_map([folder.id], |row| row.get(0))?;
    rows.collect()
}

/// Gives entries of the destination the names of the source's entries that the destination takes
/// for the same: a file that is there in another spelling is neither missing nor extra.
fn take_names_of_source(
    transaction: &Transaction<'_>,
    folder: &FolderRow,
    compare: &Comparison,
) -> rusqlite::Result<()> {
    // Excluded entries are matched as well, so that they stay protected; those that are copied
    // come last and prevail.
    let query = "SELECT name FROM source WHERE parent = ? AND excluded <> 2 ORDER BY excluded DESC";
    let mut of_source = names(transaction, query, folder)?;
    let plain = plain_files(transaction, folder.id)?;
    of_source.extend(plain.into_iter().map(|file| file.name));
    let fold = |name: &Vec<u8>| compare.destination.fold(name);
    let of_source: HashMap<_, _> = of_source.iter().map(|name| (fold(name), name)).collect();
    let query = "SELECT name FROM destination WHERE parent = ?";
    let existing = names(transaction, query, folder)?;
    // A mount inside may tell names apart.
    let exact: HashSet<&Vec<u8>> = existing.iter().collect();
    let rename = "UPDATE destination SET name = ? WHERE parent = ? AND name = ?";
    for name in &existing {
        let spelling = of_source.get(&fold(name)).copied();
        if let Some(spelling) = spelling.filter(|spelling| !exact.contains(spelling)) {
            transaction.execute(rename, params![spelling, folder.id, name])?;
        }
    }
    Ok(())
}

/// Names that are taken in a folder, in the form in which the destination compares them.
pub(crate) struct FoldedNames {
    destination: Capabilities,
    taken: HashMap<Option<Vec<u8>>, Vec<u8>>,
}

impl FoldedNames {
    pub(crate) fn new(destination: Capabilities) -> FoldedNames {
        let taken = HashMap::new();
        FoldedNames { destination, taken }
    }

    /// Takes a name. Returns `false` if another one is taken that the destination cannot tell from
    /// it.
    pub(crate) fn take(&mut self, name: &[u8]) -> bool {
        let folded = self.destination.fold(name);
        self.taken.entry(folded).or_insert_with(|| name.to_vec()) == name
    }

    /// Marks an entry whose name is taken; otherwise its name is taken from now on.
    pub(super) fn mark(&mut self, row: &mut EntryRow) {
        if row.is_included() && !self.take(&row.entry.name) {
            row.selection = Selection::NameConflict;
        }
    }
}

/// Returns whether the files among the entries are the source's plain files, as far as is compared,
/// and removes them from the entries if so. Their versions are not needed: a file that is the same
/// is never overwritten.
fn has_same_files(
    transaction: &Transaction<'_>,
    folder: &FolderRow,
    entries: &mut Vec<&Entry>,
    compare: &Comparison,
) -> rusqlite::Result<bool> {
    let is_file = |entry: &&Entry| entry.kind == Kind::File;
    // Files without versions would have been packed.
    let is_dated = |entry: &&Entry| entry.version.is_some() && entry.modified.is_some();
    let existing: Vec<&Entry> = entries.iter().copied().filter(is_file).collect();
    if existing.is_empty() || !existing.iter().all(is_dated) {
        return Ok(false);
    }
    let source = plain_files(transaction, folder.id)?;
    let is_same = |(source, existing): (&Entry, &&Entry)| {
        source.name == existing.name && compare.difference(source, existing) == Status::Same
    };
    let identical = source.len() == existing.len() && source.iter().zip(&existing).all(is_same);
    if identical {
        entries.retain(|entry| !is_file(entry));
    }
    Ok(identical)
}

/// Returns a row with the time that is known from before, if the listing did not contain it.
fn row_with_time<'r>(
    transaction: &Transaction<'_>,
    side: Side,
    folder: &FolderRow,
    row: &'r EntryRow,
) -> rusqlite::Result<Cow<'r, EntryRow>> {
    if row.entry.modified.is_some() || row.entry.version.is_none() {
        return Ok(Cow::Borrowed(row));
    }
    let path = folder.path.join(&row.entry.name);
    Ok(row.with_modified(known_modified(transaction, side, &path, &row.entry)?))
}

/// Writes the root's own entry. Its parent is 0, which is no folder.
pub(super) fn write_root(
    transaction: &Transaction<'_>,
    side: Side,
    entry: Entry,
) -> rusqlite::Result<()> {
    let entry = Entry {
        name: Vec::new(),
        ..entry
    };
    match side {
        Side::Destination => put_destination(transaction, 0, &entry, 0),
        Side::Source => {
            let row = EntryRow {
                entry,
                selection: Selection::Included,
            };
            put_sources(transaction, 0, &[(&row, Some(crate::store::ROOT))])
        }
    }
}

fn save_cursor(
    transaction: &Transaction<'_>,
    side: Side,
    folder: &FolderRow,
    page: &ListedPage,
) -> rusqlite::Result<u64> {
    let statement = match side {
        Side::Source => "UPDATE folder SET src_cursor = ? WHERE id = ?",
        Side::Destination => "UPDATE folder SET dst_cursor = ? WHERE id = ?",
    };
    // An empty cursor marks pages of a listing that cannot be resumed.
    let cursor = page.cursor.clone().unwrap_or_default();
    transaction
        .prepare_cached(statement)?
        .execute(params![cursor, folder.id])?;
    Ok(0)
}

/// Removes the pages of an interrupted listing.
fn discard_pages(
    transaction: &Transaction<'_>,
    side: Side,
    folder: &FolderRow,
) -> rusqlite::Result<()> {
    let statements: &[&str] = match side {
        Side::Source => &[
            "DELETE FROM source WHERE parent = ?",
            "DELETE FROM link WHERE parent = ?",
        ],
        Side::Destination => &["DELETE FROM destination WHERE parent = ?"],
    };
    for statement in statements {
        transaction.execute(statement, [folder.id])?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::folders::mark_settled;
    use super::*;
    use crate::status::DstState;
    use crate::store::{Store, plain_files, put_packed};
    use headworks_storage::Folder;
    use std::time::Duration;

    /// A file as a bucket lists it, with a time known from before.
    fn file(name: &str, modified: i64) -> Entry {
        Entry {
            size: 7,
            modified: Some(modified),
            version: Some(b"etag".to_vec()),
            ..Entry::new(name.as_bytes(), Kind::File)
        }
    }

    fn page(entries: &[Entry]) -> ListedPage {
        let row = |entry: &Entry| EntryRow {
            entry: entry.clone(),
            selection: Selection::Included,
        };
        ListedPage {
            rows: entries.iter().map(row).collect(),
            found: entries.len(),
            files: PackedFiles::default(),
            cursor: None,
            discard_previous: false,
            first: true,
            last: true,
        }
    }

    /// Returns whether a folder with the source files `a` and `b` is recorded as alike, and how
    /// many rows the destination has of it.
    fn stored(existing: &[Entry], first: bool) -> (bool, u64) {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::create(&dir.path().join("state")).unwrap();
        let mut connection = store.write().unwrap();
        let transaction = connection.transaction().unwrap();
        let root = FolderRow {
            id: crate::store::ROOT,
            path: Folder::root(),
            depth: 0,
            subfolders: 0,
            cursor: None,
        };
        let seed = "INSERT INTO folder (id, parent, name, depth, path) VALUES (1, 0, x'', 0, x'')";
        transaction.execute(seed, []).unwrap();
        let mut sides = [headworks_storage::Capabilities::read_only(); 2];
        sides[1].modified = Some(Duration::from_nanos(1));
        let compare = Comparison::new(sides[0], sides[1], false);
        let mut source = page(&[]);
        for name in ["a", "b"] {
            let entry = Entry {
                version: None,
                ..file(name, 5)
            };
            source.files.add(&entry);
        }
        write_source_page(&transaction, &root, &source, &compare).unwrap();
        put_packed(&transaction, &[(root.id, &source.files)]).unwrap();
        assert_eq!(plain_files(&transaction, root.id).unwrap().len(), 2);
        let existing = ListedPage {
            first,
            ..page(existing)
        };
        let identical = write_destination_page(&transaction, &root, &existing, &compare).unwrap();
        mark_settled(
            &transaction,
            &[(root.id, (DstState::Successful, identical))],
        )
        .unwrap();
        let query = "SELECT alike, (SELECT count(*) FROM destination WHERE parent = 1) FROM folder WHERE id = 1";
        let stored =
            |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get::<_, i64>(1)?.cast_unsigned()));
        transaction.query_row(query, [], stored).unwrap()
    }

    #[test]
    fn identical_files_of_a_bucket_have_no_rows() {
        let folder = Entry::new(*b"c", Kind::Folder);
        assert_eq!(stored(&[file("a", 5), file("b", 5)], true), (true, 0));
        assert_eq!(
            stored(&[file("a", 5), file("b", 5), folder], true),
            (true, 1)
        );
        assert_eq!(
            stored(&[file("a", 5), file("b", 6)], true),
            (false, 2),
            "another time"
        );
        assert_eq!(stored(&[file("a", 5)], true), (false, 1), "one is missing");
        let more = [file("a", 5), file("b", 5), file("c", 5)];
        assert_eq!(stored(&more, true), (false, 3), "one more");
        let unknown = Entry {
            modified: None,
            ..file("b", 5)
        };
        assert_eq!(
            stored(&[file("a", 5), unknown], true),
            (false, 2),
            "no time is known"
        );
        assert_eq!(
            stored(&[file("a", 5), file("b", 5)], false),
            (false, 2),
            "not the only page"
        );
    }
}
