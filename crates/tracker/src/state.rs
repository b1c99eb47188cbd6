//! State shared by the announce threads, the forwards and the console.

use crate::active_config::ActiveConfig;
use crate::client_counts::ClientCounts;
use crate::clock::{Clock, Seconds};
use crate::config::{CountBy, TrackerConfig};
use crate::counters::{Counters, Totals};
use crate::log_throttle::LogThrottle;
use crate::swarms::{Swarm, Swarms};
use arc_swap::{ArcSwap, Guard};
use headworks_service::authenticator::Authenticator;
use headworks_tracker_wire::InfoHash;
use parking_lot::Mutex;
use std::net::IpAddr;
use std::sync::{Arc, OnceLock};

/// State shared by all parts of the tracker.
pub(crate) struct TrackerState {
    /// The active configuration. A reload swaps it while requests go on with the one they loaded.
    pub(crate) active: ArcSwap<ActiveConfig>,
    /// Fixed at the start, because every swarm keeps its totals in this way.
    pub(crate) count_by: CountBy,
    /// Checks who may see clients' addresses; unset until there is a token.
    pub(crate) client_auth: OnceLock<Authenticator>,
    pub(crate) clock: Clock,
    pub(crate) swarms: Swarms,
    /// The open HTTP connections per client.
    pub(crate) connections: ClientCounts,
    drops: LogThrottle,
    /// Requests with an invalid token.
    pub(crate) rejected_tokens: LogThrottle,
    /// Failures to accept a connection.
    pub(crate) accept_failures: LogThrottle,
    counters: Mutex<Vec<Arc<Counters>>>,
}

impl TrackerState {
    pub(crate) fn new(active: ActiveConfig) -> TrackerState {
        TrackerState {
            count_by: active.config.count_by,
            active: ArcSwap::from_pointee(active),
            client_auth: OnceLock::new(),
            clock: Clock::new(),
            swarms: Swarms::new(),
            connections: ClientCounts::default(),
            drops: LogThrottle::default(),
            rejected_tokens: LogThrottle::default(),
            accept_failures: LogThrottle::default(),
            counters: Mutex::default(),
        }
    }

    /// Returns the active configuration.
    pub(crate) fn active(&self) -> Guard<Arc<ActiveConfig>> {
        self.active.load()
    }

    /// Registers and returns a new set of counters. Each thread has its own, so that counting
    /// shares no cache line.
    pub(crate) fn new_counters(&self) -> Arc<Counters> {
        let counters = Arc::new(Counters::default());
        self.counters.lock().push(counters.clone());
        counters
    }

    /// Returns the sums of all threads' counters.
    pub(crate) fn totals(&self) -> Totals {
        Totals::of(&self.counters.lock())
    }

    /// Reports forwards that found the queue full.
    pub(crate) fn log_drops(&self, dropped: u64) {
        if let Some(dropped) = self.drops.note(dropped) {
            tracing::warn!(
                dropped,
                "the forward queue is full: raise `forwarder_queue_size` or list fewer forwarders"
            );
        }
    }

    /// Whether a client may store another peer in a swarm.
    pub(crate) fn has_room(&self, config: &TrackerConfig, client: IpAddr, swarm: &Swarm) -> bool {
        // Counted only if there are enough peers to exceed the limit.
        let many = swarm.local_peers() >= config.max_peers_per_client;
        self.swarms.clients.estimate(client) < config.max_torrents_per_client
            && !(many && swarm.peers_of(client, self.count_by) >= config.max_peers_per_client)
    }

    /// Removes peers that have not announced within the configured age. Returns the torrents in
    /// which others took their places among those that are announced to forwarders.
    pub(crate) fn purge(&self) -> Vec<InfoHash> {
        let age = self.active().config.age.as_secs() as Seconds;
        let before = self.clock.now().saturating_sub(age);
        let announced = self.active().announced_peers();
        self.swarms.purge(before, self.count_by, announced)
    }
}
