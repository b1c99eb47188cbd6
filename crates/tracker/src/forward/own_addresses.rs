//! The public addresses under which forwarders know our local peers.
//!
//! Forwarders see this machine's address, or that of its network, with a client's port, and report
//! it like any other peer. A client must not be told of itself, and such an entry is no yield.

use headworks_tracker_wire::InfoHash;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::net::IpAddr;

/// The most learned addresses per family. A line that is redialled gets a new one every day.
const MAX_LEARNED: usize = 4;
/// The most addresses that may turn out to be ours.
const MAX_CANDIDATES: usize = 256;
/// The number of torrents in which an address must be reported with the port of our peer. One or
/// two may be chance, because many clients use the same port.
const TORRENTS: usize = 3;

/// Our own public addresses.
#[derive(Default)]
pub(super) struct OwnAddresses(Mutex<Learned>);

#[derive(Default)]
struct Learned {
    /// The most recent last.
    own: VecDeque<IpAddr>,
    candidates: VecDeque<Candidate>,
}

struct Candidate {
    ip: IpAddr,
    torrents: Vec<InfoHash>,
}

impl OwnAddresses {
    /// Learns the address that a forwarder says it sees us at.
    pub(super) fn learn(&self, ip: IpAddr) {
        self.0.lock().learn(ip.to_canonical());
    }

    /// Notes that a forwarder reported a peer with the port of the peer that was announced.
    pub(super) fn note_port(&self, ip: IpAddr, torrent: InfoHash) {
        let ip = ip.to_canonical();
        let mut learned = self.0.lock();
        if learned.own.contains(&ip) {
            return;
        }
        let position = learned.candidates.iter().position(|one| one.ip == ip);
        let mut candidate = position
            .and_then(|index| learned.candidates.remove(index))
            .unwrap_or(Candidate {
                ip,
                torrents: Vec::new(),
            });
        if !candidate.torrents.contains(&torrent) {
            candidate.torrents.push(torrent);
        }
        if candidate.torrents.len() >= TORRENTS {
            learned.learn(ip);
            return;
        }
        if learned.candidates.len() >= MAX_CANDIDATES {
            learned.candidates.pop_front();
        }
        learned.candidates.push_back(candidate);
    }

    /// Returns all learned addresses.
    pub(super) fn all(&self) -> Vec<IpAddr> {
        self.0.lock().own.iter().copied().collect()
    }
}

impl Learned {
    fn learn(&mut self, ip: IpAddr) {
        self.own.retain(|other| *other != ip);
        let same = |other: &&IpAddr| other.is_ipv4() == ip.is_ipv4();
        if self.own.iter().filter(same).count() >= MAX_LEARNED
            && let Some(oldest) = (self.own.iter()).position(|other| same(&other))
        {
            self.own.remove(oldest);
        }
        self.own.push_back(ip);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_with_our_port_in_three_torrents_is_ours() {
        let (own, ip) = (OwnAddresses::default(), IpAddr::from([198, 51, 100, 7]));
        for torrent in [1, 1, 2, 2] {
            own.note_port(ip, InfoHash([torrent; 20]));
        }
        assert!(own.all().is_empty());
        own.note_port(ip, InfoHash([3; 20]));
        assert_eq!(own.all(), [ip]);
    }

    #[test]
    fn few_addresses_per_family_are_kept() {
        let own = OwnAddresses::default();
        own.learn("2001:db8::1".parse().unwrap());
        for last in 0..10 {
            own.learn(IpAddr::from([198, 51, 100, last]));
        }
        assert_eq!(own.all().len(), MAX_LEARNED + 1);
        assert!(own.all().contains(&IpAddr::from([198, 51, 100, 9])));
    }
}
