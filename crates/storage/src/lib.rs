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
mod entry;
mod error;
#[doc(hidden)]
pub mod failpoint;
mod folder;
mod gcs;
mod local;
mod location;
#[doc(hidden)]
pub mod reading;
mod s3;
mod sftp;
mod shown;
mod synth;
mod traced;
mod webdav;

pub use azure::Azure;
pub use backend::{
    Backend, Chunks, Copied, Cursor, Expect, Extended, Listing, Order, Page, Requests, Upload,
    UploadPlan,
};
pub use capabilities::{Capabilities, Refused, Space};
pub use entry::{Entry, Inode, Kind, Posix};
pub use error::{Error, ErrorKind, Fault, Result};
pub use folder::Folder;
pub use gcs::Gcs;
pub use local::{Local, on_this_thread};
pub use location::{directory, open, remote};
pub use s3::S3;
pub use sftp::Sftp;
pub use shown::{shown, unshown};
pub use synth::{Calls, Synth};
pub use traced::Traced;
pub use webdav::WebDav;

/// What divides the address, the place and the length of bytes that can go straight to a disk.
const ALIGNED: usize = 4096;

/// A future on the heap: what a trait object can return.
pub type BoxFuture<'a, T> = std::pin::Pin<Box<dyn Future<Output = T> + Send + 'a>>;
