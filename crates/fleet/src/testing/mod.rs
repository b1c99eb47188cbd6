//! Real servers for tests.
//!
//! Every server has a port and a folder of its own and ends with its value. A missing program is a
//! panic with the package to install, never a skipped test. As root, the servers run as the user
//! `postgres` or `nobody`, because PostgreSQL and PgBouncer refuse to run as root.
//!
//! Functions panic instead of returning errors: a test can do nothing about them.

mod certificates;
mod pgbouncer;
mod postgres;
mod process;
mod valkey;

pub use certificates::Certificates;
pub use pgbouncer::PgBouncer;
pub use postgres::PostgresServer;
pub use valkey::ValkeyServer;

use std::future::Future;
use std::time::Duration;

/// Waits until `condition` returns a value.
///
/// # Panics
/// When that takes a minute, far longer than on any machine that works.
pub async fn eventually<T, F>(what: &str, mut condition: impl FnMut() -> F) -> T
where
    F: Future<Output = Option<T>>,
{
    let attempts = async {
        loop {
            if let Some(value) = condition().await {
                return value;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let limit = Duration::from_secs(60);
    match tokio::time::timeout(limit, attempts).await {
        Ok(value) => value,
        Err(_) => panic!("not within a minute: {what}"),
    }
}
