//! A swarm compared with a simple model of it.

use super::*;
use crate::address_scope::AddressScope;
use crate::clock::Seconds;
use crate::config::CountBy;
use crate::forwarders::ForwarderId;
use headworks_tracker_wire::PeerId;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

#[derive(Clone, Debug)]
enum Step {
    Announce(u8, u8, bool),
    Stop(u8, u8),
    Report(u8, u8),
    Purge(u8),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (0..40u8, 0..3u8, any::<bool>()).prop_map(|(ip, port, seeder)| Step::Announce(ip, port, seeder)),
        2 => (0..40u8, 0..3u8).prop_map(|(ip, port)| Step::Stop(ip, port)),
        2 => (0..40u8, 0..3u8).prop_map(|(ip, port)| Step::Report(ip, port)),
        1 => (0..60u8).prop_map(Step::Purge),
    ];
    proptest::collection::vec(step, 0..200)
}

/// Odd addresses are IPv6.
fn address(ip: u8, port: u8) -> PackedAddress {
    let text = if ip.is_multiple_of(2) {
        format!("10.0.0.{ip}")
    } else {
        format!("fd00::{ip}")
    };
    PackedAddress::new(text.parse().unwrap(), 1000 + u16::from(port))
}

/// An IP address and a port.
type Endpoint = (u8, u8);

#[derive(Default)]
struct Model {
    local: BTreeMap<Endpoint, (bool, Seconds)>,
    cached: BTreeMap<Endpoint, Seconds>,
}

impl Model {
    fn counts_by_ip(&self) -> (usize, usize) {
        let seeders = self.local.iter().filter(|(_, (seeder, _))| *seeder);
        let complete: BTreeSet<u8> = seeders
            .map(|((ip, _), _)| *ip)
            .chain(self.cached.keys().map(|(ip, _)| *ip))
            .collect();
        let all: BTreeSet<u8> = self.local.keys().map(|(ip, _)| *ip).collect();
        (complete.len(), all.difference(&complete).count())
    }
}

#[test]
fn the_oldest_cached_peer_makes_room_for_a_new_one() {
    const LIMIT: usize = 3;
    let mut swarm = Swarm::default();
    let mut report = |now, ip| {
        swarm.upsert_cached(now, address(ip, 0), ForwarderId(3), LIMIT, CountBy::Ip);
        let record = swarm.record.as_ref().unwrap();
        let cached: Vec<bool> = (0..6).map(|ip| record.has_cached(address(ip, 0))).collect();
        assert!(record.len() <= LIMIT);
        let cached_peers = record.len();
        assert_eq!(swarm.counts(CountBy::Ip).complete as usize, cached_peers);
        cached
    };
    for ip in 0..3 {
        report(10 + Seconds::from(ip), ip);
    }
    // Reported again, so the second is the oldest now.
    report(20, 0);
    assert_eq!(report(21, 3), [true, false, true, true, false, false]);
    assert_eq!(report(22, 4), [true, false, false, true, true, false]);
    // Peers of the same report do not replace each other.
    report(30, 0);
    report(30, 1);
    report(30, 2);
    assert_eq!(report(30, 5), [true, true, true, false, false, false]);
}

/// Returns the number of cached peers of each of two forwarders.
fn shares(swarm: &Swarm) -> [usize; 2] {
    let record = swarm.record.as_ref().unwrap();
    [0, 1].map(|id| {
        let all = record.v4.iter();
        all.filter(|(_, by, _)| *by == ForwarderId(id)).count()
    })
}

#[test]
fn a_forwarder_that_reports_many_peers_replaces_its_own() {
    const LIMIT: usize = 500;
    let mut swarm = Swarm::default();
    let mut report = |now: Seconds, forwarder: u16, first: u32, count: u32| {
        for number in first..first + count {
            let ip = std::net::Ipv4Addr::from_bits(0x0100_0000 + number);
            let at = PackedAddress::new(ip.into(), 1);
            swarm.upsert_cached(now, at, ForwarderId(forwarder), LIMIT, CountBy::Ip);
        }
        shares(&swarm)
    };
    assert_eq!(report(1, 0, 0, 200), [200, 0]);
    // It invents others each time.
    for round in 0..20 {
        report(2 + round, 1, 10_000 * (1 + round), 200);
    }
    assert_eq!(report(30, 1, 900_000, 200), [200, 300]);
    // Once it holds more than others, their new peers replace its.
    assert_eq!(report(31, 0, 1000, 200), [250, 250]);
    // Alone it may have everything.
    assert_eq!(swarm.cached_peers(), LIMIT);
}

proptest! {
    #[test]
    fn a_swarm_matches_its_model(steps in steps(), want in 0..60usize, random in any::<u32>()) {
        let (mut swarm, mut model) = (Swarm::default(), Model::default());
        for (now, step) in steps.into_iter().enumerate() {
            let now = now as Seconds;
            match step {
                Step::Announce(ip, port, seeder) => {
                    let peer = Peer { id: PeerId([ip + 1; 20]), key: 0, seeder, last_announce: now };
                    swarm.upsert_peer(address(ip, port).ip(), address(ip, port), peer, CountBy::Ip);
                    model.local.insert((ip, port), (seeder, now));
                    model.cached.remove(&(ip, port));
                }
                Step::Stop(ip, port) => {
                    swarm.remove_peer(address(ip, port), CountBy::Ip);
                    model.local.remove(&(ip, port));
                }
                Step::Report(ip, port) => {
                    let new = swarm.upsert_cached(now, address(ip, port), ForwarderId(3), 1000, CountBy::Ip);
                    let local = model.local.contains_key(&(ip, port));
                    prop_assert_eq!(new, !local && !model.cached.contains_key(&(ip, port)));
                    if !local {
                        model.cached.insert((ip, port), now);
                    }
                }
                Step::Purge(age) => {
                    let before = now.saturating_sub(u32::from(age));
                    swarm.purge(before, CountBy::Ip, |_| ());
                    model.local.retain(|_, (_, last)| *last >= before);
                    model.cached.retain(|_, seen| *seen >= before);
                }
            }
            let counts = swarm.counts(CountBy::Ip);
            prop_assert_eq!((counts.complete as usize, counts.incomplete as usize), model.counts_by_ip());
            prop_assert_eq!(swarm.local_peers(), model.local.len());
            let seeders = model.local.values().filter(|(seeder, _)| *seeder).count();
            let counts = swarm.counts(CountBy::Peer);
            prop_assert_eq!(counts.complete as usize, seeders + model.cached.len());
            prop_assert_eq!(counts.incomplete as usize, model.local.len() - seeders);
        }
        for seeder in [false, true] {
            let PackedAddress::V4(own) = address(0, 0) else { unreachable!() };
            let sample = PeerSample { want, id: PeerId([1; 20]), seeder, scope: AddressScope::Private, random };
            let mut out = Vec::new();
            swarm.sample_peers_v4(&sample, Some(&own), &mut out);
            let sampled: BTreeSet<_> = out.chunks(6).map(<[u8]>::to_vec).collect();
            prop_assert_eq!(sampled.len() * 6, out.len(), "no peer twice");
            let useful = |ip: u8, is_seeder: bool| ip.is_multiple_of(2) && ip != 0 && !(seeder && is_seeder);
            let local = model.local.iter().filter(|((ip, _), (s, _))| useful(*ip, *s)).count();
            let cached = model.cached.keys().filter(|(ip, _)| ip % 2 == 0).count();
            prop_assert_eq!(sampled.len(), (local + cached).min(want), "as many as possible");
        }
    }
}
