//! The stores that a fleet shares, as a gateway starts with them.

use std::path::Path;
use std::sync::Arc;

use headworks_fleet::postgres::Postgres;
use headworks_fleet::{FleetUrl, Secrets};
use jiff::tz::TimeZone;

use super::clock::KeyClock;
use super::config::FleetConfig;
use super::keys::FleetKeys;
use crate::config::GatewayConfig;
use crate::error::Error;
use crate::key_store::{FileKeyStore, KeyStore, Poll, PostgresKeyStore};
use crate::shared::Stored;
use crate::time_rules;
use crate::usage::{PostgresUsageStore, TenantTotal, UsageLedger, UsageStore};

/// The stores of a fleet in PostgreSQL, with the result of a first look at them.
pub(crate) struct FleetStores {
    clock: KeyClock,
    keys: FleetKeys,
    usage: Arc<PostgresUsageStore>,
    stored: Stored,
    /// Tokens used so far; `None` if the database could not be reached.
    totals: Option<Vec<TenantTotal>>,
}

impl FleetStores {
    /// Prepares the stores and looks at them for the first time. Blocks for a few seconds at most.
    /// `None` without a PostgreSQL database: then files are the stores.
    ///
    /// # Errors
    /// If the address, the password or the database is wrong. A database that cannot be reached is
    /// not an error: the gateway serves nobody with a stored key until it can.
    pub(crate) fn open(
        config: &GatewayConfig,
        fleet: &FleetConfig,
        secrets: Secrets,
    ) -> Result<Option<FleetStores>, Error> {
        let Some(server) = database(fleet, secrets)? else {
            return Ok(None);
        };
        if config.keys_file.is_some() {
            tracing::warn!(
                "`gateway.keys_file` is not used in a fleet; `headworks gateway key import` puts its \
                 keys into the database"
            );
        }
        if config.usage_file.is_some() {
            tracing::warn!("`gateway.usage_file` is not used in a fleet: usage is in the database");
        }
        let levels = config.scheduler_priority_levels;
        let zone = TimeZone::get(&config.time_zone).unwrap_or(TimeZone::UTC);
        let mut stores = FleetStores {
            clock: KeyClock::fleet(fleet.keys_max_age),
            keys: FleetKeys::new(&server, levels),
            usage: Arc::new(PostgresUsageStore::new(&server)),
            stored: Stored::unknown(),
            totals: None,
        };
        match first_look(server, levels, zone) {
            Ok((poll, totals)) => {
                stores.clock.set(poll.sent, poll.time);
                let had_changes = poll.known.had_changes();
                stores.stored = Stored::of_fleet(poll.table.unwrap_or_default(), had_changes);
                stores.totals = Some(totals);
            }
            Err(Error::Fleet(error)) if error.is_temporary() => tracing::error!(
                %error,
                "cannot reach the database of the fleet; stored keys are refused until it answers"
            ),
            Err(error) => return Err(error),
        }
        Ok(Some(stores))
    }

    /// The stored keys and tenants, as far as they are known.
    pub(crate) fn first_stored(&self) -> Stored {
        self.stored.clone()
    }

    pub(crate) fn clock(&self) -> KeyClock {
        self.clock.clone()
    }

    /// The ledger over the fleet's usage.
    pub(crate) fn ledger(&self, today: u32) -> UsageLedger {
        UsageLedger::new(self.usage.clone(), true, self.totals.as_deref(), today)
    }

    pub(crate) fn into_keys(self) -> Arc<FleetKeys> {
        Arc::new(self.keys)
    }
}

/// The key store that the configuration names: the database of the fleet, or the key file `file`.
///
/// # Errors
/// If the address of the database cannot be used.
pub fn open_key_store(
    config: &GatewayConfig,
    fleet: &FleetConfig,
    file: &Path,
    secrets: Secrets,
) -> Result<Arc<dyn KeyStore>, Error> {
    let levels = config.scheduler_priority_levels;
    Ok(match database(fleet, secrets)? {
        Some(server) => Arc::new(PostgresKeyStore::new(&server, levels)),
        None => Arc::new(FileKeyStore::new(file, levels)),
    })
}

/// The usage store of the fleet; `None` without one.
///
/// # Errors
/// If the address of the database cannot be used.
pub fn open_usage_store(
    fleet: &FleetConfig,
    secrets: Secrets,
) -> Result<Option<PostgresUsageStore>, Error> {
    let server = database(fleet, secrets)?;
    Ok(server.map(|server| PostgresUsageStore::new(&server)))
}

/// The database of the fleet; `None` if files are the stores.
fn database(fleet: &FleetConfig, secrets: Secrets) -> Result<Option<Postgres>, Error> {
    let Some(FleetUrl::Postgres(url)) = fleet.address()? else {
        return Ok(None);
    };
    Ok(Some(Postgres::new(url, secrets)?))
}

/// Reads keys and totals over connections of its own.
fn first_look(
    server: Postgres,
    levels: u8,
    zone: TimeZone,
) -> Result<(Poll, Vec<TenantTotal>), Error> {
    // A runtime of its own: this is called on a runtime's thread, which must not wait for itself.
    let look = std::thread::spawn(move || {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_all().build();
        let runtime = runtime.map_err(|cause| unusable(&cause))?;
        runtime.block_on(async {
            let poll = PostgresKeyStore::new(&server, levels).poll(None).await?;
            let day = time_rules::day(poll.time, &zone);
            let totals = PostgresUsageStore::new(&server).totals(day).await?;
            Ok((poll, totals))
        })
    });
    let looked = look.join();
    looked.unwrap_or_else(|_| Err(unusable(&"the first look failed")))
}

fn unusable(cause: &dyn std::fmt::Display) -> Error {
    Error::Fleet(headworks_fleet::Error::Setting(cause.to_string()))
}
