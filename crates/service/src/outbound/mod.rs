//! One HTTP client for all applications.
//!
//! It speaks HTTP/1.1 and HTTP/2, and TLS with the system's root certificates and those the
//! operator adds. It uses the proxies of the environment, limits the time to connect, and disables
//! the delays on small writes (`TCP_NODELAY`) and on acknowledgements (`TCP_QUICKACK`). Response
//! timeouts are the caller's: a tracker waits seconds, a model minutes.

mod connector;
mod names;
mod roots;
mod via;

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

use crate::config::Objection;
use crate::error::Error;
use connector::Connector;
pub use names::{Names, is_unknown};

crate::section! {
    /// How the program reaches others over HTTP.
    pub struct OutboundConfig = "outbound", check = check;

    /// Whether the environment names proxies: HTTP_PROXY, HTTPS_PROXY, ALL_PROXY and NO_PROXY.
    proxy_from_environment: bool = true, restart();
    /// A file with certificates in PEM that are trusted beside the system's.
    ca_file: Option<PathBuf> = None, example("\"/etc/ssl/private-ca.pem\""), restart();
    /// How long connecting may take, with proxy and TLS.
    #[serde(with = "crate::config::seconds")]
    connect_timeout: Duration = Duration::from_secs(10), restart();
    /// How long an idle connection is kept for the next request.
    #[serde(with = "crate::config::seconds")]
    idle_timeout: Duration = Duration::from_secs(90), restart();
}

fn check(config: &OutboundConfig) -> Vec<Objection> {
    let mut objections = Vec::new();
    if config.connect_timeout.is_zero() {
        let text = "nothing connects in no time; write \"10s\", or leave it out";
        objections.push(Objection::new("connect_timeout", text));
    }
    // Read during validation, so that `config check` and a reload report an unusable file.
    if let Some(Err(error)) = config.ca_file.as_deref().map(roots::read) {
        objections.push(Objection::new("ca_file", error.to_string()));
    }
    objections
}

/// A type-erased request body.
pub type RequestBody = UnsyncBoxBody<Bytes, Box<dyn std::error::Error + Send + Sync>>;

/// The HTTP client. Clones are cheap and share connections.
///
/// ```
/// use headworks_service::outbound::{Outbound, OutboundConfig};
/// let outbound = Outbound::new(&OutboundConfig::default()).unwrap();
/// let shared = outbound.clone();
/// # let _ = shared;
/// ```
#[derive(Clone)]
pub struct Outbound {
    client: Client<Connector, RequestBody>,
    /// The connector and the idle timeout of its connections.
    make: Arc<(Connector, Duration)>,
    proxies: Arc<Matcher>,
    names: Names,
}

impl Outbound {
    /// A client configured by `config`.
    ///
    /// # Errors
    /// When the certificates cannot be used.
    pub fn new(config: &OutboundConfig) -> Result<Outbound, Error> {
        let proxies = if config.proxy_from_environment {
            Matcher::from_env()
        } else {
            Matcher::builder().build()
        };
        Outbound::with_proxies(config, proxies)
    }

    /// A client that uses `proxies` instead of those of the environment.
    ///
    /// # Errors
    /// When the certificates cannot be used.
    pub fn with_proxies(config: &OutboundConfig, proxies: Matcher) -> Result<Outbound, Error> {
        let tls = roots::client_config(config.ca_file.as_deref())?;
        let proxies = Arc::new(proxies);
        let names = Names::default();
        let connector = connector::connector(
            tls,
            Arc::clone(&proxies),
            names.clone(),
            config.connect_timeout,
        );
        let make = (connector, config.idle_timeout);
        Ok(Outbound {
            client: client(&make),
            make: Arc::new(make),
            proxies,
            names,
        })
    }

    /// A client with the same settings and a connection pool of its own, for a thread that runs its
    /// own runtime. A connection is driven by the runtime that opened it, and waking another
    /// runtime costs system calls.
    #[must_use]
    pub fn apart(&self) -> Outbound {
        Outbound {
            client: client(&self.make),
            ..self.clone()
        }
    }

    /// The DNS cache of this client, to share with code that reaches the same hosts by other means.
    #[must_use]
    pub fn names(&self) -> &Names {
        &self.names
    }

    /// Whether `far_side` is reached without TLS and without a proxy.
    #[must_use]
    pub fn is_direct(&self, far_side: &Uri) -> bool {
        far_side.scheme_str() == Some("http") && self.proxies.intercept(far_side).is_none()
    }

    /// Opens a TCP connection directly to `far_side`, for callers that speak the protocol
    /// themselves.
    ///
    /// # Errors
    /// When no connection is established in time.
    pub async fn connect(
        &self,
        far_side: Uri,
    ) -> Result<TcpStream, Box<dyn std::error::Error + Send + Sync>> {
        self.make.0.connect(far_side).await
    }

    /// The idle timeout of pooled connections.
    #[must_use]
    pub fn idle_timeout(&self) -> Duration {
        self.make.1
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
        self.introduce_to_proxy(&mut request);
        self.client.request(request).await
    }

    /// Adds proxy credentials to plain HTTP requests. A forwarding proxy reads them from the
    /// request. A tunnel got them while connecting, and the destination must not see them.
    fn introduce_to_proxy(&self, request: &mut Request<RequestBody>) {
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
