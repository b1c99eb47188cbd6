//! Usage accounting: the ledger with its quotas, and the usage file.

mod ledger;
mod store;

pub(crate) use ledger::{Totals, UsageLedger};
pub use store::{UsageRow, UsageStore};
