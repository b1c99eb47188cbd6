//! The applications in this binary. Each has a crate of its own, adds its section to [`schema`] and
//! its entry to [`APPLICATIONS`]; nothing else here depends on it.

use std::net::SocketAddr;

use headworks_gateway::{FleetConfig, Gateway, GatewayConfig, Secrets};
use headworks_migrate::{MigrateConfig, Migrations};
use headworks_service::admin::Admin;
use headworks_service::config::Schema;
use headworks_service::outbound::{Outbound, OutboundConfig};
use headworks_service::reload::Reloader;
use headworks_service::shutdown::Shutdown;
use headworks_tracker::{Tracker, TrackerConfig};
use tokio::runtime::Handle;

/// One application.
pub(crate) struct Application {
    /// The name, as in its section and its command.
    pub(crate) name: &'static str,
    /// Starts it: spawns its tasks under `shutdown` and follows the reloader.
    pub(crate) start: fn(&Reloader, &Shutdown) -> anyhow::Result<Started>,
}

/// A started application.
pub(crate) struct Started {
    /// The addresses it can be reached at.
    pub(crate) addresses: String,
    /// The address that HTTP clients use, if it serves any.
    pub(crate) http: Option<SocketAddr>,
    /// A command to try, which shows that it runs.
    pub(crate) example_command: Option<String>,
    /// Whether it ended badly, such as without its last snapshot. Asked once it has ended.
    pub(crate) ended_badly: Box<dyn Fn() -> bool>,
    /// Adds its panels, collectors and routes to the admin listener.
    pub(crate) attach: Box<dyn FnOnce(Admin) -> Admin>,
}

/// All applications, in start order.
pub(crate) const APPLICATIONS: &[Application] = &[GATEWAY, TRACKER, MIGRATE];

/// The schema of all sections.
pub(crate) fn schema() -> Schema {
    Schema::shared()
        .with::<GatewayConfig>()
        .with::<FleetConfig>()
        .with::<TrackerConfig>()
        .with::<MigrateConfig>()
}

/// The gateway.
pub(crate) const GATEWAY: Application = Application {
    name: "gateway",
    start: start_gateway,
};

/// The tracker.
pub(crate) const TRACKER: Application = Application {
    name: "tracker",
    start: start_tracker,
};

/// The view on `headworks migrate` jobs, which run in processes of their own.
const MIGRATE: Application = Application {
    name: "migrate",
    start: start_migrate,
};

fn start_gateway(reloader: &Reloader, shutdown: &Shutdown) -> anyhow::Result<Started> {
    let config = reloader.current();
    let outbound = Outbound::new(&*config.section::<OutboundConfig>())?;
    let (section, fleet) = (
        config.section::<GatewayConfig>(),
        config.section::<FleetConfig>(),
    );
    let start = Gateway::start_in_fleet(&section, &fleet, Secrets::from_env(), outbound, shutdown);
    // Joining takes a moment, and nothing else of this process runs yet.
    let gateway = tokio::task::block_in_place(|| Handle::current().block_on(start))?;
    gateway.follow(reloader);
    let base = format!("http://{}/v1", gateway.address());
    let example_command = match gateway.requires_key() {
        true => format!("curl -H 'Authorization: Bearer YOUR_KEY' {base}/models"),
        false => format!("curl {base}/models"),
    };
    Ok(Started {
        addresses: format!("{base} (OpenAI and Anthropic)"),
        http: Some(gateway.address()),
        example_command: Some(example_command),
        ended_badly: Box::new(|| false),
        attach: Box::new(move |admin| {
            let mut admin = admin
                .panel(gateway.panel())
                .panel(gateway.engine())
                .panel(gateway.key_panel())
                .collect(gateway.collector())
                .routes(gateway.routes());
            if let (Some(panel), Some(collector)) =
                (gateway.fleet_panel(), gateway.fleet_collector())
            {
                admin = admin.panel(panel).collect(collector);
            }
            admin
        }),
    })
}

fn start_tracker(reloader: &Reloader, shutdown: &Shutdown) -> anyhow::Result<Started> {
    let config = reloader.current();
    let outbound = Outbound::new(&*config.section::<OutboundConfig>())?;
    let tracker = Tracker::start(&config.section::<TrackerConfig>(), outbound, shutdown)?;
    tracker.follow(reloader);
    let http = tracker
        .http()
        .iter()
        .map(|at| format!("http://{at}/announce"));
    let udp = tracker.udp().iter().map(|at| format!("udp://{at}"));
    let addresses: Vec<String> = http.chain(udp).collect();
    let addresses = match tracker.forwarders() {
        0 => addresses.join(" "),
        count => format!("{} ({count} forwarders)", addresses.join(" ")),
    };
    let http = tracker.http().first().copied();
    let ending = tracker.clone();
    Ok(Started {
        addresses,
        http,
        example_command: http.map(|at| format!("curl http://{at}/stats")),
        ended_badly: Box::new(move || ending.lost_snapshot()),
        attach: Box::new(move |admin| {
            admin
                .panel(tracker.panel())
                .panel(tracker.engine())
                .collect(tracker.collector())
                .on_token(move |token| {
                    if let Err(error) = tracker.show_clients_to(token) {
                        tracing::warn!(%error, "client addresses are hidden on /stats");
                    }
                })
        }),
    })
}

fn start_migrate(reloader: &Reloader, shutdown: &Shutdown) -> anyhow::Result<Started> {
    let config = reloader.current();
    let migrations = Migrations::start(&config.section::<MigrateConfig>(), shutdown);
    let addresses = match migrations.count() {
        0 => "no jobs to watch (list them in `migrate.jobs`)".into(),
        1 => "watching 1 job".into(),
        count => format!("watching {count} jobs"),
    };
    Ok(Started {
        addresses,
        http: None,
        example_command: None,
        ended_badly: Box::new(|| false),
        attach: Box::new(move |admin| admin.panel(migrations.panel())),
    })
}
