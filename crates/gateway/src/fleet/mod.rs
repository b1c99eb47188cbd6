//! A gateway that shares its limits with others: several processes, one set of limits.
//!
//! Everything on the path of a request stays local. One task per process reports its demand four
//! times per second, and receives its share of every limit, through the limit exchange of
//! `headworks-fleet`. The process that holds the lease divides the limits, with the allocator of
//! `headworks_core::shares`.
//!
//! | module | contents |
//! |---|---|
//! | [`state`] | the share of this process, and what the rest of the gateway asks |
//! | [`task`] | the task: exchange, leave, rejoin |
//! | [`allocator`] | drives the allocator while this process holds the lease |
//! | [`wire`], [`names`] | messages, and the translation of names to numbers |
//! | [`facts`] | what all nodes know: suspensions, learned limits, overrides, time rules |
//! | [`hints`] | which hints of upstreams the allocator has counted |
//! | [`status`] | the fleet for people: command, console, metrics |
//! | [`stores`], [`keys`] | keys and usage in the shared database |
//! | [`clock`] | the age of what is known of the shared keys |

mod admin;
mod allocator;
mod clock;
mod config;
mod connection;
pub(crate) mod facts;
mod hints;
mod keys;
mod names;
mod outbox;
mod state;
mod status;
mod stores;
mod task;
mod wire;

pub use admin::FleetAdmin;
pub use config::{FleetConfig, OnLossName};
pub use headworks_fleet::Secrets;
pub use status::{FleetStatus, LimitShare, NodeStatus};
pub use stores::{open_key_store, open_usage_store};

pub(crate) use clock::KeyClock;
pub(crate) use keys::FleetKeys;
pub(crate) use state::Fleet;
pub(crate) use stores::FleetStores;

use std::sync::Arc;

use headworks_service::shutdown::Shutdown;

use crate::shared::Shared;
use connection::Connection;

/// The first attempt to join.
pub(crate) struct Joined(Option<Connection>);

/// Joins before the gateway starts. A server that cannot be reached now is tried again later.
///
/// # Errors
/// When the server rejects the connection, belongs to something else or needs a newer program.
pub(crate) async fn join(fleet: &Fleet) -> headworks_fleet::Result<Joined> {
    match Connection::open(fleet).await {
        Ok(connection) => Ok(Joined(connection)),
        Err(error) if error.is_temporary() => {
            tracing::warn!(
                %error,
                "cannot join the fleet yet: requests wait until it can be reached"
            );
            Ok(Joined(None))
        }
        Err(error) => Err(error),
    }
}

/// Spawns the tasks.
pub(crate) fn start(shared: &Arc<Shared>, fleet: &Arc<Fleet>, joined: Joined, shutdown: &Shutdown) {
    shutdown.spawn(
        "gateway fleet",
        task::run(shared.clone(), fleet.clone(), joined.0, shutdown.token()),
    );
    shutdown.spawn(
        "gateway fleet deadline",
        task::watch_deadline(shared.clone(), fleet.clone(), shutdown.token()),
    );
}
