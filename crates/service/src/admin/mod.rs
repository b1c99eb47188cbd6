//! The admin listener: health, metrics, panels and reload, behind a token.
//!
//! The program owns the listener. Applications contribute panels and collectors, and the console
//! contributes routes; the listener must not know what a panel is about. Only `/healthz` answers
//! without the token, and it reveals nothing but that the program is running.

mod auth;
mod body;
mod config;
mod endpoint;
mod index;
mod metrics;
mod openapi;
mod problem;
mod routes;
mod serve;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use tokio::net::TcpListener;

use crate::authenticator::Authenticator;
use crate::config::Secret;
use crate::error::Error;
use crate::metrics::{Collect, ProcessMetrics, Registry};
use crate::panel::{Panel, Panels};
use crate::proxies::TrustedProxies;
use crate::reload::Reloader;
use crate::shutdown::Shutdown;

pub use auth::Client;
pub use config::AdminConfig;
pub use endpoint::Endpoint;
pub use problem::HttpProblem;

/// State shared by all routes.
pub(crate) struct Shared {
    authenticator: Authenticator,
    trusted: TrustedProxies,
    panels: Panels,
    metrics: Registry,
    reloader: Option<Reloader>,
    endpoints: Vec<Endpoint>,
    counters: Arc<metrics::Counters>,
}

/// The admin listener before it is bound.
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
/// assert!(shutdown.drain(Duration::from_secs(5)).await.unfinished.is_empty());
/// # });
/// ```
pub struct Admin {
    config: AdminConfig,
    panels: Panels,
    metrics: Registry,
    reloader: Option<Reloader>,
    routes: Router,
    endpoints: Vec<Endpoint>,
    on_token: Vec<TokenCallback>,
}

/// Callback that receives the token once it is known.
type TokenCallback = Box<dyn FnOnce(&Secret) + Send>;

impl Admin {
    /// A listener configured by `config`, without panels, collectors or extra routes.
    #[must_use]
    pub fn new(config: &AdminConfig) -> Admin {
        let metrics = Registry::new();
        metrics.add(Arc::new(ProcessMetrics::new()));
        Admin {
            config: config.clone(),
            panels: Panels::new(),
            metrics,
            reloader: None,
            routes: Router::new(),
            endpoints: Vec::new(),
            on_token: Vec::new(),
        }
    }

    /// Adds `panel`.
    #[must_use]
    pub fn panel(mut self, panel: Arc<dyn Panel>) -> Admin {
        self.panels.add(panel);
        self
    }

    /// Adds `collector`, which is called at every scrape.
    #[must_use]
    pub fn collect(self, collector: Arc<dyn Collect>) -> Admin {
        self.metrics.add(collector);
        self
    }

    /// Enables `POST /admin/reload` with `reloader`.
    #[must_use]
    pub fn reloader(mut self, reloader: Reloader) -> Admin {
        self.reloader = Some(reloader);
        self
    }

    /// Adds routes behind the same token. They must not overlap with the built-in routes: the
    /// router panics on a conflict, at start.
    #[must_use]
    pub fn routes(mut self, routes: Router) -> Admin {
        self.routes = self.routes.merge(routes);
        self
    }

    /// Lists `endpoints`, which [`routes`](Admin::routes) added, in the index and the OpenAPI
    /// document.
    #[must_use]
    pub fn endpoints(mut self, endpoints: impl IntoIterator<Item = Endpoint>) -> Admin {
        self.endpoints.extend(endpoints);
        self
    }

    /// Calls `who` with the token in [`bind`](Admin::bind), where the token is generated if none is
    /// configured.
    #[must_use]
    pub fn on_token(mut self, who: impl FnOnce(&Secret) + Send + 'static) -> Admin {
        self.on_token.push(Box::new(who));
        self
    }

    /// The panels added so far.
    #[must_use]
    pub fn panels(&self) -> &Panels {
        &self.panels
    }

    /// Binds the address. Connections queue until [`AdminListener::serve`] is called.
    ///
    /// # Errors
    /// When the address is in use, or is beyond loopback without a configured token.
    pub async fn bind(self) -> Result<AdminListener, Error> {
        let address = self.config.listen;
        // Checked here as well as in the configuration: a program may build its config in code.
        if !address.ip().to_canonical().is_loopback() && self.config.token.is_none() {
            return Err(Error::TokenRequired(address));
        }
        let taken = |source| Error::Listen { address, source };
        let listener = TcpListener::bind(address).await.map_err(taken)?;
        let address = listener.local_addr().map_err(taken)?;
        let authenticator = Authenticator::new(self.config.token.as_ref())?;
        let token = Secret::from(authenticator.token());
        for who in self.on_token {
            who(&token);
        }
        let counters = Arc::new(metrics::Counters::default());
        self.metrics.add(Arc::clone(&counters) as Arc<dyn Collect>);
        let shared = Arc::new(Shared {
            authenticator,
            trusted: TrustedProxies::new(&self.config.trusted_proxies, self.config.client_header),
            panels: self.panels,
            metrics: self.metrics,
            reloader: self.reloader,
            endpoints: routes::endpoints().chain(self.endpoints).collect(),
            counters,
        });
        let router = routes::router(&shared, self.routes);
        Ok(AdminListener {
            listener,
            address,
            shared,
            router,
            header_timeout: self.config.header_timeout,
        })
    }
}

/// The admin listener, bound to its address.
pub struct AdminListener {
    listener: TcpListener,
    address: SocketAddr,
    shared: Arc<Shared>,
    router: Router,
    header_timeout: Duration,
}

impl AdminListener {
    /// The bound address; it has the real port also when port 0 was configured.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The token, if it was generated at this start.
    #[must_use]
    pub fn generated_token(&self) -> Option<&str> {
        let authenticator = &self.shared.authenticator;
        authenticator.is_generated().then(|| authenticator.token())
    }

    /// Serves until `shutdown`, then lets running requests finish.
    pub fn serve(self, shutdown: &Shutdown) {
        let stop = shutdown.token();
        shutdown.spawn(
            "admin listener",
            serve::serve(self.listener, self.router, self.header_timeout, stop),
        );
    }
}
