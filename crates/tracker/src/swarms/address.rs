//! Peer addresses in the compact form of the protocol.

use crate::address_scope::AddressScope;
use headworks_tracker_wire::compact::{Compact4, Compact6, pack4, pack6, unpack4, unpack6};
use std::net::{IpAddr, Ipv6Addr};

/// A peer's IP address and port in compact form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum PackedAddress {
    V4(Compact4),
    V6(Compact6),
}

impl PackedAddress {
    /// Packs an address. An IPv4-mapped IPv6 address becomes IPv4, so that one peer has one
    /// address.
    pub(crate) fn new(ip: IpAddr, port: u16) -> PackedAddress {
        match ip.to_canonical() {
            IpAddr::V4(ip) => PackedAddress::V4(pack4(ip, port)),
            IpAddr::V6(ip) => PackedAddress::V6(pack6(ip, port)),
        }
    }

    /// Returns the IP address.
    pub(crate) fn ip(self) -> IpAddr {
        match self {
            PackedAddress::V4(packed) => unpack4(&packed).ip(),
            PackedAddress::V6(packed) => unpack6(&packed).ip(),
        }
    }

    /// Returns the address without its port as a number.
    pub(super) fn ip_number(self) -> u128 {
        match self {
            PackedAddress::V4(packed) => ip_number(&packed),
            PackedAddress::V6(packed) => ip_number(&packed),
        }
    }
}

/// Returns a compact address without its port as a number. IPv4 is mapped into IPv6, so that the
/// two families cannot collide.
pub(super) fn ip_number<const N: usize>(packed: &[u8; N]) -> u128 {
    let mut bytes = [0; 16];
    if N == 6 {
        bytes[10..12].fill(0xff);
        bytes[12..].copy_from_slice(&packed[..4]);
    } else {
        bytes.copy_from_slice(&packed[..16]);
    }
    u128::from_be_bytes(bytes)
}

/// Returns the number of bytes of a compact address that count as one client: an IPv4 address, or
/// the 64 bits of an IPv6 address that a provider assigns.
pub(super) const fn network_len<const N: usize>() -> usize {
    if N == 6 { 4 } else { 8 }
}

/// Returns the IPv6 network of an address without its port, as a number; `None` for IPv4.
pub(super) fn v6_network(ip: u128) -> Option<u64> {
    (ip >> 32 != 0xffff).then_some((ip >> 64) as u64)
}

/// Returns the scope of a compact address.
pub(super) fn scope<const N: usize>(packed: &[u8; N]) -> AddressScope {
    AddressScope::of(Ipv6Addr::from_bits(ip_number(packed)).into())
}
