//! The host of a forwarder's URI in one form, however a list spells it.

use crate::address_scope::AddressScope;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A host: an IP address or a name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Host {
    Ip(IpAddr),
    /// In lower case and without the dot of the root.
    Name(String),
}

impl Host {
    /// Parses a host as URL parsers and the system's resolver do: `127.1`, `0x7f000001`,
    /// `2130706433` and `[::ffff:127.0.0.1]` are all `127.0.0.1`.
    pub(crate) fn parse(text: &str) -> Host {
        let inner = text.trim_start_matches('[').trim_end_matches(']');
        if let Ok(ip) = inner.parse::<Ipv6Addr>() {
            return Host::Ip(IpAddr::from(ip).to_canonical());
        }
        let name = text.strip_suffix('.').unwrap_or(text).to_ascii_lowercase();
        match parse_v4(&name) {
            Some(ip) => Host::Ip(ip.into()),
            None => Host::Name(name),
        }
    }

    /// Returns the addresses of this machine that the host stands for. A connection to the
    /// unspecified address ends at loopback.
    pub(crate) fn local_addresses(&self) -> Vec<IpAddr> {
        let (v4, v6) = (Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into());
        match self {
            Host::Ip(IpAddr::V4(ip)) if ip.is_unspecified() => vec![v4],
            Host::Ip(IpAddr::V6(ip)) if ip.is_unspecified() => vec![v6, v4],
            Host::Ip(ip) => vec![*ip],
            Host::Name(name) if name == "localhost" || name.ends_with(".localhost") => {
                vec![v4, v6]
            }
            Host::Name(_) => Vec::new(),
        }
    }

    /// Returns a text that hosts of one owner often share: the network of an address, or the last
    /// two labels of a name.
    pub(crate) fn network(&self) -> String {
        match self {
            Host::Ip(IpAddr::V4(ip)) => Ipv4Addr::from_bits(ip.to_bits() >> 8 << 8).to_string(),
            Host::Ip(IpAddr::V6(ip)) => Ipv6Addr::from_bits(ip.to_bits() >> 80 << 80).to_string(),
            Host::Name(name) => {
                let labels: Vec<&str> = name.rsplit('.').take(2).collect();
                labels.join(".")
            }
        }
    }

    /// Returns the scope of an address, or of a name as far as its spelling tells: names that the
    /// public name service does not have are private.
    pub(crate) fn scope(&self) -> AddressScope {
        let local = self.local_addresses();
        match (self, local.first()) {
            (_, Some(ip)) => AddressScope::of(*ip),
            (Host::Name(name), None) if is_private_name(name) => AddressScope::Private,
            _ => AddressScope::Public,
        }
    }
}

/// Whether a name is one of a local network: of one word, or below a domain that is reserved for
/// such names (RFC 6762, RFC 8375, `.internal`) or widely used for them.
fn is_private_name(name: &str) -> bool {
    const DOMAINS: [&str; 4] = ["local", "home.arpa", "internal", "lan"];
    let below = |domain: &&str| {
        let rest = name.strip_suffix(*domain);
        rest.is_some_and(|rest| rest.ends_with('.'))
    };
    !name.contains('.') || DOMAINS.iter().any(below)
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Host::Ip(IpAddr::V6(ip)) => write!(f, "[{ip}]"),
            Host::Ip(ip) => ip.fmt(f),
            Host::Name(name) => f.write_str(name),
        }
    }
}

/// Parses an IPv4 address of one to four numbers, each decimal, octal or hexadecimal. The last one
/// fills the bytes that are left.
fn parse_v4(text: &str) -> Option<Ipv4Addr> {
    let parts: Vec<u32> = text.split('.').map(parse_number).collect::<Option<_>>()?;
    let (last, first) = parts.split_last()?;
    let left = 4u32
        .checked_sub(first.len() as u32)
        .filter(|left| *left > 0)?;
    let mut bits = (u64::from(*last) < 1 << (8 * left)).then_some(*last)?;
    for (index, part) in first.iter().enumerate() {
        bits |= u32::from(u8::try_from(*part).ok()?) << (24 - 8 * index);
    }
    Some(Ipv4Addr::from_bits(bits))
}

fn parse_number(text: &str) -> Option<u32> {
    let hexadecimal = text.strip_prefix("0x");
    let (digits, radix) = match (hexadecimal, text.strip_prefix('0')) {
        (Some(""), _) | (_, Some("")) => return Some(0),
        (Some(digits), _) => (digits, 16),
        (_, Some(digits)) => (digits, 8),
        _ => (text, 10),
    };
    // The parser of numbers would accept a sign.
    let plain = digits.bytes().all(|byte| byte.is_ascii_alphanumeric());
    plain.then(|| u32::from_str_radix(digits, radix).ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_to_write_an_address_is_that_address() {
        for text in [
            "127.0.0.1",
            "127.0.0.1.",
            "127.1",
            "127.0.1",
            "2130706433",
            "0x7f000001",
            "0X7F.0.0.0x1",
            "0177.0.0.01",
            "[::ffff:127.0.0.1]",
            "[::ffff:7f00:1]",
        ] {
            assert_eq!(Host::parse(text).to_string(), "127.0.0.1", "{text}");
        }
        for (text, expected) in [
            ("0", "0.0.0.0"),
            ("1.2.3.4", "1.2.3.4"),
            ("1.2.65535", "1.2.255.255"),
            ("4294967295", "255.255.255.255"),
            ("[::1]", "[::1]"),
            ("[2001:DB8:0::1]", "[2001:db8::1]"),
            ("Tracker.Example.", "tracker.example"),
        ] {
            assert_eq!(Host::parse(text).to_string(), expected, "{text}");
        }
        for name in [
            "1.2.3.256",
            "1.2.3.4.5",
            "1..2",
            "256.1",
            "4294967296",
            "08",
            "0xg",
            "+1",
            "1.2.3.a",
            "",
            ".",
        ] {
            assert!(matches!(Host::parse(name), Host::Name(_)), "{name}");
        }
    }

    #[test]
    fn a_name_of_a_local_network_is_private() {
        use AddressScope::{Loopback, Private, Public};
        for (host, expected) in [
            ("tracker", Private),
            ("tracker.lan", Private),
            ("a.b.LOCAL.", Private),
            ("tracker.home.arpa", Private),
            ("10.0.0.1", Private),
            ("localhost", Loopback),
            ("0.0.0.0", Loopback),
            ("tracker.example", Public),
            ("notlan.example", Public),
            ("a.notlan", Public),
            ("8.8.8.8", Public),
        ] {
            assert_eq!(Host::parse(host).scope(), expected, "{host}");
        }
    }

    #[test]
    fn hosts_of_one_owner_are_in_one_network() {
        let network = |text: &str| Host::parse(text).network();
        assert_eq!(network("8.8.8.8"), network("8.8.8.200"));
        assert_ne!(network("8.8.8.8"), network("8.8.9.8"));
        assert_eq!(network("[2600:1:2::1]"), network("[2600:1:2:3::1]"));
        assert_ne!(network("[2600:1:2::1]"), network("[2600:1:3::1]"));
        assert_eq!(network("a.example.com"), network("b.c.EXAMPLE.com."));
        assert_ne!(network("a.example.com"), network("a.example.org"));
    }
}
