//! PostgreSQL: connections that return, transactions that end, and a schema with a version.
//!
//! Everything here works behind a PgBouncer in transaction mode: no prepared statements, no
//! session settings, no session-level locks, no `LISTEN`. Parameters have explicit types, and many
//! rows travel as arrays.

mod convert;
mod identity;
mod link;
pub mod schema;
mod server;
mod tls;
mod transaction;

pub use identity::DatabaseIdentity;
pub use link::Link;
pub use server::{Postgres, Timeouts};
pub use tokio_postgres::Row;
pub use tokio_postgres::types::{FromSql, ToSql, Type};
pub use transaction::{Parameter, Transaction};
