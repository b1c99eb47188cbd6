//! One HTTP client for all applications.
//!
//! It speaks HTTP/1.1 and HTTP/2, and TLS with the system's root certificates and those the
//! operator adds. It uses the proxies of the environment, limits the time to connect, and disables
//! the delays on small writes (`TCP_NODELAY`) and on acknowledgements (`TCP_QUICKACK`). Response
//! timeouts are the caller's: a tracker waits seconds, a model minutes.

mod address_filter;
mod connector;
mod dns_cache;
mod error_chain;
mod proxied_stream;
mod roots;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::PROXY_AUTHORIZATION;
use http::{Request, Response, Uri};
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::{Body, Incoming};
use hyper_util::client::legacy::{Client, Error as ClientError};
use hyper_util::client::proxy::matcher::Matcher;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use tokio::net::TcpStream;

pub use address_filter::{AddressFilter, is_address_not_allowed};
use connector::Connector;
pub use dns_cache::{DnsCache, is_host_not_found};
pub use error_chain::error_chain;
pub use proxied_stream::direct_peer;
pub use roots::read as read_certificates;

/// How the client reaches others.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Settings {
    /// Use the proxies of the environment: HTTP_PROXY, HTTPS_PROXY, ALL_PROXY and NO_PROXY.
    pub proxy_from_environment: bool,
    /// A PEM file with CA certificates to trust in addition to the system's.
    pub ca_file: Option<PathBuf>,
    /// Connect timeout, including proxy and TLS. Default 10 s.
    pub connect_timeout: Duration,
    /// Idle timeout of pooled connections. Default 90 s.
    pub idle_timeout: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            proxy_from_environment: true,
            ca_file: None,
            connect_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(90),
        }
    }
}

/// The client cannot be set up.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file with certificates cannot be used.
    #[error("cannot read PEM certificates from `{}`: {cause}", path.display())]
    Certificates {
        /// The file.
        path: PathBuf,
        /// Why not.
        cause: String,
    },
    /// TLS cannot be set up.
    #[error("cannot set up TLS")]
    Tls(#[from] rustls::Error),
}

/// A type-erased request body.
pub type RequestBody = UnsyncBoxBody<Bytes, Box<dyn std::error::Error + Send + Sync>>;

/// The HTTP client. Clones are cheap and share connections.
///
/// ```
/// use headworks_outbound::{Outbound, Settings};
/// let outbound = Outbound::new(Settings::default()).unwrap();
/// let shared = outbound.clone();
/// # let _ = shared;
/// ```
#[derive(Clone)]
pub struct Outbound {
    client: Client<Connector, RequestBody>,
    /// The connector and the idle timeout of its connections.
    connections: Arc<(Connector, Duration)>,
    proxies: Arc<Matcher>,
    names: DnsCache,
}

impl Outbound {
    /// Makes a client.
    ///
    /// # Errors
    /// When the certificates cannot be used.
    pub fn new(settings: impl Into<Settings>) -> Result<Outbound, Error> {
        let settings = settings.into();
        let proxies = if settings.proxy_from_environment {
            Matcher::from_env()
        } else {
            Matcher::builder().build()
        };
        Outbound::with_proxies(settings, proxies)
    }

    /// A client that uses `proxies` instead of those of the environment.
    ///
    /// # Errors
    /// When the certificates cannot be used.
    pub fn with_proxies(
        settings: impl Into<Settings>,
        proxies: Matcher,
    ) -> Result<Outbound, Error> {
        Outbound::with_names(settings, proxies, DnsCache::default())
    }

    /// A client that finds hosts in `names`.
    ///
    /// # Errors
    /// When the certificates cannot be used.
    pub fn with_names(
        settings: impl Into<Settings>,
        proxies: Matcher,
        names: DnsCache,
    ) -> Result<Outbound, Error> {
        let settings = settings.into();
        let tls = roots::client_config(settings.ca_file.as_deref())?;
        let proxies = Arc::new(proxies);
        let connector = connector::connector(
            tls,
            Arc::clone(&proxies),
            names.clone(),
            settings.connect_timeout,
        );
        let connections = (connector, settings.idle_timeout);
        Ok(Outbound {
            client: client(&connections),
            connections: Arc::new(connections),
            proxies,
            names,
        })
    }

    /// A client with the same settings and a connection pool of its own, for a thread that runs its
    /// own runtime. A connection is driven by the runtime that opened it, and waking another
    /// runtime costs system calls. `idle_timeout` counts if it is shorter than the one of the
    /// settings.
    #[must_use]
    pub fn with_own_pool(&self, idle_timeout: Duration) -> Outbound {
        let (connector, longest) = &*self.connections;
        let connections = (connector.clone(), idle_timeout.min(*longest));
        Outbound {
            client: client(&connections),
            connections: Arc::new(connections),
            ..self.clone()
        }
    }

    /// A client with the same settings and a connection pool of its own that connects only to
    /// addresses that `allowed` returns `true` for. Every connection is made to an address that was
    /// checked, so a name cannot change in between. A proxy resolves names itself: then the host
    /// must not be, or be known to have, another address.
    #[must_use]
    pub fn restricted_to(&self, allowed: AddressFilter) -> Outbound {
        let (connector, idle) = &*self.connections;
        let connections = (connector.restricted_to(allowed), *idle);
        Outbound {
            client: client(&connections),
            connections: Arc::new(connections),
            ..self.clone()
        }
    }

    /// The DNS cache of this client, to share with code that reaches the same hosts by other means.
    #[must_use]
    pub fn dns_cache(&self) -> &DnsCache {
        &self.names
    }

    /// Whether `destination` is reached without TLS and without a proxy.
    #[must_use]
    pub fn is_direct(&self, destination: &Uri) -> bool {
        destination.scheme_str() == Some("http") && self.proxies.intercept(destination).is_none()
    }

    /// Opens a TCP connection directly to `destination`, for callers that speak the protocol
    /// themselves.
    ///
    /// # Errors
    /// When no connection is established in time.
    pub async fn connect(
        &self,
        destination: Uri,
    ) -> Result<TcpStream, Box<dyn std::error::Error + Send + Sync>> {
        self.connections.0.connect(destination).await
    }

    /// The idle timeout of pooled connections.
    #[must_use]
    pub fn idle_timeout(&self) -> Duration {
        self.connections.1
    }

    /// Sends `request`, whose URI must name scheme and host.
    ///
    /// # Errors
    /// When there is no response; the error sources say why.
    pub async fn send<B>(&self, request: Request<B>) -> Result<Response<Incoming>, ClientError>
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        use http_body_util::BodyExt;
        let mut request = request.map(|body| body.map_err(Into::into).boxed_unsync());
        self.add_proxy_credentials(&mut request);
        self.client.request(request).await
    }

    /// Adds proxy credentials to plain HTTP requests. A forwarding proxy reads them from the
    /// request. A tunnel got them while connecting, and the destination must not see them.
    fn add_proxy_credentials(&self, request: &mut Request<RequestBody>) {
        if request.uri().scheme_str() != Some("http") {
            return;
        }
        let intercept = self.proxies.intercept(request.uri());
        if let Some(auth) = intercept.as_ref().and_then(|proxy| proxy.basic_auth()) {
            request
                .headers_mut()
                .insert(PROXY_AUTHORIZATION, auth.clone());
        }
    }
}

fn client((connector, idle): &(Connector, Duration)) -> Client<Connector, RequestBody> {
    Client::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(*idle)
        .build(connector.clone())
}

impl std::fmt::Debug for Outbound {
    // Not derived: the proxy addresses may contain passwords.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Outbound").finish_non_exhaustive()
    }
}
