//! File descriptors: how many connections clients may have, so that some are left for upstreams.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use rustix::process::{Resource, getrlimit, setrlimit};

use crate::config::GatewayConfig;

/// Descriptors for files, the admin listener and the process itself.
const OTHER_USES: u64 = 64;

/// Most connections of clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ConnectionLimits {
    pub(super) total: usize,
    pub(super) per_address: usize,
}

impl ConnectionLimits {
    /// Raises the process's soft limit to the hard one and divides what that allows.
    pub(super) fn new(config: &GatewayConfig) -> ConnectionLimits {
        let limits = ConnectionLimits::within(config, raise_soft_limit());
        // The default is meant for machines that allow it, and no promise to anybody.
        let is_default = config.max_connections == GatewayConfig::default().max_connections;
        if limits.total < config.max_connections && !is_default {
            tracing::warn!(
                limit = limits.total,
                "`gateway.max_connections` is more than the limit of open files allows: raise that \
                 limit with `ulimit -n` or `LimitNOFILE=`"
            );
        }
        limits
    }

    fn within(config: &GatewayConfig, descriptors: u64) -> ConnectionLimits {
        // Each running request needs a connection, and so may an idle one that is kept.
        let upstreams = 2 * u64::from(config.scheduler_max_concurrent);
        let reserve = (OTHER_USES + upstreams).min(descriptors / 2);
        let total = usize::try_from(descriptors - reserve).unwrap_or(usize::MAX);
        let total = config.max_connections.min(total).max(1);
        let half = total.div_ceil(2);
        ConnectionLimits {
            total,
            per_address: config.max_connections_per_address.unwrap_or(half),
        }
    }
}

/// Raises the soft limit of open files, which is often 1024, and returns it.
fn raise_soft_limit() -> u64 {
    let mut limit = getrlimit(Resource::Nofile);
    let before = limit.current;
    limit.current = limit.maximum;
    if before != limit.maximum && setrlimit(Resource::Nofile, limit).is_err() {
        limit.current = before;
    }
    limit.current.unwrap_or(u64::MAX)
}

/// Open connections of every client address.
#[derive(Debug, Default)]
pub(super) struct Addresses {
    open: Mutex<HashMap<IpAddr, usize>>,
}

impl Addresses {
    /// Counts a connection, unless its address has `most` already.
    pub(super) fn join(self: &Arc<Self>, address: IpAddr, most: usize) -> Option<AddressGuard> {
        let address = network(address);
        let mut open = self.open.lock();
        let count = open.entry(address).or_default();
        if *count >= most {
            return None;
        }
        *count += 1;
        Some(AddressGuard {
            addresses: self.clone(),
            address,
        })
    }
}

/// The address by which a client is counted. One client often has a whole IPv6 network of 64 bits.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6((address.to_bits() >> 64 << 64).into()),
        address => address,
    }
}

/// One counted connection.
#[derive(Debug)]
pub(super) struct AddressGuard {
    addresses: Arc<Addresses>,
    address: IpAddr,
}

impl Drop for AddressGuard {
    fn drop(&mut self) {
        let mut open = self.addresses.open.lock();
        if let Some(count) = open.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                open.remove(&self.address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_descriptors_are_left_for_upstreams() {
        let config = GatewayConfig::default();
        let limits = |descriptors| ConnectionLimits::within(&config, descriptors);
        assert_eq!(limits(1024).total, 1024 - 64 - 100);
        assert_eq!(limits(100).total, 50);
        assert_eq!(
            (limits(1 << 20).total, limits(1 << 20).per_address),
            (50_000, 25_000)
        );
        assert_eq!(limits(u64::MAX).total, 50_000);
    }

    #[test]
    fn connections_are_counted_by_address() {
        let addresses = Arc::new(Addresses::default());
        let join = |address: &str| addresses.join(address.parse().unwrap(), 2);
        let (one, two) = (join("10.0.0.1"), join("::ffff:10.0.0.1"));
        assert!(one.is_some() && two.is_some() && join("10.0.0.1").is_none());
        assert!(join("10.0.0.2").is_some());
        drop(one);
        assert!(join("10.0.0.1").is_some());
        let (_one, _two) = (join("2001:db8::1"), join("2001:db8::2"));
        assert!(join("2001:db8::3").is_none() && join("2001:db8:0:1::1").is_some());
        drop(two);
        drop((_one, _two));
        assert!(addresses.open.lock().is_empty());
    }
}
