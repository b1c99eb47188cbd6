//! The plan: a breadth-first walk of both trees in coordinated rounds.
//!
//! The driver ([`walk`]) owns the rounds of both sides and the coordinator. Folders are read from
//! the store in pages, listed by one pool per side ([`lister`]), and their entries written to the
//! store ([`pages`], [`folders`]). A round counts a folder as finished only when its listing is
//! durable. The result of the comparison is not stored, but derived from the rows of both sides
//! ([`Comparison`](crate::status::Comparison)).

mod folders;
mod lister;
mod pages;
mod side_state;
mod times;
mod walk;

pub(crate) use lister::DurableNames;
pub(crate) use pages::FoldedNames;
pub(crate) use times::fetch_missing_times;
pub(crate) use walk::walk;

/// How many rounds the destination stays behind the source, and how many the source may be ahead.
pub(crate) const LAG: u32 = 3;
pub(crate) const MAX_LEAD: u32 = 4;
