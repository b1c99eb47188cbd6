//! The [`Backend`] trait and its types.

use crate::error::{Error, ErrorKind, Result};
use crate::{BoxFuture, Capabilities, Entry, Folder, OwnerMap, Posix, Probe, Space};
use bytes::Bytes;
use std::any::Any;
use std::sync::Arc;

/// A position at which a listing can be resumed: opaque, and read only by the backend that wrote
/// it.
pub type Cursor = Vec<u8>;

/// Number of requests by kind.
pub type Requests = Vec<(&'static str, u64)>;

/// Extended attributes by name. For object stores: standard headers such as `content-type`, and
/// user metadata with the prefix `meta-`.
pub type Extended = Vec<(Vec<u8>, Vec<u8>)>;

/// A page of a folder's entries.
#[derive(Clone, Debug, Default)]
pub struct Page {
    /// The entries, in any order.
    pub entries: Vec<Entry>,
    /// The start of the next page, if another process can resume there.
    pub cursor: Option<Cursor>,
}

/// A folder being listed.
pub trait Listing: Send {
    /// Returns the next page; `None` at the end.
    fn next(&mut self) -> BoxFuture<'_, Result<Option<Page>>>;
}

/// A file being read.
pub trait Chunks: Send {
    /// Returns the next bytes; `None` at the end.
    fn next(&mut self) -> BoxFuture<'_, Result<Option<Bytes>>>;

    /// Returns the entry and the metadata of the file, if they came with its first bytes.
    fn info(&self) -> Option<(&Entry, &Extended)> {
        None
    }

    /// Returns whether the bytes are known to be those of the file, after the last was returned:
    /// they were compared with a checksum that the storage states, or come from this machine.
    fn is_checked(&self) -> bool {
        false
    }

    /// Returns the state of the checksum of all bytes of the file so far, if they are compared with
    /// one. A read that begins where this one is can continue with it.
    fn checksum_state(&self) -> Option<Vec<u8>> {
        None
    }

    /// Continues the checksum of an earlier read. Called before the first bytes.
    fn resume_checksum(&mut self, _state: &[u8]) {}

    /// Returns the entry of the file after its last byte was read, if that needs no further call.
    fn entry_at_end(&self) -> Option<&Entry> {
        None
    }
}

/// The condition under which a file may be written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Precondition {
    /// No condition.
    #[default]
    Any,
    /// No entry of the name exists.
    Absent,
    /// The entry has this version.
    Version(Vec<u8>),
    /// The entry has the type, size and time that were listed, or does not exist any more. For
    /// storages without versions.
    Unchanged(Box<Entry>),
}

/// A file to be written.
#[derive(Clone, Debug, Default)]
pub struct UploadPlan {
    /// The temporary name until the file is complete, if the backend needs one.
    pub temp: Vec<u8>,
    /// The number of bytes.
    pub size: u64,
    /// The token returned by [`checkpoint`](Upload::checkpoint) of an earlier upload.
    pub resume: Option<Vec<u8>>,
    /// The modification time, for backends that need it before the first byte.
    /// [`finish`](Upload::finish) passes it again.
    pub modified: Option<i64>,
    /// The metadata, for the same reason.
    pub extended: Extended,
    /// The condition for the write, where the backend can guarantee it.
    pub precondition: Precondition,
}

/// A file being written, invisible until [`finish`](Upload::finish).
pub trait Upload: Send {
    /// Returns the offset of the next byte: 0, or where an earlier upload is resumed.
    fn offset(&self) -> u64;

    /// Writes the next bytes.
    fn write(&mut self, bytes: Bytes) -> BoxFuture<'_, Result<()>>;

    /// Copies the next `length` bytes directly from `source`; `None` if the two backends do not
    /// support that. Fails with [`ErrorKind::Changed`] if the source has fewer bytes.
    fn copy_from<'a>(
        &'a mut self,
        _source: &'a dyn Backend,
        _folder: &'a Folder,
        _name: &'a [u8],
        _length: u64,
    ) -> Option<BoxFuture<'a, Result<()>>> {
        None
    }

    /// Makes the bytes up to `end` durable, and returns a token with which another process can
    /// resume; `None` if that is impossible.
    fn checkpoint(&mut self, end: u64) -> BoxFuture<'_, Result<Option<Vec<u8>>>>;

    /// Gives the file its name, time, owner and attributes, atomically. Durable on return, unless
    /// the backend implements [`sync`](Backend::sync).
    ///
    /// Fails, and keeps an existing file, if the number of bytes is not that of the plan.
    fn finish(
        self: Box<Self>,
        like: Entry,
        extended: Extended,
    ) -> BoxFuture<'static, Result<Entry>>;

    /// Aborts the upload, and leaves nothing behind.
    fn abort(self: Box<Self>) -> BoxFuture<'static, Result<()>>;
}

/// A file, symlink or special file to be copied by the storage itself.
#[derive(Clone, Debug)]
pub struct CopyItem {
    /// The listed entry.
    pub entry: Entry,
    /// The temporary name until it is complete.
    pub temp: Vec<u8>,
    /// The condition for the write, where the backend can guarantee it.
    pub precondition: Precondition,
}

/// The result of copying an item.
#[derive(Clone, Debug)]
pub enum CopyOutcome {
    /// It was copied; this is the new entry.
    Done(Entry),
    /// It was copied with this owner and these permissions, which the source got since it was
    /// listed.
    DoneWith(Entry, Posix),
    /// The source changed since it was listed, or during the copy. Nothing is left behind.
    Changed,
}

/// Returns the error of an upload that was finished with another number of bytes than planned.
pub(crate) fn incomplete_upload(path: &[u8], received: u64, size: u64) -> Error {
    let message = format!("received {received} of {size} bytes");
    Error::new(ErrorKind::Temporary, "write", path, message)
}

fn unsupported<'a, T: Send + 'a>(
    operation: &'static str,
    folder: &Folder,
) -> BoxFuture<'a, Result<T>> {
    let path = folder.as_bytes();
    let message = "the storage does not support this";
    let error = Error::new(ErrorKind::Unsupported, operation, path, message);
    Box::pin(std::future::ready(Err(error)))
}

/// A storage that holds a tree of files.
///
/// `name` is a name in `folder`; where it is optional, `None` means the folder itself. Calls may
/// run concurrently.
pub trait Backend: Send + Sync + 'static {
    /// Returns what the backend supports.
    fn capabilities(&self) -> Capabilities;

    /// Allows backends to recognise each other.
    fn as_any(&self) -> &dyn Any;

    /// Starts listing a folder, or resumes at a cursor.
    fn list<'a>(
        &'a self,
        folder: &'a Folder,
        from: Option<&'a Cursor>,
    ) -> BoxFuture<'a, Result<Box<dyn Listing>>>;

    /// Returns a view of the storage for a walk that lists every folder once: it may prefetch, and
    /// answer later listings from that. `None` if the backend has no such view.
    fn for_walk(&self) -> Option<Arc<dyn Backend>> {
        None
    }

    /// Returns the current entry.
    fn stat<'a>(
        &'a self,
        folder: &'a Folder,
        name: Option<&'a [u8]>,
    ) -> BoxFuture<'a, Result<Entry>>;

    /// Reads a file, starting at `offset`.
    fn read<'a>(
        &'a self,
        folder: &'a Folder,
        name: &'a [u8],
        offset: u64,
        length: u64,
    ) -> BoxFuture<'a, Result<Box<dyn Chunks>>>;

    /// Returns the extended attributes.
    fn extended<'a>(
        &'a self,
        _folder: &'a Folder,
        _name: Option<&'a [u8]>,
    ) -> BoxFuture<'a, Result<Extended>> {
        Box::pin(std::future::ready(Ok(Vec::new())))
    }

    /// Starts writing a file, or resumes an upload.
    fn upload<'a>(
        &'a self,
        folder: &'a Folder,
        _name: &'a [u8],
        _plan: UploadPlan,
    ) -> BoxFuture<'a, Result<Box<dyn Upload>>> {
        unsupported("write into", folder)
    }

    /// Removes what an upload of this plan left behind, if anything.
    fn discard<'a>(
        &'a self,
        folder: &'a Folder,
        _name: &'a [u8],
        _plan: &'a UploadPlan,
    ) -> BoxFuture<'a, Result<()>> {
        unsupported("clean up", folder)
    }

    /// Copies files, symlinks and special files of one folder directly from `source`; `None` if the
    /// two backends do not support that.
    fn copy_batch<'a>(
        &'a self,
        _source: &'a dyn Backend,
        _folder: &'a Folder,
        _items: &'a [CopyItem],
    ) -> Option<BoxFuture<'a, Vec<Result<CopyOutcome>>>> {
        None
    }

    /// Makes a folder, unless it exists.
    fn make_folder<'a>(&'a self, folder: &'a Folder) -> BoxFuture<'a, Result<()>> {
        unsupported("make", folder)
    }

    /// Makes a symlink or special file, atomically replacing an existing entry.
    fn make_node<'a>(
        &'a self,
        folder: &'a Folder,
        _item: &'a CopyItem,
    ) -> BoxFuture<'a, Result<Entry>> {
        unsupported("make an entry in", folder)
    }

    /// Makes a hard link, replacing the entry that the precondition allows.
    fn hard_link<'a>(
        &'a self,
        _existing: (&'a Folder, &'a [u8]),
        folder: &'a Folder,
        _name: &'a [u8],
        _temp: &'a [u8],
        _precondition: &'a Precondition,
    ) -> BoxFuture<'a, Result<Entry>> {
        unsupported("link into", folder)
    }

    /// Sets time, owner, permissions and extended attributes, of the entry that the precondition
    /// allows.
    fn set_attributes<'a>(
        &'a self,
        folder: &'a Folder,
        _name: Option<&'a [u8]>,
        _like: &'a Entry,
        _extended: Extended,
        _precondition: &'a Precondition,
    ) -> BoxFuture<'a, Result<Entry>> {
        unsupported("set attributes in", folder)
    }

    /// Removes a file, or a folder with everything in it.
    fn remove<'a>(&'a self, folder: &'a Folder, _name: &'a [u8]) -> BoxFuture<'a, Result<()>> {
        unsupported("remove from", folder)
    }

    /// Moves an entry. Never replaces another.
    fn rename<'a>(
        &'a self,
        folder: &'a Folder,
        _name: &'a [u8],
        _to: (&'a Folder, &'a [u8]),
    ) -> BoxFuture<'a, Result<()>> {
        unsupported("move from", folder)
    }

    /// Returns the requests made so far by kind, if they are counted.
    fn requests(&self) -> Requests {
        Vec::new()
    }

    /// Returns what the user should know about the calls so far.
    fn notices(&self) -> Vec<String> {
        Vec::new()
    }

    /// Estimates the number of requests to write a file of this size, or to make a folder.
    fn requests_to_write(&self, _size: u64) -> u64 {
        1
    }

    /// Estimates the number of requests to read a file of this size.
    fn requests_to_read(&self, _size: u64) -> u64 {
        1
    }

    /// Waits until everything written is durable. The default is for backends whose
    /// [`finish`](Upload::finish) is durable by itself.
    fn sync(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// Returns the free space, if the backend knows it.
    fn space(&self) -> BoxFuture<'_, Result<Option<Space>>> {
        Box::pin(std::future::ready(Ok(None)))
    }

    /// Tries out what the storage can keep where that cannot be known in advance. If it is `known`
    /// from before, nothing is tried, and [`capabilities`](Self::capabilities) are restricted to it
    /// from now on. `None` if there is nothing to try, or nothing can be written. Blocks for some
    /// calls.
    fn probe(&self, _known: Option<Probe>) -> Option<Probe> {
        None
    }

    /// Returns entries with other owners from now on. Called once, before anything else. Returns
    /// whether the backend can do that.
    fn map_owners(&self, _map: &OwnerMap) -> bool {
        false
    }

    /// Returns the time by the clock that dates new entries, which may be that of another machine:
    /// an entry is made and removed. `None` if nothing can be made, or the storage dates nothing.
    fn clock(&self) -> BoxFuture<'_, Option<i64>> {
        Box::pin(std::future::ready(None))
    }

    /// Checks that the root is writable.
    fn writable(&self) -> BoxFuture<'_, Result<()>> {
        unsupported("write into", &Folder::root())
    }
}
