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

use crate::dns_cache::DnsCache;
use crate::proxied_stream::{ProxiedStream, Transport};

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Connects to a host, with TLS for `https`, within the connect timeout.
#[derive(Clone)]
pub(crate) struct Connector {
    https: HttpsConnector<Route>,
    tcp: HttpConnector<DnsCache>,
    time: Duration,
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
    let mut tcp = HttpConnector::new_with_resolver(names);
    tcp.set_nodelay(true);
    tcp.enforce_http(false);
    tcp.set_connect_timeout(Some(time));
    tcp.set_keepalive(Some(Duration::from_secs(60)));
    let to_proxy = HttpsConnectorBuilder::new()
        .with_tls_config(tls.clone())
        .https_or_http()
        .enable_http1()
        .wrap_connector(tcp.clone());
    let route = Route {
        tcp: tcp.clone(),
        to_proxy,
        proxies,
    };
    let https = HttpsConnectorBuilder::new()
        .with_tls_config(tls)
        .https_or_http()
        .enable_all_versions()
        .wrap_connector(route);
    Connector { https, tcp, time }
}

impl Connector {
    /// Opens a TCP connection directly to the host.
    pub(super) async fn connect(&self, destination: Uri) -> Result<TcpStream, BoxError> {
        let Connector { tcp, time, .. } = self;
        match tokio::time::timeout(*time, tcp.clone().oneshot(destination)).await {
            Ok(connected) => Ok(connected?.into_inner()),
            Err(_) => Err(not_connected(*time)),
        }
    }
}

fn not_connected(time: Duration) -> BoxError {
    format!("connect timeout after {time:?}").into()
}

/// Opens the transport to a host, directly or through a proxy; does not speak TLS with the host.
#[derive(Clone)]
pub(crate) struct Route {
    tcp: HttpConnector<DnsCache>,
    to_proxy: HttpsConnector<HttpConnector<DnsCache>>,
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
                Some(proxy) => route.connect_via_proxy(&proxy, destination).await,
                None => {
                    let transport = Transport::Http(route.tcp.oneshot(destination).await?);
                    Ok(ProxiedStream::new(transport, false))
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
                let mut socks = SocksV5::new(address, self.tcp).local_dns(here);
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
