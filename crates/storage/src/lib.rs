//! One trait for storages that hold trees of files, with five required methods, and its backends.
//!
//! A [`Backend`] lists folders page by page, reads ranges, and writes files atomically: a reader
//! sees the old file or the complete new one. Names are bytes: nothing is trimmed, folded or
//! normalised. A backend declares what it supports ([`Capabilities`]) and rejects names that it
//! cannot represent ([`Capabilities::name_problem`]).
//!
//! * [`Local`]: a directory of this machine, accessed by file descriptors, also beyond `PATH_MAX`.
//! * [`S3`]: a bucket or a prefix in it, at Amazon or a compatible service.
//! * [`Azure`]: a container of blobs at Azure, or a prefix in it.
//! * [`Gcs`]: a bucket at Google, or a prefix in it.
//! * [`Sftp`]: a folder of an SFTP server.
//! * [`WebDav`]: a folder of a WebDAV server.
//! * [`Synth`]: a tree generated from a seed, with configurable latency and faults.
//! * [`Recording`]: wraps another backend and records every call.
//!
//! The user of a backend decides when and how often to call it. Backends do not schedule; those
//! behind a network make a call wait while too many run, and retry single requests, so a fault in a
//! large operation does not restart it.

mod azure;
mod backend;
mod capabilities;
mod cloud;
mod display;
mod entry;
mod error;
mod expected;
#[doc(hidden)]
pub mod failpoint;
mod folder;
#[doc(hidden)]
pub mod fuzzing;
mod gcs;
mod local;
mod location;
mod owner_map;
mod recording;
mod registry;
mod s3;
mod sftp;
mod synth;
mod webdav;

pub use azure::Azure;
pub use backend::{
    Backend, Chunks, CopyItem, CopyOutcome, Cursor, Extended, Listing, Page, Precondition,
    Requests, Upload, UploadPlan,
};
pub use capabilities::{Capabilities, NameRule, Probe, Space};
pub use display::{display, from_display};
pub use entry::{Entry, Inode, Kind, Posix};
pub use error::{Error, ErrorKind, Fault, Result};
pub use folder::Folder;
pub use gcs::Gcs;
pub use local::{Local, on_this_thread};
pub use location::{local_path, open, remote_path};
pub use owner_map::OwnerMap;
pub use recording::Recording;
pub use registry::register;
pub use s3::S3;
pub use sftp::Sftp;
pub use synth::{CallCounts, Synth};
pub use webdav::WebDav;

/// The alignment of address, offset and length that direct I/O needs.
const DIRECT_IO_ALIGNMENT: usize = 4096;

/// A boxed future, as a trait object returns it.
pub type BoxFuture<'a, T> = std::pin::Pin<Box<dyn Future<Output = T> + Send + 'a>>;
