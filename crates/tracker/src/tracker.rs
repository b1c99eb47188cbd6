//! A tracker from start to end.

use crate::config::TrackerConfig;
use crate::error::Error;
use crate::forward::{Asker, Background, Forwarding};
use crate::metrics::Collector;
use crate::panel::TrackerPanel;
use crate::plan::Plan;
use crate::plane::{Plane, Shared};
use crate::serve::{self, Serving};
use crate::snapshot;
use headworks_service::config::Secret;
use headworks_service::metrics::Collect;
use headworks_service::outbound::Outbound;
use headworks_service::panel::{EnginePanel, Panel};
use headworks_service::reload::Reloader;
use headworks_service::shutdown::Shutdown;
use headworks_service::token::Door;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// How often peers are looked for that were not heard of.
const PURGE: Duration = Duration::from_secs(60);
/// How long forwards that run may take when the program ends.
const GRACE: Duration = Duration::from_secs(5);

/// A tracker at work. It ends with the [`Shutdown`] that it was started under. Clones are handles
/// on the same one.
#[derive(Clone)]
pub struct Tracker {
    plane: Arc<Plane>,
    http: Vec<SocketAddr>,
    udp: Vec<SocketAddr>,
}

impl Tracker {
    /// Binds its addresses, reads the lists and starts to serve. Call it inside a tokio runtime.
    ///
    /// # Errors
    /// When an address is taken or a list cannot be used.
    pub fn start(
        config: &TrackerConfig,
        outbound: Outbound,
        shutdown: &Shutdown,
    ) -> Result<Tracker, Error> {
        let shared = Arc::new(Shared::new(Plan::new(config, &[])?));
        let behind = Background::new().map_err(Error::Threads)?;
        let entered = behind.enter();
        let forwarding = Forwarding::start(&shared, Asker::new(outbound)?, shutdown)?;
        drop(entered);
        let plane = Arc::new(Plane { shared, forwarding });
        if let Some(path) = &config.snapshot_file {
            let torrents =
                snapshot::load(&plane.shared, &names(&plane), path).map_err(|cause| {
                    Error::Snapshot {
                        path: path.clone(),
                        cause,
                    }
                })?;
            tracing::info!(torrents, "loaded from the snapshot");
        }
        let serving = serve::start(&plane)?;
        let (http, udp) = (serving.http.clone(), serving.udp.clone());
        keep(&plane, serving, behind, config, shutdown);
        Ok(Tracker { plane, http, udp })
    }

    /// Where announces over HTTP are taken.
    #[must_use]
    pub fn http(&self) -> &[SocketAddr] {
        &self.http
    }

    /// Where announces over UDP are taken.
    #[must_use]
    pub fn udp(&self) -> &[SocketAddr] {
        &self.udp
    }

    /// Its numbers, for the admin listener.
    #[must_use]
    pub fn collector(&self) -> Arc<dyn Collect> {
        Arc::new(Collector(self.plane.clone()))
    }

    /// What it shows of itself.
    #[must_use]
    pub fn panel(&self) -> Arc<dyn Panel> {
        Arc::new(TrackerPanel::new(self.plane.clone()))
    }

    /// What the engine of its forwards shows of itself.
    #[must_use]
    pub fn engine(&self) -> Arc<dyn Panel> {
        let plane = self.plane.clone();
        let view = move || plane.forwarding.pool().inspect();
        Arc::new(EnginePanel::new("tracker-engine", "Tracker's engine", view))
    }

    /// How many forwarders it asks.
    #[must_use]
    pub fn forwarders(&self) -> usize {
        self.plane.shared.plan().forwarders().count()
    }

    /// Shows clients' addresses on `/stats` to whoever has `token`. Without it, nobody sees them
    /// there.
    ///
    /// # Errors
    /// When the system gives no random numbers.
    pub fn show_clients_to(&self, token: &Secret) -> Result<(), Error> {
        let door = Door::new(Some(token))?;
        let _ = self.plane.shared.door.set(door);
        Ok(())
    }

    /// Puts a new configuration in force, with the lists that it names, without dropping a
    /// connection. Keys that only count from the next start stay as they were.
    ///
    /// # Errors
    /// When it cannot be; then nothing has changed.
    pub fn apply(&self, config: &TrackerConfig) -> Result<(), Error> {
        let plan = Plan::new(config, &self.plane.shared.plan().stations)?;
        self.take(Arc::new(plan)).map(drop)
    }

    /// Puts a plan in force, and says which one was.
    fn take(&self, plan: Arc<Plan>) -> Result<Arc<Plan>, Error> {
        let Plane { shared, forwarding } = &*self.plane;
        forwarding.make_room(&plan)?;
        let before = shared.plan.swap(plan);
        shared.swarms.all_due();
        forwarding.watch.look();
        Ok(before)
    }

    /// Follows the configuration as it is reloaded.
    pub fn follow(&self, reloader: &Reloader) {
        let tracker = self.clone();
        reloader.follow(move |config| {
            let stations = &tracker.plane.shared.plan().stations;
            let plan = Plan::new(&config.section::<TrackerConfig>(), stations);
            let taken = plan.and_then(|plan| tracker.take(Arc::new(plan)));
            let keeps = |error| format!("the tracker keeps its configuration: {error}");
            let before = taken.map_err(keeps)?;
            let tracker = tracker.clone();
            Ok(Box::new(move || {
                if let Err(error) = tracker.take(before) {
                    tracing::error!(%error, "the tracker's plan from before cannot be put back");
                }
            }))
        });
    }
}

/// The forwarders' names, in their places.
fn names(plane: &Plane) -> Vec<String> {
    let plan = plane.shared.plan();
    plan.stations.iter().map(|s| s.name.clone()).collect()
}

fn save(plane: &Plane, path: &Path) {
    if let Err(error) = snapshot::save(&plane.shared, &names(plane), path) {
        tracing::error!(path = %path.display(), %error, "the snapshot cannot be written");
    }
}

/// Purges and saves now and then, and ends everything in order: no more requests, then no more
/// forwards.
fn keep(
    plane: &Arc<Plane>,
    serving: Serving,
    behind: Background,
    config: &TrackerConfig,
    shutdown: &Shutdown,
) {
    let (plane, stop) = (plane.clone(), shutdown.token());
    let path = config.snapshot_file.as_deref().map(Arc::<Path>::from);
    let mut saves = tokio::time::interval(config.snapshot_interval);
    saves.reset();
    shutdown.spawn("tracker", async move {
        let mut purges = tokio::time::interval(PURGE);
        loop {
            let (at_work, path) = (plane.clone(), path.clone());
            let work = tokio::select! {
                () = stop.cancelled() => break,
                _ = purges.tick() => tokio::task::spawn_blocking(move || at_work.shared.purge()),
                _ = saves.tick(), if path.is_some() => tokio::task::spawn_blocking(move || {
                    path.iter().for_each(|path| save(&at_work, path));
                }),
            };
            let _ = work.await;
        }
        let _ = tokio::task::spawn_blocking(move || serving.stop()).await;
        plane.forwarding.shutdown(GRACE).await;
        drop(behind);
        if let Some(path) = path {
            let _ = tokio::task::spawn_blocking(move || save(&plane, &path)).await;
        }
    });
}
