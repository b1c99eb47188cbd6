//! Traversal: both trees, breadth-first, in coordinated rounds.
//!
//! The driver ([`walk`]) owns both sides' rounds and the coordinator. Folders come from the store
//! in pages, are listed by a pool a side ([`lister`]), and what is found goes to the store
//! ([`publish`], [`folders`]); a round counts a folder as ended only when that is durable. What the
//! comparison comes to is not stored but follows from the rows of both sides
//! ([`Comparison`](crate::status::Comparison)).

mod folders;
mod lister;
mod pages;
mod side_state;
mod times;
mod walk;

pub(crate) use lister::DurableNames;
pub(crate) use times::fetch_missing_times;
pub(crate) use walk::walk;

/// How many rounds the destination stays behind the source, and how many the source may be ahead.
pub(crate) const LAG: u32 = 3;
pub(crate) const MAX_LEAD: u32 = 4;
