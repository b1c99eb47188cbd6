//! Synthetic but real work for all applications: something to watch before there is traffic.
//!
//! Clients in this process send requests to the gateway and announces to the tracker over loopback,
//! and the console's synthetic migration is started. `headworks up --demo` also writes a
//! configuration of its own, with tenants, keys and forwarders that misbehave ([`DemoFiles`]). The
//! load is bounded: it ends after [`LENGTH`], with the panel's action *Stop*, or with the process.

mod chat;
mod files;
mod forwarders;
mod panel;
mod swarm;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use headworks_service::panel::{Args, Panel};
use headworks_service::shutdown::Shutdown;
use tokio_util::sync::CancellationToken;

pub(crate) use files::DemoFiles;
use forwarders::Forwarder;

/// The length of a demo.
const LENGTH: Duration = Duration::from_secs(15 * 60);

/// The parts of the program that a demo uses. Each may be missing: an application may not have
/// started.
#[derive(Clone, Default)]
pub(crate) struct Targets {
    gateway: Option<SocketAddr>,
    tracker: Option<SocketAddr>,
    /// The console's panel of migrations, which starts a synthetic one.
    pub(crate) migrations: Option<Arc<dyn Panel>>,
}

impl Targets {
    /// Notes the address of an application.
    pub(crate) fn set(&mut self, application: &str, http: Option<SocketAddr>) {
        match application {
            "gateway" => self.gateway = http,
            "tracker" => self.tracker = http,
            _ => {}
        }
    }
}

/// Counters of what was sent. They only grow.
#[derive(Default)]
struct Counts {
    chat: AtomicU64,
    batch: AtomicU64,
    rejected: AtomicU64,
    announces: AtomicU64,
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// A demo, running or not.
pub(crate) struct Demo {
    targets: Targets,
    keys: Option<chat::Keys>,
    forwarders: Mutex<Vec<Forwarder>>,
    counts: Arc<Counts>,
    shutdown: Shutdown,
    /// The load that runs, and when it ends by itself.
    running: Mutex<Option<(CancellationToken, Instant)>>,
}

impl Demo {
    /// A demo of these targets; with `files`, of the configuration that they contain.
    pub(crate) fn new(
        targets: Targets,
        files: Option<&mut DemoFiles>,
        shutdown: &Shutdown,
    ) -> Arc<Demo> {
        let (keys, forwarders) = files.map(DemoFiles::take).unzip();
        Arc::new(Demo {
            targets,
            keys,
            forwarders: Mutex::new(forwarders.unwrap_or_default()),
            counts: Arc::default(),
            shutdown: shutdown.clone(),
            running: Mutex::default(),
        })
    }

    /// The console's panel.
    pub(crate) fn panel(self: &Arc<Self>) -> Arc<dyn Panel> {
        Arc::new(panel::DemoPanel(self.clone()))
    }

    /// Starts the load, unless it runs. Returns whether it was started.
    pub(crate) async fn start(&self) -> bool {
        let stop = self.shutdown.token().child_token();
        {
            let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
            if running
                .as_ref()
                .is_some_and(|(stop, _)| !stop.is_cancelled())
            {
                return false;
            }
            *running = Some((stop.clone(), Instant::now() + LENGTH));
        }
        // Forwarders live on after a stop: the tracker goes on asking them.
        let forwarders = std::mem::take(
            &mut *self
                .forwarders
                .lock()
                .unwrap_or_else(PoisonError::into_inner),
        );
        for forwarder in forwarders {
            self.spawn("demo forwarder", &self.shutdown.token(), forwarder.serve());
        }
        if let Some(gateway) = self.targets.gateway {
            for client in chat::clients(loopback(gateway), self.keys.as_ref(), &self.counts) {
                self.spawn("demo client", &stop, client);
            }
        }
        if let Some(tracker) = self.targets.tracker {
            let swarm = swarm::announce(loopback(tracker), self.counts.clone());
            self.spawn("demo swarm", &stop, swarm);
        }
        let timeout = stop.clone();
        self.spawn("demo timeout", &stop, async move {
            tokio::time::sleep(LENGTH).await;
            timeout.cancel();
        });
        if let Some(migrations) = &self.targets.migrations
            && let Err(error) = migrations.act("start-synthetic", &Args::new()).await
        {
            tracing::warn!(%error, "the demo's migration did not start");
        }
        true
    }

    /// Stops the load. Returns whether it ran.
    fn stop(&self) -> bool {
        match self.running() {
            Some((stop, _)) => {
                stop.cancel();
                true
            }
            None => false,
        }
    }

    /// The load that runs, and when it ends.
    fn running(&self) -> Option<(CancellationToken, Instant)> {
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        running.clone().filter(|(stop, _)| !stop.is_cancelled())
    }

    fn spawn(
        &self,
        name: &str,
        stop: &CancellationToken,
        work: impl Future<Output = ()> + Send + 'static,
    ) {
        let stop = stop.clone();
        self.shutdown.spawn(name, async move {
            stop.run_until_cancelled(work).await;
        });
    }
}

/// An address to connect to: a listener on all addresses is reached on loopback.
fn loopback(address: SocketAddr) -> SocketAddr {
    match address.ip().is_unspecified() {
        true => SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), address.port()),
        false => address,
    }
}
