//! The tracker: starts every part, applies configurations and stops in order.

use crate::active_config::ActiveConfig;
use crate::announce::AnnounceHandler;
use crate::client::TrackerClient;
use crate::config::TrackerConfig;
use crate::counters::Counters;
use crate::descriptors::Descriptors;
use crate::error::Error;
use crate::forward::{ForwardRuntime, Forwarding};
use crate::metrics::TrackerCollector;
use crate::panel::TrackerPanel;
use crate::serve::{self, Server};
use crate::snapshot;
use crate::state::TrackerState;
use crate::subscriptions::{DueLists, Subscriptions};
use futures_util::stream::{self, StreamExt};
use headworks_service::authenticator::Authenticator;
use headworks_service::config::Secret;
use headworks_service::metrics::Collect;
use headworks_service::outbound::Outbound;
use headworks_service::panel::{EnginePanel, Panel};
use headworks_service::reload::Reloader;
use headworks_service::shutdown::Shutdown;
use parking_lot::Mutex;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The time between two searches for expired peers.
const PURGE_INTERVAL: Duration = Duration::from_secs(60);
/// The number of lists that are fetched at once.
const FETCHES: usize = 8;
/// The time that running forwards have to finish at shutdown.
const GRACE: Duration = Duration::from_secs(5);

/// A handle on a running tracker, which stops with the [`Shutdown`] that it was started under.
/// Clones are handles on the same tracker.
#[derive(Clone)]
pub struct Tracker {
    announces: Arc<AnnounceHandler>,
    subscriptions: Arc<Subscriptions>,
    lost_snapshot: Arc<AtomicBool>,
    /// Held from reading the active configuration to its replacement: a reload and a fetched list
    /// must not undo each other.
    apply_lock: Arc<Mutex<()>>,
    http: Vec<SocketAddr>,
    udp: Vec<SocketAddr>,
}

impl Tracker {
    /// Binds the listening addresses, reads the lists and starts to serve. Call it inside a tokio
    /// runtime.
    ///
    /// # Errors
    /// When an address is in use, or a list or the snapshot cannot be used.
    pub fn start(
        config: &TrackerConfig,
        outbound: Outbound,
        shutdown: &Shutdown,
    ) -> Result<Tracker, Error> {
        let descriptors = Descriptors::for_config(config)?;
        let config = &TrackerConfig {
            max_connections: descriptors.connections,
            ..config.clone()
        };
        let subscriptions = Arc::new(Subscriptions::open(config));
        let active = ActiveConfig::new(config, &subscriptions, &[])?;
        let state = Arc::new(TrackerState::new(active));
        let runtime = ForwardRuntime::new().map_err(Error::Threads)?;
        // Everything that forwards spawn runs on their own low-priority runtime.
        let entered = runtime.enter();
        let client = TrackerClient::new(outbound.clone())?;
        let forwarding = Forwarding::start(&state, client, descriptors.requests, shutdown)?;
        drop(entered);
        let announces = Arc::new(AnnounceHandler { state, forwarding });
        if let Some(path) = &config.snapshot_file {
            let names = forwarder_names(&announces);
            let torrents = snapshot::load(&announces.state, &names, path);
            let torrents = torrents.map_err(|cause| Error::Snapshot {
                path: path.clone(),
                cause,
            })?;
            announces.forwarding.arm_all();
            tracing::info!(torrents, "snapshot loaded");
        }
        let entered = runtime.enter();
        let server = serve::start(&announces)?;
        drop(entered);
        let (http, udp) = (server.http.clone(), server.udp.clone());
        let lost_snapshot = Arc::<AtomicBool>::default();
        let lost = lost_snapshot.clone();
        spawn_maintenance(&announces, server, runtime, config, lost, shutdown);
        let tracker = Tracker {
            announces,
            subscriptions,
            lost_snapshot,
            apply_lock: Arc::default(),
            http,
            udp,
        };
        tracker.spawn_refresh(outbound, shutdown);
        Ok(tracker)
    }

    /// Returns the addresses for announces over HTTP.
    #[must_use]
    pub fn http(&self) -> &[SocketAddr] {
        &self.http
    }

    /// Returns the addresses for announces over UDP.
    #[must_use]
    pub fn udp(&self) -> &[SocketAddr] {
        &self.udp
    }

    /// Returns the metrics for the admin listener.
    #[must_use]
    pub fn collector(&self) -> Arc<dyn Collect> {
        Arc::new(TrackerCollector(self.announces.clone()))
    }

    /// Returns the panel of the tracker.
    #[must_use]
    pub fn panel(&self) -> Arc<dyn Panel> {
        Arc::new(TrackerPanel::new(self.announces.clone()))
    }

    /// Returns the panel of the pool that sends the forwards.
    #[must_use]
    pub fn engine(&self) -> Arc<dyn Panel> {
        let announces = self.announces.clone();
        let view = move || announces.forwarding.pool().inspect();
        Arc::new(EnginePanel::new("tracker-engine", "Tracker's engine", view))
    }

    /// Returns the number of listed forwarders.
    #[must_use]
    pub fn forwarders(&self) -> usize {
        let active = self.announces.state.active();
        active.listed_forwarders().count()
    }

    /// Whether the snapshot at shutdown could not be written.
    #[must_use]
    pub fn lost_snapshot(&self) -> bool {
        self.lost_snapshot.load(Ordering::Relaxed)
    }

    /// Shows clients' addresses on `/stats` for requests with `token`. Without a token they are
    /// never shown.
    ///
    /// # Errors
    /// When the system has no random numbers.
    pub fn show_clients_to(&self, token: &Secret) -> Result<(), Error> {
        let auth = Authenticator::new(Some(token))?;
        let _ = self.announces.state.client_auth.set(auth);
        Ok(())
    }

    /// Applies a new configuration and the lists that it names, without dropping a connection. Keys
    /// that need a restart keep their values.
    ///
    /// # Errors
    /// When the configuration cannot be applied. The old one then stays active.
    pub fn apply(&self, config: &TrackerConfig) -> Result<(), Error> {
        let _applying = self.apply_lock.lock();
        self.replace(config).map(drop)
    }

    /// Makes the active configuration from `config`, and returns the previous one. The caller holds
    /// the lock.
    fn replace(&self, config: &TrackerConfig) -> Result<Arc<ActiveConfig>, Error> {
        let before = &self.announces.state.active().forwarders;
        let active = ActiveConfig::new(config, &self.subscriptions, before)?;
        self.activate(Arc::new(active))
    }

    /// Applies the fetched lists with the configuration that is active by now: it may have been
    /// reloaded while they were fetched.
    fn apply_lists(&self) -> Result<(), Error> {
        let _applying = self.apply_lock.lock();
        let config = self.announces.state.active().config.clone();
        self.replace(&config).map(drop)
    }

    /// Applies the fetched lists on a thread of their own: a long list takes its time, and signals
    /// must not wait for it.
    async fn apply_fetched(self) {
        let applied = tokio::task::spawn_blocking(move || self.apply_lists()).await;
        if let Ok(Err(error)) = applied {
            tracing::error!(%error, "cannot apply a fetched list of forwarders");
        }
    }

    /// Starts the task that fetches lists of forwarders and applies those that have changed.
    fn spawn_refresh(&self, outbound: Outbound, shutdown: &Shutdown) {
        let (tracker, stop) = (self.clone(), shutdown.token());
        let counters = self.announces.state.new_counters();
        let refresh = async move {
            loop {
                let config = tracker.announces.state.active().config.clone();
                let sources: Vec<String> = config.list_sources().collect();
                let pause = tracker.fetch_lists(&sources, &outbound, &counters).await;
                tokio::select! {
                    () = tokio::time::sleep(pause) => {}
                    () = tracker.subscriptions.changed() => {}
                }
            }
        };
        shutdown.spawn("tracker: fetch lists of forwarders", async move {
            stop.run_until_cancelled(refresh).await;
        });
    }

    /// Fetches the lists that are due, several at once, and applies each when it is there: a server
    /// that does not respond must not hold up the lists of others. Returns the time until the next
    /// one is due.
    async fn fetch_lists(
        &self,
        sources: &[String],
        outbound: &Outbound,
        counters: &Counters,
    ) -> Duration {
        let every = self.announces.state.active().config.forwarder_lists_refresh;
        let DueLists {
            sources,
            changed,
            mut pause,
        } = self.subscriptions.due(sources, every);
        if changed {
            self.clone().apply_fetched().await;
        }
        let fetches: Vec<_> = (sources.iter())
            .map(|source| self.subscriptions.refresh(source, outbound, every))
            .collect();
        let mut fetches = stream::iter(fetches).buffer_unordered(FETCHES);
        while let Some(refreshed) = fetches.next().await {
            pause = pause.min(refreshed.pause);
            if refreshed.changed {
                self.clone().apply_fetched().await;
            }
            match refreshed.failed {
                true => counters.lists_failed.add(1),
                false => counters.lists_fetched.add(1),
            }
        }
        pause
    }

    /// Makes a configuration the active one and returns the previous one.
    fn activate(&self, active: Arc<ActiveConfig>) -> Result<Arc<ActiveConfig>, Error> {
        let AnnounceHandler {
            state, forwarding, ..
        } = &*self.announces;
        // The pool must know every forwarder before an announce can select it.
        forwarding.reconfigure(&active)?;
        let previous = state.active.swap(active);
        self.subscriptions.notify();
        state.swarms.mark_all_due();
        forwarding.arm_all();
        forwarding.outage.notify();
        Ok(previous)
    }

    /// Applies the configuration at every reload.
    pub fn follow(&self, reloader: &Reloader) {
        let tracker = self.clone();
        reloader.on_reload(move |config| {
            let applying = tracker.apply_lock.lock();
            let replaced = tracker.replace(&config.section::<TrackerConfig>());
            drop(applying);
            let keeps = |error| format!("the tracker keeps its configuration: {error}");
            let previous = replaced.map_err(keeps)?;
            let tracker = tracker.clone();
            Ok(Box::new(move || {
                let _applying = tracker.apply_lock.lock();
                if let Err(error) = tracker.activate(previous) {
                    tracing::error!(%error, "cannot restore the tracker's previous configuration");
                }
            }))
        });
    }
}

/// Returns the forwarders' names, by id.
fn forwarder_names(announces: &AnnounceHandler) -> Vec<String> {
    let active = announces.state.active();
    active.forwarders.iter().map(|f| f.name.clone()).collect()
}

/// Saves a snapshot. Returns whether that succeeded.
fn save(announces: &AnnounceHandler, path: &Path) -> bool {
    let names = forwarder_names(announces);
    let saved = snapshot::save(&announces.state, &names, path);
    if let Err(error) = &saved {
        tracing::error!(path = %path.display(), %error, "cannot write the snapshot");
    }
    saved.is_ok()
}

/// Starts the task that removes expired peers, writes snapshots and, at shutdown, stops the
/// announce threads before the forwards.
fn spawn_maintenance(
    announces: &Arc<AnnounceHandler>,
    server: Server,
    runtime: ForwardRuntime,
    config: &TrackerConfig,
    lost_snapshot: Arc<AtomicBool>,
    shutdown: &Shutdown,
) {
    let (announces, stop) = (announces.clone(), shutdown.token());
    let path = config.snapshot_file.as_deref().map(Arc::<Path>::from);
    let mut saves = tokio::time::interval(config.snapshot_interval);
    saves.reset();
    shutdown.spawn("tracker", async move {
        let mut purges = tokio::time::interval(PURGE_INTERVAL);
        loop {
            let (handler, path) = (announces.clone(), path.clone());
            let work = tokio::select! {
                () = stop.cancelled() => break,
                _ = purges.tick() => tokio::task::spawn_blocking(move || handler.purge()),
                _ = saves.tick(), if path.is_some() => tokio::task::spawn_blocking(move || {
                    if let Some(path) = path {
                        save(&handler, &path);
                    }
                }),
            };
            let _ = work.await;
        }
        let _ = tokio::task::spawn_blocking(move || server.stop()).await;
        announces.forwarding.shutdown(GRACE).await;
        drop(runtime);
        if let Some(path) = path {
            let saved = tokio::task::spawn_blocking(move || save(&announces, &path)).await;
            lost_snapshot.store(!saved.unwrap_or(false), Ordering::Relaxed);
        }
    });
}
