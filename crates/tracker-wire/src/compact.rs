//! Compact peer addresses: 4 bytes of IPv4 or 16 bytes of IPv6, then a 2-byte port, big-endian.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// An IPv4 address and port.
pub type Compact4 = [u8; 6];
/// An IPv6 address and port.
pub type Compact6 = [u8; 18];

/// Packs an IPv4 address.
#[must_use]
pub fn pack4(ip: Ipv4Addr, port: u16) -> Compact4 {
    let ([a, b, c, d], [high, low]) = (ip.octets(), port.to_be_bytes());
    [a, b, c, d, high, low]
}

/// Packs an IPv6 address.
#[must_use]
pub fn pack6(ip: Ipv6Addr, port: u16) -> Compact6 {
    let mut packed = [0; 18];
    packed[..16].copy_from_slice(&ip.octets());
    packed[16..].copy_from_slice(&port.to_be_bytes());
    packed
}

/// Unpacks an IPv4 address.
#[must_use]
pub fn unpack4(packed: &Compact4) -> SocketAddr {
    let [a, b, c, d, high, low] = *packed;
    let ip = Ipv4Addr::new(a, b, c, d);
    SocketAddr::new(IpAddr::V4(ip), u16::from_be_bytes([high, low]))
}

/// Unpacks an IPv6 address.
#[must_use]
pub fn unpack6(packed: &Compact6) -> SocketAddr {
    let (ip, port) = packed
        .split_first_chunk::<16>()
        .expect("18 bytes begin with 16");
    let ip = IpAddr::V6(Ipv6Addr::from(*ip));
    SocketAddr::new(ip, u16::from_be_bytes([port[0], port[1]]))
}

/// Unpacks a list of IPv4 addresses. Trailing bytes that do not make an address are ignored.
pub fn unpack_all4(bytes: &[u8]) -> impl Iterator<Item = SocketAddr> + '_ {
    bytes.as_chunks::<6>().0.iter().map(unpack4)
}

/// Unpacks a list of IPv6 addresses. Trailing bytes that do not make an address are ignored.
pub fn unpack_all6(bytes: &[u8]) -> impl Iterator<Item = SocketAddr> + '_ {
    bytes.as_chunks::<18>().0.iter().map(unpack6)
}
