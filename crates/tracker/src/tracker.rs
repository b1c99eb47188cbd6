//! A tracker from start to end.

use crate::config::TrackerConfig;
use crate::error::Error;
use crate::forward::{Asker, Forwarding, HttpAsker, Station, UdpAsker};
use crate::forwarders::{self, Forwarder};
use crate::plane::{Plane, Shared};
use crate::serve::{self, Serving};
use crate::snapshot;
use crate::stats::Collector;
use headworks_service::metrics::Collect;
use headworks_service::outbound::Outbound;
use headworks_service::shutdown::Shutdown;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// How often peers are looked for that were not heard of.
const PURGE: Duration = Duration::from_secs(60);
/// How long forwards that run may take when the program ends.
const GRACE: Duration = Duration::from_secs(5);

/// A tracker at work. It ends with the [`Shutdown`] that it was started under.
pub struct Tracker {
    plane: Arc<Plane>,
    http: Vec<SocketAddr>,
    udp: Vec<SocketAddr>,
}

impl Tracker {
    /// Binds its addresses, reads the list of forwarders and starts to serve. Call it inside a tokio runtime.
    ///
    /// # Errors
    /// When an address is taken or the list cannot be used.
    pub fn start(
        config: &TrackerConfig,
        outbound: Outbound,
        shutdown: &Shutdown,
    ) -> Result<Tracker, Error> {
        let list = listed(config)?;
        let shared = Arc::new(Shared::new(config.clone()));
        let stations: Vec<Station> = list.iter().filter_map(Station::new).collect();
        let forwarding = if stations.is_empty() {
            None
        } else {
            let asker = Asker {
                http: HttpAsker { outbound },
                udp: UdpAsker::new().map_err(Error::Threads)?,
                timeout: config.forward_timeout,
            };
            Some(Forwarding::start(&shared, stations, asker, shutdown)?)
        };
        let plane = Arc::new(Plane { shared, forwarding });
        if let Some(path) = &config.snapshot_file {
            let torrents = snapshot::load(&plane.shared, &names(&plane), path);
            tracing::info!(torrents, "loaded from the snapshot");
        }
        let serving = serve::start(&plane)?;
        let (http, udp) = (serving.http.clone(), serving.udp.clone());
        keep(&plane, serving, shutdown);
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

    /// How many forwarders it asks.
    #[must_use]
    pub fn forwarders(&self) -> usize {
        let forwarding = self.plane.forwarding.as_ref();
        forwarding.map_or(0, |forwarding| forwarding.stations.len())
    }
}

/// The forwarders of the section and of the list that it names, each address once.
fn listed(config: &TrackerConfig) -> Result<Vec<Forwarder>, Error> {
    let mut list = config.forwarders.clone();
    if let Some(path) = &config.forwarders_file {
        list.extend(forwarders::read(path)?);
    }
    let mut seen = std::collections::HashSet::new();
    list.retain(|forwarder| seen.insert((forwarder.uri.reveal().to_owned(), forwarder.ip)));
    list.truncate(usize::from(u16::MAX));
    Ok(list)
}

/// The forwarders' names, in order.
fn names(plane: &Plane) -> Vec<String> {
    let stations = plane.forwarding.iter();
    let stations = stations.flat_map(|forwarding| forwarding.stations.iter());
    stations.map(|station| station.name.clone()).collect()
}

fn save(plane: &Plane) {
    if let Some(path) = &plane.shared.config.snapshot_file
        && let Err(error) = snapshot::save(&plane.shared, &names(plane), path)
    {
        tracing::error!(path = %path.display(), %error, "the snapshot cannot be written");
    }
}

/// Purges and saves now and then, and ends everything in order: no more requests, then no more forwards.
fn keep(plane: &Arc<Plane>, serving: Serving, shutdown: &Shutdown) {
    let (plane, stop) = (plane.clone(), shutdown.token());
    shutdown.spawn("tracker", async move {
        let mut saves = tokio::time::interval(plane.shared.config.snapshot_interval);
        saves.reset();
        let mut purges = tokio::time::interval(PURGE);
        loop {
            let at_work = plane.clone();
            let work: fn(&Plane) = tokio::select! {
                () = stop.cancelled() => break,
                _ = purges.tick() => |plane| plane.shared.purge(),
                _ = saves.tick() => save,
            };
            let _ = tokio::task::spawn_blocking(move || work(&at_work)).await;
        }
        let _ = tokio::task::spawn_blocking(move || serving.stop()).await;
        if let Some(forwarding) = &plane.forwarding {
            forwarding.pool.clone().shutdown(GRACE).await;
        }
        let _ = tokio::task::spawn_blocking(move || save(&plane)).await;
    });
}
