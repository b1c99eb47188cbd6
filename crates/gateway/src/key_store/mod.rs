//! Key stores: keys, tenants, and the audit log of their changes.
//!
//! Without a fleet, the key file is the store ([`FileKeyStore`]). In a fleet, a PostgreSQL database
//! is ([`PostgresKeyStore`]). Both apply the same [`KeyChange`]s to a [`KeyTable`] by the same pure
//! function, and both pass one behaviour suite. A running gateway holds the whole table in memory;
//! no request waits for a store.

mod audit;
mod change;
mod file;
mod moment;
mod postgres;
mod table;

use futures_util::future::BoxFuture;

pub use audit::AuditEntry;
pub use change::{Changed, KeyChange, NewKey};
pub use file::FileKeyStore;
pub use moment::parse_moment;
pub use postgres::PostgresKeyStore;
pub(crate) use postgres::{KnownVersion, Poll};
pub use table::KeyTable;

use crate::error::Error;

/// Where keys, tenants and the audit log are stored.
pub trait KeyStore: Send + Sync {
    /// The store as messages name it.
    fn name(&self) -> String;

    /// Reads all keys and tenants.
    fn load(&self) -> BoxFuture<'_, Result<KeyTable, Error>>;

    /// Applies one change and records it in the audit log, all or nothing. `actor` says who asks.
    fn change<'a>(
        &'a self,
        change: &'a KeyChange,
        actor: &'a str,
    ) -> BoxFuture<'a, Result<Changed, Error>>;

    /// The latest entries of the audit log, oldest first.
    fn audit_log(&self, limit: usize) -> BoxFuture<'_, Result<Vec<AuditEntry>, Error>>;
}
