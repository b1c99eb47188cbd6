//! One small trait over storages that hold trees of files, and its backends.
//!
//! A [`Backend`] lists folders page by page, reads ranges, and takes files in such a way that a
//! file is either wholly there or not at all. Names are bytes: nothing here trims, folds or
//! normalises one. What a backend cannot do, it says beforehand ([`Capabilities`]); what it cannot
//! express, it refuses ([`Capabilities::refuses`]).
//!
//! * [`Local`]: a directory of this machine, by file descriptors, also beyond `PATH_MAX`.
//! * [`S3`]: a bucket, or what is below a prefix of it, at Amazon or at any endpoint that speaks
//!   the same.
//! * [`Azure`]: a container of blobs at Azure, or what is below a prefix of it.
//! * [`Gcs`]: a bucket at Google, or what is below a prefix of it.
//! * [`Sftp`]: a folder of an SFTP server.
//! * [`WebDav`]: a folder of a WebDAV server.
//! * [`Synth`]: a tree computed from a seed, with latency and faults to order.
//! * [`Traced`]: any of them, with every call written down by somebody who is not the caller.
//!
//! Whoever uses a backend decides when and how often. Backends do not queue or limit; those behind
//! a network try a single request again, so that a fault in the middle of something large does not
//! begin it anew.

mod azure;
mod backend;
mod capabilities;
mod cloud;
mod display;
mod entry;
mod error;
#[doc(hidden)]
pub mod failpoint;
mod folder;
#[doc(hidden)]
pub mod fuzzing;
mod gcs;
mod local;
mod location;
mod recording;
mod s3;
mod sftp;
mod synth;
mod webdav;

pub use azure::Azure;
pub use backend::{
    Backend, Chunks, CopyItem, CopyOutcome, Cursor, Extended, Listing, Page, Precondition,
    Requests, Upload, UploadPlan,
};
pub use capabilities::{Capabilities, NameRule, Space};
pub use display::{display, from_display};
pub use entry::{Entry, Inode, Kind, Posix};
pub use error::{Error, ErrorKind, Fault, Result};
pub use folder::Folder;
pub use gcs::Gcs;
pub use local::{Local, on_this_thread};
pub use location::{local_path, open, remote_path};
pub use recording::Recording;
pub use s3::S3;
pub use sftp::Sftp;
pub use synth::{CallCounts, Synth};
pub use webdav::WebDav;

/// What divides the address, the place and the length of bytes that can go straight to a disk.
const DIRECT_IO_ALIGNMENT: usize = 4096;

/// A future on the heap: what a trait object can return.
pub type BoxFuture<'a, T> = std::pin::Pin<Box<dyn Future<Output = T> + Send + 'a>>;
