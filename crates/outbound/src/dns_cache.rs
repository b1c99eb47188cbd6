//! A DNS cache, shared by everything in a program that connects by host name.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::BoxFuture;

/// Time for which an entry is used. The system resolver does not report the TTL.
const TTL: Duration = Duration::from_secs(60);
/// Maximum cached names; when full, expired entries are evicted.
const MAX_ENTRIES: usize = 4096;

/// A cache of host addresses. Clones share it.
///
/// ```
/// # use headworks_outbound::DnsCache;
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let found = DnsCache::default().resolve("127.0.0.1", 80).await.unwrap();
/// assert_eq!(found, ["127.0.0.1:80".parse().unwrap()]);
/// # });
/// ```
#[derive(Clone)]
pub struct DnsCache {
    entries: Arc<Mutex<HashMap<String, CacheEntry>>>,
    lookup: Lookup,
}

/// Looks up the addresses of a host. Their ports do not matter.
type Lookup = Arc<dyn Fn(String) -> BoxFuture<'static, io::Result<Vec<SocketAddr>>> + Send + Sync>;

impl Default for DnsCache {
    /// A cache in front of the system's resolver.
    fn default() -> DnsCache {
        DnsCache::with_lookup(|host| {
            Box::pin(async move { Ok(tokio::net::lookup_host((host, 0)).await?.collect()) })
        })
    }
}

/// Time of the lookup and the addresses found.
type CacheEntry = (Instant, Vec<SocketAddr>);

impl DnsCache {
    /// A cache in front of another resolver than the system's.
    #[must_use]
    pub fn with_lookup(
        lookup: impl Fn(String) -> BoxFuture<'static, io::Result<Vec<SocketAddr>>>
        + Send
        + Sync
        + 'static,
    ) -> DnsCache {
        DnsCache {
            entries: Arc::default(),
            lookup: Arc::new(lookup),
        }
    }

    /// Returns the addresses of a host, with `port`. If the lookup fails for another reason than
    /// that the name does not exist, expired addresses are used.
    ///
    /// # Errors
    /// The error of the system resolver.
    pub async fn resolve(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let with_port = |addresses: &[SocketAddr]| {
            let with_port = |address: &SocketAddr| SocketAddr::new(address.ip(), port);
            addresses.iter().map(with_port).collect::<Vec<_>>()
        };
        let known = self.entries.lock().get(host).cloned();
        if let Some((at, addresses)) = &known
            && at.elapsed() < TTL
        {
            return Ok(with_port(addresses));
        }
        match (self.lookup)(host.to_owned()).await {
            Ok(addresses) => {
                self.insert(host, addresses.clone());
                Ok(with_port(&addresses))
            }
            Err(error) if is_host_not_found(&error) => {
                self.entries.lock().remove(host);
                Err(error)
            }
            // A resolver that is down for a moment should not take down hosts that have not moved.
            Err(error) => known.map_or(Err(error), |(_, addresses)| Ok(with_port(&addresses))),
        }
    }

    fn insert(&self, host: &str, addresses: Vec<SocketAddr>) {
        let mut names = self.entries.lock();
        if names.len() >= MAX_ENTRIES {
            names.retain(|_, (at, _)| at.elapsed() < TTL);
        }
        if names.len() < MAX_ENTRIES {
            names.insert(host.to_owned(), (Instant::now(), addresses));
        }
    }
}

/// Whether the error says that the host does not exist, as opposed to a failure of the resolver.
/// The system distinguishes the two only in the message.
#[must_use]
pub fn is_host_not_found(error: &io::Error) -> bool {
    let text = error.to_string();
    [
        "Name or service not known",
        "No address associated",
        "nodename nor servname",
        "Name does not resolve",
    ]
    .iter()
    .any(|words| text.contains(words))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_name_is_looked_up_once() {
        let names = DnsCache::default();
        let first = names.resolve("localhost", 1).await.unwrap();
        assert!(!first.is_empty() && first.iter().all(|at| at.ip().is_loopback()));
        // The cached addresses are returned.
        let elsewhere = "192.0.2.1:0".parse().unwrap();
        names.entries.lock().get_mut("localhost").unwrap().1 = vec![elsewhere];
        let again = names.clone().resolve("localhost", 2).await.unwrap();
        assert_eq!(again, ["192.0.2.1:2".parse().unwrap()]);
    }
}
