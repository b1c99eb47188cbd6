//! Connections to some addresses only.
//!
//! A program that sends requests to hosts that strangers name must not be led into its own network.
//! A look-up before the request proves nothing: the name may have other addresses when the
//! connection is made. So the filter is applied to the addresses that are dialled.

use std::error::Error;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::task::{Context, Poll};

use futures_util::future::BoxFuture;
use http::Uri;
use hyper_util::client::legacy::connect::dns::Name;
use tower::Service;

use crate::dns_cache::DnsCache;

/// Whether an address may be connected to.
pub type AddressFilter = fn(IpAddr) -> bool;

/// The host has addresses, and none of them is allowed.
#[derive(Debug, thiserror::Error)]
#[error("no address of the host is allowed")]
struct NotAllowed;

fn not_allowed() -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, NotAllowed)
}

/// Whether the error says that the host has no address that the filter allows.
#[must_use]
pub fn is_address_not_allowed(error: &io::Error) -> bool {
    error
        .get_ref()
        .is_some_and(<dyn Error + Send + Sync>::is::<NotAllowed>)
}

impl DnsCache {
    /// Returns the addresses of a host that a filter allows, with `port`.
    ///
    /// # Errors
    /// The error of the resolver, or one for which [`is_address_not_allowed`] holds.
    pub async fn resolve_allowed(
        &self,
        host: &str,
        port: u16,
        allowed: AddressFilter,
    ) -> io::Result<Vec<SocketAddr>> {
        let mut addresses = self.resolve(host, port).await?;
        let found = !addresses.is_empty();
        addresses.retain(|address| allowed(address.ip()));
        match found && addresses.is_empty() {
            true => Err(not_allowed()),
            false => Ok(addresses),
        }
    }
}

/// The resolver of a connector, which sets the port itself.
#[derive(Clone)]
pub(crate) struct Resolver {
    names: DnsCache,
    allowed: Option<AddressFilter>,
}

impl Resolver {
    pub(crate) fn new(names: DnsCache, allowed: Option<AddressFilter>) -> Resolver {
        Resolver { names, allowed }
    }

    /// Checks a destination whose host is an address, because connectors do not resolve those.
    pub(crate) fn check_literal(&self, destination: &Uri) -> io::Result<()> {
        let host = destination.host().unwrap_or_default();
        let host = host.trim_start_matches('[').trim_end_matches(']');
        match (self.allowed, host.parse::<IpAddr>()) {
            (Some(allowed), Ok(ip)) if !allowed(ip) => Err(not_allowed()),
            _ => Ok(()),
        }
    }

    /// Checks a destination behind a proxy. The proxy resolves the name and may do so in another
    /// network, so a host that has no address here is left to it.
    pub(crate) async fn check_proxied(&self, destination: &Uri) -> io::Result<()> {
        self.check_literal(destination)?;
        let Some(allowed) = self.allowed else {
            return Ok(());
        };
        let host = destination.host().unwrap_or_default();
        let addresses = self.names.resolve(host, 0).await.unwrap_or_default();
        match addresses.iter().all(|address| allowed(address.ip())) {
            true => Ok(()),
            false => Err(not_allowed()),
        }
    }
}

impl Service<Name> for Resolver {
    type Response = std::vec::IntoIter<SocketAddr>;
    type Error = io::Error;
    type Future = BoxFuture<'static, io::Result<Self::Response>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let Resolver { names, allowed } = self.clone();
        Box::pin(async move {
            let addresses = match allowed {
                Some(allowed) => names.resolve_allowed(name.as_str(), 0, allowed).await?,
                None => names.resolve(name.as_str(), 0).await?,
            };
            Ok(addresses.into_iter())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cache(addresses: &'static [&'static str]) -> DnsCache {
        DnsCache::with_lookup(move |_| {
            let addresses = addresses.iter().map(|ip| (ip.parse::<IpAddr>(), 0));
            let addresses = addresses.map(|(ip, port)| SocketAddr::new(ip.unwrap(), port));
            let addresses = addresses.collect();
            Box::pin(async move { Ok(addresses) })
        })
    }

    fn is_not_loopback(ip: IpAddr) -> bool {
        !ip.is_loopback()
    }

    #[tokio::test]
    async fn only_allowed_addresses_are_returned() {
        let both = cache(&["127.0.0.1", "192.0.2.1"]);
        let found = both.resolve_allowed("a", 5, is_not_loopback).await.unwrap();
        assert_eq!(found, ["192.0.2.1:5".parse().unwrap()]);
        let none = cache(&["127.0.0.1", "::1"]);
        let error = none.resolve_allowed("a", 5, is_not_loopback).await;
        assert!(is_address_not_allowed(&error.unwrap_err()));
    }

    #[tokio::test]
    async fn addresses_and_hosts_behind_a_proxy_are_checked() {
        let at = |text: &str| text.parse::<Uri>().unwrap();
        let resolver = Resolver::new(cache(&["127.0.0.1", "192.0.2.1"]), Some(is_not_loopback));
        for (uri, allowed) in [
            ("http://127.0.0.1:1/", false),
            ("https://[::1]/", false),
            ("http://192.0.2.1/", true),
            ("http://a.example/", true),
        ] {
            assert_eq!(resolver.check_literal(&at(uri)).is_ok(), allowed, "{uri}");
        }
        let checked = resolver.check_proxied(&at("http://a.example/")).await;
        assert!(is_address_not_allowed(&checked.unwrap_err()), "one of two");
        let unknown = DnsCache::with_lookup(|_| {
            Box::pin(async { Err(io::Error::other("no resolver here")) })
        });
        let resolver = Resolver::new(unknown, Some(is_not_loopback));
        assert!((resolver.check_proxied(&at("http://a.example/")).await).is_ok());
    }
}
