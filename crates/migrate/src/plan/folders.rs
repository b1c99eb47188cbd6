//! The rows of the `folder` table: new folders, and the state of listed ones.

use crate::status::{DstState, SrcState};
use crate::store::FolderRow;
use rusqlite::{Transaction, params};
use std::sync::LazyLock;

/// Records that source folders were listed, and how many subfolders they have.
pub(super) fn mark_listed(
    transaction: &Transaction<'_>,
    folders: &[(i64, u64)],
) -> rusqlite::Result<()> {
    let mut statement = transaction.prepare_cached(
        "UPDATE folder SET src = ?, src_cursor = NULL, subfolders = ? WHERE id BETWEEN ? AND ?",
    )?;
    for (first, last, subfolders) in runs(folders) {
        let state = SrcState::Successful as i64;
        statement.execute(params![state, subfolders as i64, first, last])?;
    }
    Ok(())
}

/// Returns runs of folders with consecutive ids and the same value: first id, last id, value.
fn runs<T: Copy + PartialEq>(folders: &[(i64, T)]) -> impl Iterator<Item = (i64, i64, T)> {
    let is_consecutive = |a: &(i64, T), b: &(i64, T)| a.0 + 1 == b.0 && a.1 == b.1;
    folders
        .chunk_by(is_consecutive)
        .map(|chunk| (chunk[0].0, chunk[chunk.len() - 1].0, chunk[0].1))
}

/// The recorded result for a destination folder: its state, and whether its plain files are those
/// of the source.
pub(super) type FolderOutcome = (DstState, bool);

/// Records destination folders in their turn. A folder that was thought missing may have been made
/// meanwhile.
pub(super) fn mark_settled(
    transaction: &Transaction<'_>,
    folders: &[(i64, FolderOutcome)],
) -> rusqlite::Result<()> {
    let mut statement = transaction.prepare_cached(
        "UPDATE folder SET dst = iif(ahead = 1 AND ?1 = 3, 1, ?1), dst_cursor = NULL, alike = ?2
         WHERE id BETWEEN ?3 AND ?4",
    )?;
    for (first, last, (state, identical)) in runs(folders) {
        statement.execute(params![state as i64, identical, first, last])?;
    }
    Ok(())
}

/// Records a destination folder ahead of its turn. In its turn it needs no call.
pub(super) fn mark_settled_early(
    transaction: &Transaction<'_>,
    folder: i64,
    (state, identical): FolderOutcome,
) -> rusqlite::Result<()> {
    let mut statement = transaction
        .prepare_cached("UPDATE folder SET ahead = ?, dst_cursor = NULL, alike = ? WHERE id = ?")?;
    statement
        .execute(params![state as i64, identical, folder])
        .map(drop)
}

/// Folders per statement.
const CHUNK: usize = 8;

static ADD_MANY: LazyLock<String> = LazyLock::new(|| add_statement(CHUNK));
static ADD_ONE: LazyLock<String> = LazyLock::new(|| add_statement(1));

fn add_statement(count: usize) -> String {
    let row = |at: usize| format!("(?1, ?{}, ?2, ?{})", 2 * at + 3, 2 * at + 4);
    let rows: Vec<String> = (0..count).map(row).collect();
    let rows = rows.join(",");
    format!("INSERT INTO folder (parent, name, depth, path) VALUES {rows}")
}

/// Adds subfolders of a folder, and returns their ids, which are consecutive.
pub(super) fn add_folders(
    transaction: &Transaction<'_>,
    parent: &FolderRow,
    names: &[&[u8]],
) -> rusqlite::Result<std::ops::Range<i64>> {
    if names.is_empty() {
        return Ok(0..0);
    }
    let (many, rest) = names.as_chunks::<CHUNK>();
    for names in many {
        insert_folders(transaction, &ADD_MANY, parent, names)?;
    }
    for name in rest {
        insert_folders(transaction, &ADD_ONE, parent, &[name])?;
    }
    // SQLite assigns the highest rowid plus one, and only this thread writes.
    let end = transaction.last_insert_rowid() + 1;
    Ok(end - names.len() as i64..end)
}

fn insert_folders(
    transaction: &Transaction<'_>,
    statement: &str,
    parent: &FolderRow,
    names: &[&[u8]],
) -> rusqlite::Result<()> {
    let mut statement = transaction.prepare_cached(statement)?;
    statement.raw_bind_parameter(1, parent.id)?;
    statement.raw_bind_parameter(2, parent.depth + 1)?;
    for (at, name) in names.iter().enumerate() {
        statement.raw_bind_parameter(2 * at + 3, name)?;
        let path = parent.path.child(name);
        statement.raw_bind_parameter(2 * at + 4, path.as_bytes())?;
    }
    statement.raw_execute().map(drop)
}

/// Adds the subfolders of a listing of several pages. They get rows only after the last page, so
/// that an interrupted listing leaves none.
pub(super) fn add_listed_folders(
    transaction: &Transaction<'_>,
    folder: &FolderRow,
) -> rusqlite::Result<u64> {
    let mut select = transaction.prepare(
        "SELECT name FROM source WHERE parent = ? AND kind = 0 AND excluded = 0 AND folder IS NULL",
    )?;
    let names: Vec<Vec<u8>> = select
        .query_map([folder.id], |row| row.get(0))?
        .collect::<rusqlite::Result<_>>()?;
    let slices: Vec<&[u8]> = names.iter().map(Vec::as_slice).collect();
    let children = add_folders(transaction, folder, &slices)?;
    for (name, child) in names.iter().zip(children) {
        let mut update = transaction
            .prepare_cached("UPDATE source SET folder = ? WHERE parent = ? AND name = ?")?;
        update.execute(params![child, folder.id, name])?;
    }
    Ok(names.len() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Store;
    use headworks_storage::Folder;

    #[test]
    fn consecutive_folders_form_runs() {
        let folders = [(4, 'a'), (5, 'a'), (6, 'b'), (8, 'b'), (9, 'b'), (3, 'b')];
        let found: Vec<_> = runs(&folders).collect();
        assert_eq!(found, [(4, 5, 'a'), (6, 6, 'b'), (8, 9, 'b'), (3, 3, 'b')]);
    }

    #[test]
    fn added_folders_have_the_returned_ids() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::create(&dir.path().join("state")).unwrap();
        let mut connection = store.write().unwrap();
        let transaction = connection.transaction().unwrap();
        let parent = FolderRow {
            id: 7,
            path: Folder::root().child(b"p"),
            depth: 1,
            subfolders: 0,
            cursor: None,
        };
        let names: Vec<Vec<u8>> = (b'a'..b'a' + 19).map(|name| vec![name]).collect();
        let slices: Vec<&[u8]> = names.iter().map(Vec::as_slice).collect();
        assert!(add_folders(&transaction, &parent, &[]).unwrap().is_empty());
        let numbers = add_folders(&transaction, &parent, &slices).unwrap();
        assert_eq!(numbers.clone().count(), names.len());
        for (number, name) in numbers.zip(&names) {
            let path = crate::store::path_of(&transaction, number).unwrap();
            assert_eq!(path, parent.path.child(name));
            let key = crate::store::folder_entry_key(&transaction, number).unwrap();
            assert_eq!(key, (parent.id, name.clone()));
        }
    }
}
