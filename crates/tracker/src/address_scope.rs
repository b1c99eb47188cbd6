//! The scope of an IP address: whom it can be reached by.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

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
            IpAddr::V6(ip) => AddressScope::of_v6(ip),
        }
    }

    fn of_v6(ip: Ipv6Addr) -> AddressScope {
        let v4 = |high: u16, low: u16| {
            let bits = u32::from(high) << 16 | u32::from(low);
            AddressScope::of_v4(Ipv4Addr::from_bits(bits))
        };
        match ip.segments() {
            _ if ip.is_loopback() => AddressScope::Loopback,
            _ if ip.is_unique_local() => AddressScope::Private,
            // Two ways to reach an IPv4 address: 6to4 (RFC 3056) and NAT64 (RFC 6052).
            [0x2002, high, low, ..] => v4(high, low),
            [0x64, 0xff9b, 0, 0, 0, 0, high, low] => v4(high, low),
            // The only block that is assigned to hosts.
            [0x2000..=0x3fff, ..] => AddressScope::Public,
            _ => AddressScope::Unusable,
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
        for nobody in [
            "::",
            "fe80::1",
            "fec0::1",
            "ff02::1",
            "::ffff:0.0.0.0",
            "::10.0.0.1",
            "4000::1",
            "2002:a9fe:a9fe::1",
            "64:ff9b::169.254.169.254",
        ] {
            assert!(!reachable(nobody, "::1"), "{nobody}");
        }
        for inside in ["2002:7f00:1::1", "64:ff9b::127.0.0.1", "64:ff9b::10.0.0.1"] {
            assert!(!reachable(inside, "198.51.100.1"), "{inside}");
        }
        assert!(reachable("64:ff9b::8.8.8.8", "2001:db8::1"));
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
