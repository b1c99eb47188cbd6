//! The trait, and the things that pass through it.

use crate::error::{Error, ErrorKind, Result};
use crate::{BoxFuture, Capabilities, Entry, Folder, Space};
use bytes::Bytes;
use std::any::Any;
use std::sync::Arc;

/// Where a listing can be taken up again: opaque, written by the backend that reads it.
pub type Cursor = Vec<u8>;

/// How many requests of each kind were made.
pub type Requests = Vec<(&'static str, u64)>;

/// Extended attributes, by name. Of and for object storages: `content-type` and its like, and
/// `meta-` before the names that users gave.
pub type Extended = Vec<(Vec<u8>, Vec<u8>)>;

/// Some of a folder's entries.
#[derive(Clone, Debug, Default)]
pub struct Page {
    /// The entries, in any order.
    pub entries: Vec<Entry>,
    /// Where the next page begins, if that can be said to another process.
    pub cursor: Option<Cursor>,
}

/// A folder being listed.
pub trait Listing: Send {
    /// The next page; `None` when there are no more entries.
    fn next(&mut self) -> BoxFuture<'_, Result<Option<Page>>>;
}

/// A file being read.
pub trait Chunks: Send {
    /// The next bytes; `None` at the end.
    fn next(&mut self) -> BoxFuture<'_, Result<Option<Bytes>>>;

    /// What the file was when its bytes began to come, and its metadata, if that came with them.
    fn info(&self) -> Option<(&Entry, &Extended)> {
        None
    }

    /// What the file was once its last byte was read, if that is known without another call.
    fn entry_at_end(&self) -> Option<&Entry> {
        None
    }
}

/// What has to stand in the way of a new file, for it to be written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Precondition {
    /// Whatever may be there.
    #[default]
    Any,
    /// Nothing.
    Absent,
    /// That version of it, and no other.
    Version(Vec<u8>),
    /// What was listed: an entry of that type, size and time, or nothing any more. For storages
    /// that do not give versions.
    Unchanged(Box<Entry>),
}

/// What is to be written.
#[derive(Clone, Debug, Default)]
pub struct UploadPlan {
    /// The name it has until it is complete, where the backend needs one.
    pub temp: Vec<u8>,
    /// How many bytes will come.
    pub size: u64,
    /// What an earlier upload's [`checkpoint`](Upload::checkpoint) returned.
    pub resume: Option<Vec<u8>>,
    /// When it was modified, for backends that must know before the first byte;
    /// [`finish`](Upload::finish) says it again.
    pub modified: Option<i64>,
    /// Its metadata, for the same reason.
    pub extended: Extended,
    /// What may be overwritten, where the backend can make sure of it.
    pub precondition: Precondition,
}

/// A file being written, invisible until [`finish`](Upload::finish).
pub trait Upload: Send {
    /// Where the next byte goes: 0, or where an earlier upload was taken up.
    fn offset(&self) -> u64;

    /// Takes the next bytes.
    fn write(&mut self, bytes: Bytes) -> BoxFuture<'_, Result<()>>;

    /// Takes the next `length` bytes straight from `source`, without their passing through us;
    /// `None` if the two backends cannot. Fails with [`ErrorKind::Changed`] if the source has
    /// fewer.
    fn copy_from<'a>(
        &'a mut self,
        _source: &'a dyn Backend,
        _folder: &'a Folder,
        _name: &'a [u8],
        _length: u64,
    ) -> Option<BoxFuture<'a, Result<()>>> {
        None
    }

    /// Makes what was written durable, at least up to `end`, and says how to go on from there in
    /// another process; `None` if that is not possible.
    fn checkpoint(&mut self, end: u64) -> BoxFuture<'_, Result<Option<Vec<u8>>>>;

    /// Gives it its name, time, owner and attributes; it was not there before, or was another file
    /// whole.
    ///
    /// Fails, and leaves what was there, if fewer or more bytes came than the plan said.
    fn finish(
        self: Box<Self>,
        like: Entry,
        extended: Extended,
    ) -> BoxFuture<'static, Result<Entry>>;

    /// Leaves nothing behind.
    fn abort(self: Box<Self>) -> BoxFuture<'static, Result<()>>;
}

/// A file, symlink or special file to be copied by the storage itself.
#[derive(Clone, Debug)]
pub struct CopyItem {
    /// What it was when it was listed.
    pub entry: Entry,
    /// The name it has until it is complete.
    pub temp: Vec<u8>,
    /// What may be overwritten, where the backend can make sure of it.
    pub precondition: Precondition,
}

/// What became of an order.
#[derive(Clone, Debug)]
pub enum CopyOutcome {
    /// It is there, and this is what it is.
    Done(Entry),
    /// The source is not what it was when it was listed, or changed meanwhile. Nothing was left
    /// behind.
    Changed,
}

/// An upload that was finished with another number of bytes than its plan said.
pub(crate) fn incomplete_upload(path: &[u8], received: u64, size: u64) -> Error {
    let message = format!("{received} of {size} bytes came");
    Error::new(ErrorKind::Temporary, "write", path, message)
}

fn unsupported<'a, T: Send + 'a>(
    operation: &'static str,
    folder: &Folder,
) -> BoxFuture<'a, Result<T>> {
    let path = folder.as_bytes();
    let message = "this storage cannot do that";
    let error = Error::new(ErrorKind::Unsupported, operation, path, message);
    Box::pin(std::future::ready(Err(error)))
}

/// A storage that holds a tree of files.
///
/// `name` is a name in `folder`; where it is optional, `None` means the folder itself. Calls may
/// run at the same time.
pub trait Backend: Send + Sync + 'static {
    /// What it can do.
    fn capabilities(&self) -> Capabilities;

    /// For backends of a kind to recognise each other.
    fn as_any(&self) -> &dyn Any;

    /// Begins to list a folder, or goes on at a cursor.
    fn list<'a>(
        &'a self,
        folder: &'a Folder,
        from: Option<&'a Cursor>,
    ) -> BoxFuture<'a, Result<Box<dyn Listing>>>;

    /// The same storage for whoever is about to list all of it, each folder once: it may fetch more
    /// than it is asked for, and answer later listings from that. `None` if it has no such way.
    fn for_walk(&self) -> Option<Arc<dyn Backend>> {
        None
    }

    /// What something is now.
    fn stat<'a>(
        &'a self,
        folder: &'a Folder,
        name: Option<&'a [u8]>,
    ) -> BoxFuture<'a, Result<Entry>>;

    /// Reads a file from `offset` on.
    fn read<'a>(
        &'a self,
        folder: &'a Folder,
        name: &'a [u8],
        offset: u64,
        length: u64,
    ) -> BoxFuture<'a, Result<Box<dyn Chunks>>>;

    /// The extended attributes.
    fn extended<'a>(
        &'a self,
        _folder: &'a Folder,
        _name: Option<&'a [u8]>,
    ) -> BoxFuture<'a, Result<Extended>> {
        Box::pin(std::future::ready(Ok(Vec::new())))
    }

    /// Begins to write a file, or goes on with it.
    fn upload<'a>(
        &'a self,
        folder: &'a Folder,
        _name: &'a [u8],
        _plan: UploadPlan,
    ) -> BoxFuture<'a, Result<Box<dyn Upload>>> {
        unsupported("write into", folder)
    }

    /// Removes what an upload of that plan left behind, if anything.
    fn discard<'a>(
        &'a self,
        folder: &'a Folder,
        _name: &'a [u8],
        _plan: &'a UploadPlan,
    ) -> BoxFuture<'a, Result<()>> {
        unsupported("tidy", folder)
    }

    /// Copies files, symlinks and special files of one folder straight from `source`; `None` if the
    /// two cannot.
    fn copy_batch<'a>(
        &'a self,
        _source: &'a dyn Backend,
        _folder: &'a Folder,
        _items: &'a [CopyItem],
    ) -> Option<BoxFuture<'a, Vec<Result<CopyOutcome>>>> {
        None
    }

    /// Makes a folder. One that is there already is fine.
    fn make_folder<'a>(&'a self, folder: &'a Folder) -> BoxFuture<'a, Result<()>> {
        unsupported("make", folder)
    }

    /// Makes a symlink or special file, whole or not at all, in place of what may be there.
    fn make_node<'a>(
        &'a self,
        folder: &'a Folder,
        _item: &'a CopyItem,
    ) -> BoxFuture<'a, Result<Entry>> {
        unsupported("make an entry in", folder)
    }

    /// Gives a file a further name, in place of what may be there.
    fn hard_link<'a>(
        &'a self,
        _existing: (&'a Folder, &'a [u8]),
        folder: &'a Folder,
        _name: &'a [u8],
        _temp: &'a [u8],
    ) -> BoxFuture<'a, Result<Entry>> {
        unsupported("link into", folder)
    }

    /// Sets time, owner, permissions and extended attributes.
    fn set_attributes<'a>(
        &'a self,
        folder: &'a Folder,
        _name: Option<&'a [u8]>,
        _like: &'a Entry,
        _extended: Extended,
    ) -> BoxFuture<'a, Result<Entry>> {
        unsupported("set attributes in", folder)
    }

    /// Removes a file, or a folder with all that is in it.
    fn remove<'a>(&'a self, folder: &'a Folder, _name: &'a [u8]) -> BoxFuture<'a, Result<()>> {
        unsupported("remove from", folder)
    }

    /// Moves something, never onto something else.
    fn rename<'a>(
        &'a self,
        folder: &'a Folder,
        _name: &'a [u8],
        _to: (&'a Folder, &'a [u8]),
    ) -> BoxFuture<'a, Result<()>> {
        unsupported("move from", folder)
    }

    /// How many requests of each kind were made so far, where they are counted.
    fn requests(&self) -> Requests {
        Vec::new()
    }

    /// About how many requests it takes to write a file of that size, or to make a folder.
    fn requests_to_write(&self, _size: u64) -> u64 {
        1
    }

    /// About how many requests it takes to read a file of that size.
    fn requests_to_read(&self, _size: u64) -> u64 {
        1
    }

    /// Returns when all that was written is durable.
    fn sync(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// What is left, if the backend knows.
    fn space(&self) -> BoxFuture<'_, Result<Option<Space>>> {
        Box::pin(std::future::ready(Ok(None)))
    }

    /// Whether we may write into the root.
    fn writable(&self) -> BoxFuture<'_, Result<()>> {
        unsupported("write into", &Folder::root())
    }
}
