//! The fleet's keys in a running gateway: read whole, and compared with the stored version once per
//! second.

use std::sync::Arc;
use std::time::Duration;

use headworks_fleet::postgres::Postgres;
use tokio::sync::Mutex;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

use crate::error::Error;
use crate::key_store::{KnownVersion, Poll, PostgresKeyStore};
use crate::shared::Shared;

/// Interval of the comparisons. With it, a revoked key is refused within 2 s on every node.
const INTERVAL: Duration = Duration::from_secs(1);

/// The fleet's keys in a running gateway.
pub(crate) struct FleetKeys {
    pub(crate) store: Arc<PostgresKeyStore>,
    /// The version in force. Locked from the comparison until the keys are in force, so that an
    /// older table never replaces a newer one.
    known: Mutex<Option<KnownVersion>>,
}

impl FleetKeys {
    pub(crate) fn new(server: &Postgres, levels: u8) -> FleetKeys {
        FleetKeys {
            store: Arc::new(PostgresKeyStore::new(server, levels)),
            known: Mutex::default(),
        }
    }

    /// Puts the stored keys in force, if they changed.
    pub(crate) async fn refresh(&self, shared: &Shared) -> Result<(), Error> {
        let mut known = self.known.lock().await;
        let poll = self.store.poll(known.as_ref()).await?;
        let Poll {
            sent, time, table, ..
        } = poll;
        if let Some(table) = table {
            shared.put_stored(table, poll.known.had_changes());
        }
        *known = Some(poll.known);
        // Last: the keys count as fresh only when they are in force.
        shared.clock.set(sent, time);
        Ok(())
    }

    /// Keeps the keys up to date until shutdown. Requests in flight do not need them, so it does
    /// not outlive the call to stop.
    pub(crate) async fn follow(self: Arc<Self>, shared: Arc<Shared>, stop: CancellationToken) {
        let follow = async {
            let mut ticks = tokio::time::interval(INTERVAL);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            let mut failed = false;
            loop {
                ticks.tick().await;
                let refreshed = self.refresh(&shared).await;
                match &refreshed {
                    Ok(()) if failed => tracing::info!("the keys of the fleet are up to date"),
                    Err(error) if !failed => tracing::error!(
                        %error,
                        "cannot read the keys of the fleet; stored keys are refused after \
                         `fleet.keys_max_age`"
                    ),
                    _ => {}
                }
                failed = refreshed.is_err();
            }
        };
        let _: Option<()> = stop.run_until_cancelled(follow).await;
    }
}
