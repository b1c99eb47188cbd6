//! The scope of an IP address: whom it can be reached by.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The scope of an IP address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AddressScope {
    /// Anybody.
    Public,
    /// Only hosts of the same private network (RFC 1918, RFC 4193, RFC 6598).
    Private,
    /// Only hosts on the same link.
    LinkLocal,
    /// Only this machine.
    Loopback,
    /// Nobody: unspecified, multicast, broadcast, documentation, benchmarking and otherwise
    /// reserved addresses.
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
            _ if ip.is_unicast_link_local() => AddressScope::LinkLocal,
            // Two ways to reach an IPv4 address: 6to4 (RFC 3056) and NAT64 (RFC 6052).
            [0x2002, high, low, ..] => v4(high, low),
            [0x64, 0xff9b, 0, 0, 0, 0, high, low] => v4(high, low),
            // Documentation (RFC 3849, RFC 9637), and protocol assignments (RFC 2928), which
            // include benchmarking and Teredo.
            [0x2001, 0xdb8 | 0..=0x1ff, ..] | [0x3fff, 0..=0xfff, ..] => AddressScope::Unusable,
            // The only block that is assigned to hosts.
            [0x2000..=0x3fff, ..] => AddressScope::Public,
            _ => AddressScope::Unusable,
        }
    }

    fn of_v4(ip: Ipv4Addr) -> AddressScope {
        match ip.octets() {
            [127, ..] => AddressScope::Loopback,
            [169, 254, ..] => AddressScope::LinkLocal,
            // Beyond 224 are multicast and what is reserved for a future that will not come.
            [0 | 224..=255, ..] => AddressScope::Unusable,
            // Protocol assignments (RFC 6890), the former relays of 6to4 (RFC 7526), benchmarking
            // (RFC 2544) and documentation (RFC 5737).
            [192, 0, 0 | 2, _]
            | [192, 88, 99, _]
            | [198, 18 | 19, ..]
            | [198, 51, 100, _]
            | [203, 0, 113, _] => AddressScope::Unusable,
            [100, 64..=127, ..] => AddressScope::Private,
            _ if ip.is_private() => AddressScope::Private,
            _ => AddressScope::Public,
        }
    }

    /// Whether a client with scope `client` may be sent to a peer with this scope. Nobody must be
    /// able to point clients at services inside their networks.
    pub(crate) fn is_reachable_from(self, client: AddressScope) -> bool {
        match self {
            AddressScope::Public => true,
            AddressScope::Private => matches!(
                client,
                AddressScope::Private | AddressScope::LinkLocal | AddressScope::Loopback
            ),
            AddressScope::LinkLocal | AddressScope::Loopback => client == self,
            AddressScope::Unusable => false,
        }
    }
}

/// A set of scopes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ScopeSet(u8);

impl ScopeSet {
    pub(crate) fn insert(&mut self, scope: AddressScope) {
        self.0 |= 1 << scope as u8;
    }

    /// Whether a client with scope `client` may be sent to peers of every scope in the set.
    pub(crate) fn is_reachable_from(self, client: AddressScope) -> bool {
        const ALL: [AddressScope; 5] = [
            AddressScope::Public,
            AddressScope::Private,
            AddressScope::LinkLocal,
            AddressScope::Loopback,
            AddressScope::Unusable,
        ];
        ALL.iter().all(|scope| {
            let contained = self.0 & (1 << *scope as u8) != 0;
            !contained || scope.is_reachable_from(client)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scope(ip: &str) -> AddressScope {
        AddressScope::of(ip.parse().unwrap())
    }

    fn reachable(peer: &str, client: &str) -> bool {
        scope(peer).is_reachable_from(scope(client))
    }

    #[test]
    fn clients_are_not_sent_into_networks_they_are_not_in() {
        for nobody in [
            "0.1.2.3",
            "192.0.0.8",
            "192.0.2.1",
            "192.88.99.1",
            "198.18.0.1",
            "198.19.255.255",
            "198.51.100.1",
            "203.0.113.1",
            "224.0.0.1",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "fec0::1",
            "ff02::1",
            "::ffff:0.0.0.0",
            "::ffff:192.0.2.1",
            "::10.0.0.1",
            "4000::1",
            "2001::1",
            "2001:2::1",
            "2001:db8::1",
            "3fff::1",
            "2002:c000:201::1",
            "64:ff9b::203.0.113.1",
        ] {
            for client in ["127.0.0.1", "::1", "10.0.0.1", "169.254.1.2", "8.8.8.8"] {
                assert!(!reachable(nobody, client), "{nobody} from {client}");
            }
        }
        for link in [
            "169.254.169.254",
            "fe80::1",
            "2002:a9fe:a9fe::1",
            "64:ff9b::169.254.169.254",
        ] {
            for client in ["127.0.0.1", "::1", "10.0.0.1", "8.8.8.8", "192.0.2.1"] {
                assert!(!reachable(link, client), "{link} from {client}");
            }
            assert!(reachable(link, "169.254.1.2"), "{link}");
        }
        for private in [
            "10.0.0.1",
            "172.16.0.1",
            "192.168.1.1",
            "100.64.0.1",
            "fd00::1",
            "64:ff9b::10.0.0.1",
        ] {
            for client in ["8.8.8.8", "2600::1", "192.0.2.1"] {
                assert!(!reachable(private, client), "{private} from {client}");
            }
            for client in ["192.168.7.7", "fd00::7", "169.254.1.2", "127.0.0.1"] {
                assert!(reachable(private, client), "{private} from {client}");
            }
        }
        for loopback in ["127.0.0.1", "::1", "2002:7f00:1::1", "64:ff9b::127.0.0.1"] {
            for client in ["10.0.0.1", "fd00::1", "169.254.1.2", "8.8.8.8", "192.0.2.1"] {
                assert!(!reachable(loopback, client), "{loopback} from {client}");
            }
            assert!(reachable(loopback, "127.0.0.9"), "{loopback}");
        }
        for public in [
            "8.8.8.8",
            "192.0.1.1",
            "198.20.0.1",
            "2600::1",
            "2001:200::1",
            "3ffe::1",
            "64:ff9b::8.8.8.8",
        ] {
            for client in ["8.8.4.4", "2600::2", "10.0.0.1", "127.0.0.1", "192.0.2.1"] {
                assert!(reachable(public, client), "{public} from {client}");
            }
        }
    }

    #[test]
    fn a_set_is_reachable_if_all_of_it_is() {
        let set = |ips: &[&str]| {
            let mut set = ScopeSet::default();
            ips.iter().for_each(|ip| set.insert(scope(ip)));
            set
        };
        assert!(set(&[]).is_reachable_from(AddressScope::Public));
        assert!(set(&["8.8.8.8"]).is_reachable_from(AddressScope::Public));
        assert!(!set(&["8.8.8.8", "10.0.0.1"]).is_reachable_from(AddressScope::Public));
        assert!(set(&["8.8.8.8", "10.0.0.1"]).is_reachable_from(AddressScope::Private));
        assert!(!set(&["10.0.0.1", "192.0.2.1"]).is_reachable_from(AddressScope::Loopback));
    }
}
