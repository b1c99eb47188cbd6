//! Usage accounting and request history: quotas, recent requests, bookings and the request log.

mod bookings;
mod journal;
mod ledger;
mod log;
mod store;

pub(crate) use bookings::Bookings;
pub(crate) use journal::{Entry, Ids, Journal, Stage};
pub(crate) use ledger::{Ledger, Totals};
pub(crate) use log::RequestLog;
pub use store::{UsageRow, UsageStore};
