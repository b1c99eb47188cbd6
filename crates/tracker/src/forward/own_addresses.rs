//! The public addresses under which forwarders know our local peers.
//!
//! Forwarders see this machine's address, or that of its network, with a client's port, and report
//! it like any other peer. A client must not be told of itself, and such an entry is no yield.
//!
//! A public address of this machine is ours without a word of anybody.
//!
//! A forwarder may lie, so that a peer of its choice is hidden from clients. The word of one host
//! therefore applies to its own responses only. Two hosts that agree are believed for all.
//!
//! Most forwarders over UDP say nothing, but report our clients like other peers. A peer with the
//! port of a local peer is no evidence, in however many torrents it is reported: many clients use
//! the same port, and a popular seeder is in many torrents. An address with two such ports is, if
//! two hosts report it: few addresses have several clients, and hardly any the ports of ours. A
//! client that gets its own address loses a connection; one that never gets a seeder may lose the
//! download.

use crate::active_config::is_of_this_machine;
use crate::address_scope::AddressScope;
use parking_lot::Mutex;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;
use tokio::time::Instant;

/// The most learned addresses per host and family. A line that is redialled gets a new one every
/// day.
const MAX_LEARNED: usize = 4;
/// The number of hosts whose agreement makes an address ours for all.
const AGREEING: usize = 2;

/// The most addresses per host and family that were reported with the port of a local peer.
const MAX_REPORTED: usize = 64;
/// The most addresses that are known to be, or not to be, addresses of this machine.
const MAX_LOOKED_UP: usize = 1024;
/// The time for which that is known. A machine may get other addresses.
const LOOKED_UP_FOR: Duration = Duration::from_secs(600);

/// Our own public addresses.
pub(super) struct OwnAddresses {
    inner: Mutex<Inner>,
    /// Whether this machine has an address.
    is_here: fn(IpAddr) -> bool,
}

impl Default for OwnAddresses {
    fn default() -> Self {
        OwnAddresses {
            inner: Mutex::default(),
            is_here: is_of_this_machine,
        }
    }
}

#[derive(Default)]
struct Inner {
    /// By the host of the forwarders.
    hosts: HashMap<String, Learned>,
    /// Learned from enough hosts.
    agreed: Vec<IpAddr>,
    /// Addresses that this machine has or has not, with the time of the look.
    here: HashMap<IpAddr, (bool, Instant)>,
}

/// The addresses that one host taught us.
#[derive(Default)]
struct Learned {
    /// Those that it says it sees us at, the most recent last.
    own: VecDeque<IpAddr>,
    /// Those that it reported with the port of a local peer, the most recent last.
    reported: VecDeque<Reported>,
}

/// An address that was reported with the port of a local peer.
struct Reported {
    ip: IpAddr,
    port: u16,
    /// Whether it was reported with the port of another local peer, too.
    several: bool,
}

impl OwnAddresses {
    /// Learns the address that a forwarder at `host` says it sees us at.
    pub(super) fn learn(&self, host: &str, ip: IpAddr) {
        self.inner.lock().update(host, |host| {
            host.learn(ip.to_canonical());
        });
    }

    /// Learns from a peer with the port of a local peer that a forwarder at `host` reported.
    pub(super) fn learn_from_peer(&self, host: &str, peer: SocketAddr) {
        let ip = peer.ip().to_canonical();
        if AddressScope::of(ip) != AddressScope::Public {
            return;
        }
        self.check_machine(ip);
        self.inner.lock().update(host, |host| {
            host.learn_from_peer(ip, peer.port());
        });
    }

    /// Finds out whether this machine has an address, unless that is known.
    fn check_machine(&self, ip: IpAddr) {
        let now = Instant::now();
        let is_known = |here: &HashMap<IpAddr, (bool, Instant)>| {
            let known = here.get(&ip);
            known.is_some_and(|(_, at)| now.duration_since(*at) < LOOKED_UP_FOR)
        };
        if is_known(&self.inner.lock().here) {
            return;
        }
        // A system call, so not under the lock.
        let is_here = (self.is_here)(ip);
        let here = &mut self.inner.lock().here;
        if here.len() >= MAX_LOOKED_UP {
            here.retain(|_, (is_here, _)| *is_here);
        }
        here.insert(ip, (is_here, now));
    }

    /// Returns the addresses that are ours for all forwarders.
    pub(super) fn known(&self) -> Vec<IpAddr> {
        let inner = self.inner.lock();
        let here = inner.here.iter().filter(|(_, (is_here, _))| *is_here);
        let here = here.map(|(ip, _)| *ip);
        inner.agreed.iter().copied().chain(here).collect()
    }

    /// Returns the addresses that are ours as far as a forwarder at `host` says.
    pub(super) fn learned_from(&self, host: &str) -> Vec<IpAddr> {
        let inner = self.inner.lock();
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
        let before = learned.evidence();
        change(learned);
        // Most responses teach nothing new.
        if before != learned.evidence() {
            self.agree();
        }
    }

    fn agree(&mut self) {
        let all = self.hosts.values().flat_map(Learned::evidence);
        let mut hosts = HashMap::<IpAddr, usize>::new();
        for ip in all {
            *hosts.entry(ip).or_default() += 1;
        }
        hosts.retain(|_, count| *count >= AGREEING);
        self.agreed = hosts.into_keys().collect();
    }
}

impl Learned {
    /// Returns the addresses that are ours as far as this host shows, each once.
    fn evidence(&self) -> BTreeSet<IpAddr> {
        let several = self.reported.iter().filter(|reported| reported.several);
        let own = self.own.iter().copied();
        own.chain(several.map(|reported| reported.ip)).collect()
    }

    fn learn_from_peer(&mut self, ip: IpAddr, port: u16) {
        let known = self.reported.iter().position(|other| other.ip == ip);
        let mut reported = match known.and_then(|index| self.reported.remove(index)) {
            Some(known) => known,
            None => Reported {
                ip,
                port,
                several: false,
            },
        };
        reported.several |= reported.port != port;
        let same = |other: &&Reported| other.ip.is_ipv4() == ip.is_ipv4();
        if self.reported.iter().filter(same).count() >= MAX_REPORTED
            && let Some(oldest) = (self.reported.iter()).position(|other| same(&other))
        {
            self.reported.remove(oldest);
        }
        self.reported.push_back(reported);
    }

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
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn one_host_is_believed_for_its_own_responses_only() {
        let (own, ip) = (OwnAddresses::default(), IpAddr::from([198, 51, 100, 7]));
        own.learn("a", ip);
        own.learn("a", ip);
        assert!(own.known().is_empty() && own.learned_from("b").is_empty());
        own.learn("b", ip);
        assert_eq!(own.known(), [ip]);
        // A host that names many addresses displaces none of the others'.
        for last in 0..100 {
            own.learn("c", IpAddr::from([192, 0, 2, last]));
        }
        assert_eq!(own.known(), [ip]);
        for last in 0..10 {
            own.learn("b", IpAddr::from([203, 0, 113, last]));
        }
        assert!(own.known().is_empty(), "no longer");
    }

    #[test]
    fn two_ports_at_two_hosts_show_an_address_of_ours() {
        let own = OwnAddresses::default();
        for ip in ["45.33.32.7", "2600::7"] {
            let ip: IpAddr = ip.parse().unwrap();
            let report = |host: &str, port: u16| {
                own.learn_from_peer(host, SocketAddr::new(ip, port));
                own.known().contains(&ip)
            };
            // The same port, in however many torrents, and one host, with however many ports.
            for _ in 0..100 {
                assert!(!report("a", 6881) && !report("b", 6881) && !report("c", 6881));
            }
            assert!(!report("a", 51_413) && !report("a", 7000));
            assert!(report("b", 51_413));
            assert!(own.learned_from("c").is_empty());
        }
        // A host that says so is one of the two.
        let ip = IpAddr::from([45, 33, 32, 8]);
        own.learn("d", ip);
        own.learn_from_peer("a", SocketAddr::new(ip, 1));
        assert!(!own.known().contains(&ip));
        own.learn_from_peer("a", SocketAddr::new(ip, 2));
        assert!(own.known().contains(&ip));
    }

    #[tokio::test(start_paused = true)]
    async fn a_public_address_of_this_machine_is_ours() {
        static LOOKS: AtomicUsize = AtomicUsize::new(0);
        let own = OwnAddresses {
            is_here: |ip| {
                LOOKS.fetch_add(1, Ordering::Relaxed);
                ip == IpAddr::from([45, 33, 32, 7]) || AddressScope::of(ip) != AddressScope::Public
            },
            ..OwnAddresses::default()
        };
        for _ in 0..100 {
            for ip in [
                [45, 33, 32, 7],
                [45, 33, 32, 8],
                [127, 0, 0, 1],
                [10, 0, 0, 1],
            ] {
                own.learn_from_peer("a", SocketAddr::from((ip, 6881)));
            }
        }
        assert_eq!(own.known(), [IpAddr::from([45, 33, 32, 7])]);
        assert_eq!(LOOKS.load(Ordering::Relaxed), 2, "each once");
        tokio::time::advance(LOOKED_UP_FOR).await;
        own.learn_from_peer("a", SocketAddr::from(([45, 33, 32, 7], 6881)));
        assert_eq!(LOOKS.load(Ordering::Relaxed), 3, "and again later");
        for last in 0..5000 {
            let ip = std::net::Ipv4Addr::from_bits(0x0800_0000 + last);
            own.learn_from_peer("b", SocketAddr::from((ip, 6881)));
        }
        assert_eq!(own.known().len(), 1);
        let inner = own.inner.lock();
        assert!(
            inner.here.len() <= MAX_LOOKED_UP && inner.hosts["b"].reported.len() <= MAX_REPORTED
        );
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
