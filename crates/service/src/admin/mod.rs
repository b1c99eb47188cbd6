//! The admin listener: health, metrics, panels and reload, behind a token.
//!
//! Owned by the program, not by an application; applications hand in panels and collectors, and
//! the console hands in routes. It must not know what a panel is about. Only `/healthz` answers
//! without the token, and says nothing but that it is there.

mod auth;
mod config;
mod content;
mod endpoint;
mod index;
mod names;
mod openapi;
mod problem;
mod routes;
mod serve;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use tokio::net::TcpListener;

use crate::config::Secret;
use crate::error::Error;
use crate::metrics::{Collect, Registry};
use crate::panel::{Panel, Panels};
use crate::proxies::TrustedProxies;
use crate::reload::Reloader;
use crate::shutdown::Shutdown;
use crate::token::Door;

pub use config::AdminConfig;
pub use endpoint::Endpoint;
pub use problem::HttpProblem;

/// What the routes share.
pub(crate) struct Shared {
    door: Door,
    trusted: TrustedProxies,
    panels: Panels,
    metrics: Registry,
    reloader: Option<Reloader>,
    endpoints: Vec<Endpoint>,
    counters: Arc<names::Counters>,
}

/// The admin listener before it listens.
///
/// ```
/// # use headworks_service::admin::{Admin, AdminConfig};
/// # use headworks_service::config::{Schema, Sources};
/// # use headworks_service::shutdown::Shutdown;
/// # use std::time::Duration;
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// let sources = Sources::new().flag("--admin-listen", "admin.listen", "127.0.0.1:0");
/// let config = Schema::shared().load(&sources).unwrap().section::<AdminConfig>();
/// let shutdown = Shutdown::new();
/// let listening = Admin::new(&config).bind().await.unwrap();
/// assert_ne!(listening.address().port(), 0);
/// listening.serve(&shutdown);
/// assert!(shutdown.drain(Duration::from_secs(5)).await.left.is_empty());
/// # });
/// ```
pub struct Admin {
    config: AdminConfig,
    panels: Panels,
    metrics: Registry,
    reloader: Option<Reloader>,
    routes: Router,
    endpoints: Vec<Endpoint>,
    token_to: Vec<ToldOnce>,
}

/// Who is told the token when it is known.
type ToldOnce = Box<dyn FnOnce(&Secret) + Send>;

impl Admin {
    /// As `config` says, with nothing to show yet.
    #[must_use]
    pub fn new(config: &AdminConfig) -> Admin {
        Admin {
            config: config.clone(),
            panels: Panels::new(),
            metrics: Registry::new(),
            reloader: None,
            routes: Router::new(),
            endpoints: Vec::new(),
            token_to: Vec::new(),
        }
    }

    /// Shows `panel`.
    #[must_use]
    pub fn panel(mut self, panel: Arc<dyn Panel>) -> Admin {
        self.panels.add(panel);
        self
    }

    /// Asks `collector` at every scrape.
    #[must_use]
    pub fn collect(self, collector: Arc<dyn Collect>) -> Admin {
        self.metrics.add(collector);
        self
    }

    /// Lets `POST /admin/reload` use `reloader`.
    #[must_use]
    pub fn reloader(mut self, reloader: Reloader) -> Admin {
        self.reloader = Some(reloader);
        self
    }

    /// Adds routes behind the same token. They must not be routes that are here already; the
    /// router refuses that with a panic, at start.
    #[must_use]
    pub fn routes(mut self, routes: Router) -> Admin {
        self.routes = self.routes.merge(routes);
        self
    }

    /// Tells of `endpoints` that [`routes`](Admin::routes) added.
    #[must_use]
    pub fn endpoints(mut self, endpoints: impl IntoIterator<Item = Endpoint>) -> Admin {
        self.endpoints.extend(endpoints);
        self
    }

    /// Tells `who` the token, once there is one: if none is configured, it is made when the address
    /// is taken.
    #[must_use]
    pub fn token_to(mut self, who: impl FnOnce(&Secret) + Send + 'static) -> Admin {
        self.token_to.push(Box::new(who));
        self
    }

    /// The panels so far.
    #[must_use]
    pub fn panels(&self) -> &Panels {
        &self.panels
    }

    /// Takes the address. From then on connections wait for [`Listening::serve`].
    ///
    /// # Errors
    /// When the address is taken, or would hand control to the network without a token.
    pub async fn bind(self) -> Result<Listening, Error> {
        let address = self.config.listen;
        if !address.ip().to_canonical().is_loopback() && self.config.token.is_none() {
            return Err(Error::Exposed(address));
        }
        let taken = |source| Error::Listen { address, source };
        let listener = TcpListener::bind(address).await.map_err(taken)?;
        let address = listener.local_addr().map_err(taken)?;
        let door = Door::new(self.config.token.as_ref())?;
        let token = Secret::from(door.token());
        for who in self.token_to {
            who(&token);
        }
        let counters = Arc::new(names::Counters::default());
        self.metrics.add(Arc::clone(&counters) as Arc<dyn Collect>);
        let shared = Arc::new(Shared {
            door,
            trusted: TrustedProxies::new(&self.config.trusted_proxies, self.config.client_header),
            panels: self.panels,
            metrics: self.metrics,
            reloader: self.reloader,
            endpoints: routes::endpoints().chain(self.endpoints).collect(),
            counters,
        });
        let router = routes::router(&shared, self.routes);
        Ok(Listening {
            listener,
            address,
            shared,
            router,
            header_timeout: self.config.header_timeout,
        })
    }
}

/// The admin listener with its address.
pub struct Listening {
    listener: TcpListener,
    address: SocketAddr,
    shared: Arc<Shared>,
    router: Router,
    header_timeout: Duration,
}

impl Listening {
    /// The real address, also when port 0 was asked for.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The token, if it was made at this start and nobody knows it yet.
    #[must_use]
    pub fn generated_token(&self) -> Option<&str> {
        let door = &self.shared.door;
        door.is_generated().then(|| door.token())
    }

    /// Answers until `shutdown`, then lets running requests end.
    pub fn serve(self, shutdown: &Shutdown) {
        let stop = shutdown.token();
        shutdown.spawn(
            "admin listener",
            serve::serve(self.listener, self.router, self.header_timeout, stop),
        );
    }
}
