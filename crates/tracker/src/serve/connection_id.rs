//! Connection ids of the UDP protocol: a keyed hash of the client's address and the time, so that
//! the tracker stores nothing per client.

use crate::clock::Seconds;
use siphasher::sip::SipHasher13;
use std::hash::Hasher;
use std::net::IpAddr;

/// The lifetime of an id in seconds (BEP 15).
const LIFETIME: u16 = 120;

/// Issues and verifies connection ids.
#[derive(Clone)]
pub(crate) struct ConnectionIds {
    key: (u64, u64),
}

impl ConnectionIds {
    pub(crate) fn new(key: (u64, u64)) -> Self {
        ConnectionIds { key }
    }

    /// Issues an id: 16 bits of time in seconds and 48 bits of keyed hash.
    pub(crate) fn issue(&self, now: Seconds, client: IpAddr) -> u64 {
        u64::from(now as u16) << 48 | self.hash(now, client)
    }

    /// Whether this tracker issued the id to that client within its lifetime.
    pub(crate) fn is_valid(&self, id: u64, now: Seconds, client: IpAddr) -> bool {
        let age = (now as u16).wrapping_sub((id >> 48) as u16);
        // The hash is of the whole time: the 16 bits in the id recur every 18 hours.
        let issued = match age {
            // Another thread may have read the clock just after this one.
            u16::MAX => now.wrapping_add(1),
            ..=LIFETIME => now.wrapping_sub(age.into()),
            _ => return false,
        };
        id & MASK == self.hash(issued, client)
    }

    fn hash(&self, time: Seconds, client: IpAddr) -> u64 {
        let mut hasher = SipHasher13::new_with_keys(self.key.0, self.key.1);
        match client {
            IpAddr::V4(ip) => hasher.write_u32(ip.to_bits()),
            IpAddr::V6(ip) => hasher.write_u128(ip.to_bits()),
        }
        hasher.write_u32(time);
        hasher.finish() & MASK
    }
}

const MASK: u64 = (1 << 48) - 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_valid_for_two_minutes_and_one_client() {
        let ids = ConnectionIds::new((1, 2));
        let (me, other): (IpAddr, IpAddr) =
            ("10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap());
        for now in [5, 65_535, 65_536 + 60, 1_800_000_000] {
            let id = ids.issue(now, me);
            assert!(ids.is_valid(id, now, me) && ids.is_valid(id, now + 120, me));
            assert!(!ids.is_valid(id, now + 121, me), "expired");
            assert!(!ids.is_valid(id, now + 65_536, me), "the 16 bits recur");
            assert!(ids.is_valid(id, now - 1, me), "a clock that was read later");
            assert!(!ids.is_valid(id, now, other), "of another client");
            assert!(
                !ids.is_valid(id ^ 1, now, me) && !ids.is_valid(id ^ 1 << 50, now, me),
                "forged"
            );
            assert!(
                !ConnectionIds::new((1, 3)).is_valid(id, now, me),
                "of another tracker"
            );
        }
    }
}
