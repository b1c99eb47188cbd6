//! Several gateways that share one set of limits, with a real PostgreSQL and a real Valkey.

#[path = "../gateway/support/mod.rs"]
#[allow(
    dead_code,
    unused_imports,
    reason = "each test binary uses its own part of this"
)]
mod support;

mod facts;
mod leaving;
mod nodes;
mod outages;
mod start;

use std::sync::Arc;

use headworks_fleet::testing::{PostgresServer, ValkeyServer};
use headworks_gateway::{FleetAdmin, FleetConfig, FleetStatus, Gateway, Secrets};
use headworks_service::config::{Schema, Sources};
use headworks_service::outbound::{Outbound, OutboundConfig};
use headworks_service::shutdown::Shutdown;
use support::{PATIENCE, Running, Upstream};

/// A shared server.
pub(crate) trait Server {
    fn start() -> Self;
    fn url(&self) -> String;
    fn secrets() -> Secrets;
    fn pause(&self);
    fn unpause(&self);
}

impl Server for PostgresServer {
    fn start() -> Self {
        PostgresServer::start()
    }

    fn url(&self) -> String {
        PostgresServer::url(self)
    }

    fn secrets() -> Secrets {
        PostgresServer::secrets()
    }

    fn pause(&self) {
        PostgresServer::pause(self);
    }

    fn unpause(&self) {
        PostgresServer::unpause(self);
    }
}

impl Server for ValkeyServer {
    fn start() -> Self {
        ValkeyServer::start()
    }

    fn url(&self) -> String {
        ValkeyServer::url(self)
    }

    fn secrets() -> Secrets {
        ValkeyServer::secrets()
    }

    fn pause(&self) {
        ValkeyServer::pause(self);
    }

    fn unpause(&self) {
        ValkeyServer::unpause(self);
    }
}

/// Loads a `[fleet]` section.
pub(crate) fn fleet_config(toml: &str) -> Arc<FleetConfig> {
    let sources = Sources::new().text("test.toml", format!("[fleet]\n{toml}"));
    let schema = Schema::new().with::<FleetConfig>();
    let loaded = schema
        .load(&sources)
        .unwrap_or_else(|problems| panic!("{problems}"));
    loaded.section::<FleetConfig>()
}

/// Starts a gateway of a fleet.
pub(crate) async fn try_start(
    url: &str,
    secrets: Secrets,
    (name, fleet): (&str, &str),
    toml: &str,
) -> Result<Running, headworks_gateway::Error> {
    let shutdown = Shutdown::new();
    let mut outbound = OutboundConfig::default();
    outbound.proxy_from_environment = false;
    let outbound = Outbound::new(&outbound).unwrap();
    // Outages last as long as a busy machine makes them; the age of keys is tested elsewhere.
    let fleet = format!("url = '{url}'\nname = '{name}'\nkeys_max_age = '1h'\n{fleet}");
    let fleet = fleet_config(&fleet);
    let config = support::config(toml);
    let gateway = Gateway::start_in_fleet(&config, &fleet, secrets, outbound, &shutdown).await?;
    Ok(Running { gateway, shutdown })
}

pub(crate) async fn start<S: Server>(server: &S, node: (&str, &str), toml: &str) -> Running {
    let started = try_start(&server.url(), S::secrets(), node, toml).await;
    started.unwrap_or_else(|error| panic!("{error}"))
}

/// Starts a gateway of a fleet in front of this upstream, and waits until it has a share.
pub(crate) async fn join<S: Server>(
    server: &S,
    node: (&str, &str),
    upstream: &Upstream,
    toml: &str,
) -> Running {
    let toml = format!("{toml}\n{}", upstream.toml("one", ""));
    let running = start(server, node, &toml).await;
    support::until("it has a share", || running.gateway.is_ready()).await;
    running
}

/// The fleet as an operator sees it.
pub(crate) async fn status<S: Server>(server: &S) -> FleetStatus {
    let config = fleet_config(&format!("url = '{}'", server.url()));
    let mut admin = FleetAdmin::new(&config, S::secrets()).unwrap();
    admin.status().await.unwrap()
}

pub(crate) async fn forget<S: Server>(server: &S, node: &str) {
    let config = fleet_config(&format!("url = '{}'", server.url()));
    let mut admin = FleetAdmin::new(&config, S::secrets()).unwrap();
    admin.forget(node).await.unwrap();
}

/// The share that a node has of a limit over all requests.
pub(crate) fn share(status: &FleetStatus, node: &str, limit: &str) -> Option<f64> {
    let node = status.nodes.iter().find(|one| one.name == node)?;
    let share = node.shares.iter();
    let mut share = share.filter(|share| share.scope == "gateway" && share.limit == limit);
    share.next().map(|share| share.value)
}

/// Waits until the fleet is in a state.
pub(crate) async fn until_status<S: Server>(
    server: &S,
    what: &str,
    condition: impl Fn(&FleetStatus) -> bool,
) -> FleetStatus {
    let start = std::time::Instant::now();
    loop {
        let found = status(server).await;
        if condition(&found) {
            return found;
        }
        assert!(start.elapsed() < PATIENCE, "never: {what}: {found:#?}");
    }
}
