//! The running gateway: its listener, its background tasks and its reload.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use headworks_service::outbound::Outbound;
use headworks_service::reload::Reloader;
use headworks_service::shutdown::Shutdown;
use jiff::Timestamp;
use tokio_util::sync::CancellationToken;

use crate::config::GatewayConfig;
use crate::error::Error;
use crate::front::{self, Listener};
use crate::shared::Shared;

/// Interval between writes of usage and of the request log.
const FLUSH_INTERVAL: Duration = Duration::from_secs(5);

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
        let address = config.listen;
        let shared = Shared::new(config, outbound)?;
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
        shutdown.spawn("gateway queue", drain(shared, stop()));
        Ok(gateway)
    }

    /// The address that the gateway listens on. With port 0 configured, this is the port chosen by
    /// the system.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
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
}

/// Serves clients until shutdown. The idle check runs until the last response has ended: a response
/// that its client never reads would otherwise hold up the shutdown.
async fn listen(listener: Listener, shared: Arc<Shared>, stop: CancellationToken) {
    tokio::select! {
        () = front::serve(listener, shared.clone(), stop) => {}
        () = shared.idle_timeouts.run() => {}
    }
    // Only now are all requests settled, so this is the last write of usage.
    flush_usage(&shared).await;
}

/// Writes usage and the request log periodically. `listen` does the last write.
async fn flush_periodically(shared: Arc<Shared>, stop: CancellationToken) {
    while stop
        .run_until_cancelled(tokio::time::sleep(FLUSH_INTERVAL))
        .await
        .is_some()
    {
        flush_usage(&shared).await;
    }
}

async fn flush_usage(shared: &Arc<Shared>) {
    let state = shared.clone();
    let written = tokio::task::spawn_blocking(move || {
        if let Some(log) = &state.log {
            log.flush();
        }
        state.ledger.flush()
    });
    if let Ok(Err(error)) = written.await {
        tracing::error!(%error, "cannot write usage; it is kept in memory");
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
