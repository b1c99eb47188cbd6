//! The running gateway: its listener, its background tasks and its reload.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use headworks_service::outbound::Outbound;
use headworks_service::reload::Reloader;
use headworks_service::shutdown::Shutdown;
use jiff::Timestamp;
use tokio_util::sync::CancellationToken;

use crate::config::GatewayConfig;
use crate::error::Error;
use crate::fleet::{self, FleetConfig, FleetStores, Secrets};
use crate::front::{self, Listener};
use crate::key_file_watch;
use crate::shared::Shared;

/// Interval between writes of usage and of the request log.
const FLUSH_INTERVAL: Duration = Duration::from_secs(5);
/// The same in a fleet, whose quotas hold as exactly as this is short.
const FLEET_FLUSH_INTERVAL: Duration = Duration::from_secs(1);
/// The same during shutdown, which may end at any moment.
const LAST_FLUSH_INTERVAL: Duration = Duration::from_millis(500);

/// A running gateway. It stops with the [`Shutdown`] that it was started under.
///
/// ```
/// # use headworks_gateway::{Gateway, GatewayConfig};
/// # use headworks_service::outbound::{Outbound, OutboundConfig};
/// # use headworks_service::shutdown::Shutdown;
/// # use std::{sync::Arc, time::Duration};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let mut config = GatewayConfig::default();
/// config.listen = "127.0.0.1:0".parse()?;
/// let outbound = Outbound::new(&OutboundConfig::default())?;
/// let shutdown = Shutdown::new();
/// let gateway = Gateway::start(&Arc::new(config), outbound, &shutdown)?;
/// assert_ne!(gateway.address().port(), 0);
/// assert!(shutdown.drain(Duration::from_secs(5)).await.unfinished.is_empty());
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Gateway {
    pub(crate) shared: Arc<Shared>,
    address: SocketAddr,
}

impl Gateway {
    /// Starts the gateway on the current tokio runtime.
    ///
    /// # Errors
    /// If the address cannot be bound, or the keys, the usage file or the request log cannot be
    /// used.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn start(
        config: &Arc<GatewayConfig>,
        outbound: Outbound,
        shutdown: &Shutdown,
    ) -> Result<Gateway, Error> {
        let shared = Shared::new(config, None, None, outbound)?;
        Gateway::serve(shared, config.listen, shutdown)
    }

    /// Starts the gateway as one of several that share limits, and with PostgreSQL also keys and
    /// usage, if `fleet` names a server. A server that cannot be reached now is tried again: until
    /// then, requests wait, and stored keys are refused.
    ///
    /// # Errors
    /// As [`start`](Self::start), and if the shared server rejects the connection, belongs to
    /// something else, or needs a newer program. `secrets` has the password for it.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub async fn start_in_fleet(
        config: &Arc<GatewayConfig>,
        fleet: &Arc<FleetConfig>,
        secrets: Secrets,
        outbound: Outbound,
        shutdown: &Shutdown,
    ) -> Result<Gateway, Error> {
        let stores = FleetStores::open(config, fleet, secrets.clone())?;
        let fleet = fleet.url.is_some().then_some((fleet, secrets));
        let shared = Shared::new(config, fleet, stores, outbound)?;
        let Some(fleet) = shared.fleet.clone() else {
            return Gateway::serve(shared, config.listen, shutdown);
        };
        let joined = fleet::join(&fleet).await?;
        let gateway = Gateway::serve(shared.clone(), config.listen, shutdown)?;
        fleet::start(&shared, &fleet, joined, shutdown);
        Ok(gateway)
    }

    fn serve(
        shared: Arc<Shared>,
        address: SocketAddr,
        shutdown: &Shutdown,
    ) -> Result<Gateway, Error> {
        let listener = Listener::bind(address)?;
        let gateway = Gateway {
            shared: shared.clone(),
            address: listener.address,
        };
        let stop = || shutdown.token();
        shutdown.spawn("gateway listener", listen(listener, shared.clone(), stop()));
        shutdown.spawn("gateway usage", flush_periodically(shared.clone(), stop()));
        shutdown.spawn(
            "gateway time rules",
            apply_time_rules(shared.clone(), stop()),
        );
        if let Some(keys) = shared.fleet_keys.clone() {
            shutdown.spawn("gateway keys", keys.follow(shared.clone(), stop()));
        } else {
            let watch = key_file_watch::follow(shared.clone(), stop());
            shutdown.spawn("gateway key file", watch);
        }
        shutdown.spawn("gateway queue", drain(shared, stop()));
        Ok(gateway)
    }

    /// The address that the gateway listens on. With port 0 configured, this is the port chosen by
    /// the system.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Whether a request needs a key.
    #[must_use]
    pub fn requires_key(&self) -> bool {
        !self.shared.active.load().keys.is_open()
    }

    /// Applies a new configuration without dropping a connection.
    ///
    /// # Errors
    /// If the configuration cannot be used. The previous one then stays in force.
    pub fn apply(&self, config: Arc<GatewayConfig>) -> Result<(), Error> {
        self.shared.apply(config, self.address).map(drop)
    }

    /// Applies every configuration that the reloader loads from now on.
    pub fn follow(&self, reloader: &Reloader) {
        let gateway = self.clone();
        reloader.on_reload(move |config| {
            let section = config.section::<GatewayConfig>();
            let applied = gateway.shared.apply(section, gateway.address);
            let keeps = |error| format!("the gateway keeps its previous configuration: {error}");
            let before = applied.map_err(keeps)?;
            let shared = gateway.shared.clone();
            Ok(Box::new(move || shared.restore(before)))
        });
    }

    /// Whether requests can be granted: always, unless this process waits for its share of a
    /// fleet's limits.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.shared.is_ready()
    }

    /// Number of responses in flight.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.shared.idle_timeouts.len()
    }

    /// Number of requests that hold a slot, and number of requests that wait for one.
    #[must_use]
    pub fn running_and_waiting(&self) -> (u64, u64) {
        let view = self.shared.permits.inspect();
        (view.running, view.waiting + view.delayed)
    }

    /// The classes and the tenants that have requests waiting, as their numbers.
    #[must_use]
    pub fn backlogged(&self) -> (usize, usize) {
        let classes = self.shared.permits.inspect().classes;
        let classes = classes.iter().filter(|class| class.waiting > 0);
        let flows = self.shared.permits.flows();
        let tenants = flows.iter().filter(|flow| flow.waiting > 0);
        (classes.count(), tenants.count())
    }
}

/// Serves clients until shutdown. The idle check runs until the last response has ended: a response
/// that its client never reads would otherwise hold up the shutdown.
async fn listen(listener: Listener, shared: Arc<Shared>, stop: CancellationToken) {
    let draining = stop.clone();
    tokio::select! {
        () = front::serve(listener, shared.clone(), stop) => {}
        () = shared.idle_timeouts.run() => {}
        () = flush_while_draining(&shared, draining) => {}
    }
    // Only now are all requests settled, so this is the last write of usage.
    flush_usage(&shared).await;
}

/// Writes usage and the request log periodically until shutdown.
async fn flush_periodically(shared: Arc<Shared>, stop: CancellationToken) {
    let interval = match shared.fleet_keys {
        Some(_) => FLEET_FLUSH_INTERVAL,
        None => FLUSH_INTERVAL,
    };
    while stop
        .run_until_cancelled(tokio::time::sleep(interval))
        .await
        .is_some()
    {
        flush_usage(&shared).await;
    }
}

/// Writes usage during shutdown, without end: a response that outlives the grace period is cut off,
/// and must not take the usage of all others with it.
async fn flush_while_draining(shared: &Arc<Shared>, stop: CancellationToken) {
    stop.cancelled().await;
    loop {
        flush_usage(shared).await;
        tokio::time::sleep(LAST_FLUSH_INTERVAL).await;
    }
}

async fn flush_usage(shared: &Arc<Shared>) {
    if shared.log.is_some() {
        let state = shared.clone();
        let flushed = tokio::task::spawn_blocking(move || {
            if let Some(log) = &state.log {
                log.flush();
            }
        });
        // It reports its errors itself.
        let _ = flushed.await;
    }
    let flushed = shared
        .ledger
        .flush(shared.budgeted_tenants(), shared.today())
        .await;
    let failed = flushed.is_err();
    let failed_before = shared.usage_failed.swap(failed, Ordering::Relaxed);
    match flushed {
        // Once per outage: a fleet tries again every second.
        Err(error) if !failed_before => {
            tracing::error!(%error, "cannot write usage; it is kept in memory");
        }
        Ok(()) if failed_before => tracing::info!("usage is written again"),
        _ => {}
    }
}

/// Reconfigures the scheduler whenever a time rule begins or ends.
async fn apply_time_rules(shared: Arc<Shared>, stop: CancellationToken) {
    let follow = async {
        loop {
            let now = Timestamp::now();
            let active = shared.active.load_full();
            tokio::select! {
                // A reload applies the rules that hold now, so only the timer has to be set anew.
                () = shared.changed.notified() => continue,
                () = sleep_until(active.next_change(now), now) => {}
            }
            let before = active.rules_in_force(now);
            let after = active.rules_in_force(Timestamp::now());
            if before != after {
                tracing::info!(rules = ?after, "time rules changed");
                shared.refresh();
            }
        }
    };
    let _: Option<()> = stop.run_until_cancelled(follow).await;
}

/// Sleeps until `next`, or for at most a minute: the system clock may be set in the meantime, so
/// the caller compares again. Sleeps forever if there is no `next`.
async fn sleep_until(next: Option<Timestamp>, now: Timestamp) {
    const RECHECK_INTERVAL: Duration = Duration::from_secs(60);
    let Some(next) = next else {
        return std::future::pending().await;
    };
    let left = Duration::try_from(next.duration_since(now)).unwrap_or_default();
    tokio::time::sleep(left.min(RECHECK_INTERVAL)).await;
}

/// Rejects all queued requests at shutdown and waits for the running ones.
async fn drain(shared: Arc<Shared>, stop: CancellationToken) {
    stop.cancelled().await;
    // The shutdown has its own deadline; this timeout only has to be longer.
    shared
        .permits
        .clone()
        .shutdown(Duration::from_secs(24 * 3600))
        .await;
}
