//! Connects to a host, directly or through the proxy that is configured for it.

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::BoxFuture;
use http::Uri;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder, MaybeHttpsStream};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::proxy::{SocksV5, Tunnel};
use hyper_util::client::proxy::matcher::{Intercept, Matcher};
use rustls::ClientConfig;
use tokio::net::TcpStream;
use tower::{Service, ServiceExt};

use crate::address_filter::{AddressFilter, Resolver};
use crate::dns_cache::DnsCache;
use crate::proxied_stream::{ProxiedStream, Transport};

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Connects to a host, with TLS for `https`, within the connect timeout.
#[derive(Clone)]
pub(crate) struct Connector {
    https: HttpsConnector<Route>,
    route: Route,
    parts: Parts,
    time: Duration,
}

/// Settings that connectors with different filters share.
#[derive(Clone)]
struct Parts {
    tls: ClientConfig,
    proxies: Arc<Matcher>,
    names: DnsCache,
}

impl Service<Uri> for Connector {
    type Response = MaybeHttpsStream<ProxiedStream>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, destination: Uri) -> Self::Future {
        let Connector { https, time, .. } = self.clone();
        Box::pin(async move {
            match tokio::time::timeout(time, https.oneshot(destination)).await {
                Ok(connected) => connected,
                Err(_) => Err(not_connected(time)),
            }
        })
    }
}

pub(super) fn connector(
    tls: ClientConfig,
    proxies: Arc<Matcher>,
    names: DnsCache,
    time: Duration,
) -> Connector {
    let parts = Parts {
        tls,
        proxies,
        names,
    };
    Connector::new(parts, time, None)
}

impl Connector {
    fn new(parts: Parts, time: Duration, allowed: Option<AddressFilter>) -> Connector {
        let tcp = |resolver: Resolver| {
            let mut tcp = HttpConnector::new_with_resolver(resolver);
            tcp.set_nodelay(true);
            tcp.enforce_http(false);
            tcp.set_connect_timeout(Some(time));
            tcp.set_keepalive(Some(Duration::from_secs(60)));
            tcp
        };
        let resolver = Resolver::new(parts.names.clone(), allowed);
        // The operator chooses the proxies, which are often in a private network.
        let tcp_to_proxy = tcp(Resolver::new(parts.names.clone(), None));
        let to_proxy = HttpsConnectorBuilder::new()
            .with_tls_config(parts.tls.clone())
            .https_or_http()
            .enable_http1()
            .wrap_connector(tcp_to_proxy.clone());
        let route = Route {
            tcp: tcp(resolver.clone()),
            resolver,
            tcp_to_proxy,
            to_proxy,
            proxies: parts.proxies.clone(),
        };
        let https = HttpsConnectorBuilder::new()
            .with_tls_config(parts.tls.clone())
            .https_or_http()
            .enable_all_versions()
            .wrap_connector(route.clone());
        Connector {
            https,
            route,
            parts,
            time,
        }
    }

    /// A connector with the same settings that connects to some addresses only.
    pub(super) fn restricted_to(&self, allowed: AddressFilter) -> Connector {
        Connector::new(self.parts.clone(), self.time, Some(allowed))
    }

    /// Opens a TCP connection directly to the host.
    pub(super) async fn connect(&self, destination: Uri) -> Result<TcpStream, BoxError> {
        let connect = async {
            let route = self.route.clone();
            route.resolver.check_literal(&destination)?;
            let stream = route.tcp.oneshot(destination).await?;
            Ok::<_, BoxError>(stream.into_inner())
        };
        match tokio::time::timeout(self.time, connect).await {
            Ok(connected) => connected,
            Err(_) => Err(not_connected(self.time)),
        }
    }
}

fn not_connected(time: Duration) -> BoxError {
    format!("connect timeout after {time:?}").into()
}

/// Opens the transport to a host, directly or through a proxy; does not speak TLS with the host.
#[derive(Clone)]
pub(crate) struct Route {
    tcp: HttpConnector<Resolver>,
    resolver: Resolver,
    tcp_to_proxy: HttpConnector<Resolver>,
    to_proxy: HttpsConnector<HttpConnector<Resolver>>,
    proxies: Arc<Matcher>,
}

impl Service<Uri> for Route {
    type Response = ProxiedStream;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<ProxiedStream, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, destination: Uri) -> Self::Future {
        let route = self.clone();
        Box::pin(async move {
            match route.proxies.intercept(&destination) {
                Some(proxy) => {
                    route.resolver.check_proxied(&destination).await?;
                    route.connect_via_proxy(&proxy, destination).await
                }
                None => {
                    route.resolver.check_literal(&destination)?;
                    let transport = Transport::Http(route.tcp.oneshot(destination).await?);
                    Ok(ProxiedStream::direct(transport))
                }
            }
        })
    }
}

impl Route {
    async fn connect_via_proxy(
        self,
        proxy: &Intercept,
        destination: Uri,
    ) -> Result<ProxiedStream, BoxError> {
        let address = proxy.uri().clone();
        match address.scheme_str() {
            // HTTPS goes through a CONNECT tunnel, so the proxy sees only the host. Plain HTTP is
            // forwarded by the proxy request by request.
            Some("http" | "https") if destination.scheme_str() == Some("https") => {
                let mut tunnel = Tunnel::new(address, self.to_proxy);
                if let Some(auth) = proxy.basic_auth() {
                    tunnel = tunnel.with_auth(auth.clone());
                }
                let transport = tunnel.oneshot(destination).await?;
                Ok(ProxiedStream::new(transport, false))
            }
            Some("http" | "https") => {
                let transport = self.to_proxy.oneshot(address).await?;
                Ok(ProxiedStream::new(transport, true))
            }
            Some(scheme @ ("socks5" | "socks5h")) => {
                // `socks5` resolves names locally, `socks5h` at the proxy, as in curl.
                let here = scheme == "socks5";
                let mut socks = SocksV5::new(address, self.tcp_to_proxy).local_dns(here);
                if let Some((name, password)) = proxy.raw_auth() {
                    socks = socks.with_auth(name.to_owned(), password.to_owned());
                }
                let transport = Transport::Http(socks.oneshot(destination).await?);
                Ok(ProxiedStream::new(transport, false))
            }
            other => {
                let scheme = other.unwrap_or("none");
                let text = format!(
                    "unsupported proxy scheme `{scheme}`: use http, https, socks5 or socks5h"
                );
                Err(text.into())
            }
        }
    }
}
