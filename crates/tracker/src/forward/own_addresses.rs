//! The public addresses under which forwarders know our local peers.
//!
//! Forwarders see this machine's address, or that of its network, with a client's port, and report
//! it like any other peer. A client must not be told of itself, and such an entry is no yield.
//!
//! A forwarder may lie, so that a peer of its choice is hidden from clients. The word of one host
//! therefore applies to its own responses only. Two hosts that agree are believed for all.
//!
//! A peer with the port of a local peer is no evidence, in however many torrents it is reported:
//! many clients use the same port, and a popular seeder is in many torrents. A client that gets its
//! own address loses a connection; one that never gets a seeder may lose the download.

use parking_lot::Mutex;
use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;

/// The most learned addresses per host and family. A line that is redialled gets a new one every
/// day.
const MAX_LEARNED: usize = 4;
/// The number of hosts whose agreement makes an address ours for all.
const AGREEING: usize = 2;

/// Our own public addresses.
#[derive(Default)]
pub(super) struct OwnAddresses(Mutex<Inner>);

#[derive(Default)]
struct Inner {
    /// By the host of the forwarders.
    hosts: HashMap<String, Learned>,
    /// Learned from enough hosts.
    agreed: Vec<IpAddr>,
}

/// The addresses that one host taught us.
#[derive(Default)]
struct Learned {
    /// The most recent last.
    own: VecDeque<IpAddr>,
}

impl OwnAddresses {
    /// Learns the address that a forwarder at `host` says it sees us at.
    pub(super) fn learn(&self, host: &str, ip: IpAddr) {
        self.0.lock().update(host, |host| {
            host.learn(ip.to_canonical());
        });
    }

    /// Returns the addresses that are ours for all forwarders.
    pub(super) fn agreed(&self) -> Vec<IpAddr> {
        self.0.lock().agreed.clone()
    }

    /// Returns the addresses that are ours as far as a forwarder at `host` says.
    pub(super) fn learned_from(&self, host: &str) -> Vec<IpAddr> {
        let inner = self.0.lock();
        let host = inner.hosts.get(host);
        host.map_or_else(Vec::new, |host| host.own.iter().copied().collect())
    }
}

impl Inner {
    fn update(&mut self, host: &str, change: impl FnOnce(&mut Learned)) {
        let learned = match self.hosts.get_mut(host) {
            Some(learned) => learned,
            None => self.hosts.entry(host.to_owned()).or_default(),
        };
        let before = learned.own.clone();
        change(learned);
        // Most responses teach nothing new.
        if before.iter().any(|ip| !learned.own.contains(ip)) || before.len() != learned.own.len() {
            self.agree();
        }
    }

    fn agree(&mut self) {
        let all = self.hosts.values().flat_map(|host| &host.own);
        let mut hosts = HashMap::<IpAddr, usize>::new();
        for ip in all {
            *hosts.entry(*ip).or_default() += 1;
        }
        hosts.retain(|_, count| *count >= AGREEING);
        self.agreed = hosts.into_keys().collect();
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
    fn one_host_is_believed_for_its_own_responses_only() {
        let (own, ip) = (OwnAddresses::default(), IpAddr::from([198, 51, 100, 7]));
        own.learn("a", ip);
        own.learn("a", ip);
        assert!(own.agreed().is_empty() && own.learned_from("b").is_empty());
        own.learn("b", ip);
        assert_eq!(own.agreed(), [ip]);
        // A host that names many addresses displaces none of the others'.
        for last in 0..100 {
            own.learn("c", IpAddr::from([192, 0, 2, last]));
        }
        assert_eq!(own.agreed(), [ip]);
        for last in 0..10 {
            own.learn("b", IpAddr::from([203, 0, 113, last]));
        }
        assert!(own.agreed().is_empty(), "no longer");
    }

    #[test]
    fn few_addresses_per_family_are_kept() {
        let own = OwnAddresses::default();
        own.learn("a", "2001:db8::1".parse().unwrap());
        for last in 0..10 {
            own.learn("a", IpAddr::from([198, 51, 100, last]));
        }
        let kept = own.learned_from("a");
        assert_eq!(kept.len(), MAX_LEARNED + 1);
        assert!(kept.contains(&IpAddr::from([198, 51, 100, 9])));
    }
}
