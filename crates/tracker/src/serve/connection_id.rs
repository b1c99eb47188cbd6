//! Connection ids: a keyed hash of the client's address and the time, so that no client needs to be
//! remembered.

use crate::swarm::Seconds;
use siphasher::sip::SipHasher13;
use std::hash::Hasher;
use std::net::IpAddr;

/// How long an id is good for.
const VALID: u16 = 120;

/// Gives out ids and knows its own.
#[derive(Clone)]
pub(crate) struct ConnectionIds {
    key: (u64, u64),
}

impl ConnectionIds {
    pub(crate) fn new(key: (u64, u64)) -> Self {
        ConnectionIds { key }
    }

    /// 16 bits of time in seconds, and 48 of a hash that nobody else can make.
    pub(crate) fn give(&self, now: Seconds, client: IpAddr) -> u64 {
        let time = now as u16;
        u64::from(time) << 48 | self.hash(time, client)
    }

    pub(crate) fn is_good(&self, id: u64, now: Seconds, client: IpAddr) -> bool {
        let time = (id >> 48) as u16;
        let age = (now as u16).wrapping_sub(time);
        // A second of the future: threads read their clocks one after the other.
        (age <= VALID || age == u16::MAX) && id & MASK == self.hash(time, client)
    }

    fn hash(&self, time: u16, client: IpAddr) -> u64 {
        let mut hasher = SipHasher13::new_with_keys(self.key.0, self.key.1);
        match client {
            IpAddr::V4(ip) => hasher.write_u32(ip.to_bits()),
            IpAddr::V6(ip) => hasher.write_u128(ip.to_bits()),
        }
        hasher.write_u16(time);
        hasher.finish() & MASK
    }
}

const MASK: u64 = (1 << 48) - 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_good_for_two_minutes_and_for_their_client() {
        let ids = ConnectionIds::new((1, 2));
        let (me, other): (IpAddr, IpAddr) =
            ("10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap());
        for now in [5, 65_535, 65_536 + 60, 1_800_000_000] {
            let id = ids.give(now, me);
            assert!(ids.is_good(id, now, me) && ids.is_good(id, now + 120, me));
            assert!(!ids.is_good(id, now + 121, me), "expired");
            assert!(!ids.is_good(id, now, other), "somebody else's");
            assert!(
                !ids.is_good(id ^ 1, now, me) && !ids.is_good(id ^ 1 << 50, now, me),
                "forged"
            );
            assert!(
                !ConnectionIds::new((1, 3)).is_good(id, now, me),
                "another tracker's"
            );
        }
    }
}
