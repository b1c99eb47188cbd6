//! The scope of an IP address: whom it can be reached by.

use std::net::{IpAddr, Ipv4Addr};

/// The scope of an IP address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AddressScope {
    /// Anybody.
    Public,
    /// Only hosts of the same private network (RFC 1918, RFC 4193, RFC 6598).
    Private,
    /// Only this machine.
    Loopback,
    /// Nobody, or only hosts on the same link: unspecified, multicast, broadcast, reserved and
    /// link-local addresses.
    Unusable,
}

impl AddressScope {
    pub(crate) fn of(ip: IpAddr) -> AddressScope {
        match ip.to_canonical() {
            IpAddr::V4(ip) => AddressScope::of_v4(ip),
            IpAddr::V6(ip) if ip.is_loopback() => AddressScope::Loopback,
            IpAddr::V6(ip) if ip.is_unique_local() => AddressScope::Private,
            IpAddr::V6(ip) => {
                let local = ip.is_unicast_link_local();
                match ip.is_unspecified() || ip.is_multicast() || local {
                    true => AddressScope::Unusable,
                    false => AddressScope::Public,
                }
            }
        }
    }

    fn of_v4(ip: Ipv4Addr) -> AddressScope {
        match ip.octets() {
            [127, ..] => AddressScope::Loopback,
            // Beyond 224 are multicast and what is reserved for a future that will not come.
            [0 | 224..=255, ..] | [169, 254, ..] => AddressScope::Unusable,
            [100, 64..=127, ..] => AddressScope::Private,
            _ if ip.is_private() => AddressScope::Private,
            _ => AddressScope::Public,
        }
    }

    /// Whether a client at `client` may be sent to a peer with this scope. A forwarder must not be
    /// able to point clients at services inside their networks.
    pub(crate) fn is_reachable_from(self, client: IpAddr) -> bool {
        let client = AddressScope::of(client);
        match self {
            AddressScope::Public => true,
            AddressScope::Private => client != AddressScope::Public,
            AddressScope::Loopback => client == AddressScope::Loopback,
            AddressScope::Unusable => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_are_not_sent_into_networks_they_are_not_in() {
        let reachable = |peer: &str, client: &str| {
            let scope = AddressScope::of(peer.parse().unwrap());
            scope.is_reachable_from(client.parse().unwrap())
        };
        for nobody in [
            "0.1.2.3",
            "169.254.1.1",
            "240.0.0.1",
            "255.255.255.255",
            "224.0.0.1",
        ] {
            assert!(!reachable(nobody, "127.0.0.1"), "{nobody}");
        }
        for nobody in ["::", "fe80::1", "ff02::1", "::ffff:0.0.0.0"] {
            assert!(!reachable(nobody, "::1"), "{nobody}");
        }
        for private in [
            "10.0.0.1",
            "172.16.0.1",
            "192.168.1.1",
            "100.64.0.1",
            "fd00::1",
        ] {
            assert!(!reachable(private, "198.51.100.1"), "{private}");
            assert!(reachable(private, "192.168.7.7"), "{private}");
        }
        assert!(!reachable("127.0.0.1", "10.0.0.1") && !reachable("::1", "fd00::1"));
        assert!(reachable("127.0.0.1", "127.0.0.1"));
        assert!(reachable("8.8.8.8", "198.51.100.1") && reachable("2001:db8::1", "10.0.0.1"));
    }
}
