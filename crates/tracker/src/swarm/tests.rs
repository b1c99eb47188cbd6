//! Swarms against a plain model of them.

use super::*;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

#[derive(Clone, Debug)]
enum Step {
    Hear(u8, u8, bool),
    Leave(u8, u8),
    Find(u8, u8),
    Purge(u8),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (0..40u8, 0..3u8, any::<bool>()).prop_map(|(ip, port, seeder)| Step::Hear(ip, port, seeder)),
        2 => (0..40u8, 0..3u8).prop_map(|(ip, port)| Step::Leave(ip, port)),
        2 => (0..40u8, 0..3u8).prop_map(|(ip, port)| Step::Find(ip, port)),
        1 => (0..60u8).prop_map(Step::Purge),
    ];
    proptest::collection::vec(step, 0..200)
}

/// Odd addresses are IPv6.
fn at(ip: u8, port: u8) -> Packed {
    let text = if ip.is_multiple_of(2) {
        format!("10.0.0.{ip}")
    } else {
        format!("fd00::{ip}")
    };
    Packed::new(text.parse().unwrap(), 1000 + u16::from(port))
}

type Place = (u8, u8);

#[derive(Default)]
struct Model {
    local: BTreeMap<Place, (bool, Seconds)>,
    found: BTreeMap<Place, Seconds>,
}

impl Model {
    fn counts_by_ip(&self) -> (usize, usize) {
        let seeders = self.local.iter().filter(|(_, (seeder, _))| *seeder);
        let complete: BTreeSet<u8> = seeders
            .map(|((ip, _), _)| *ip)
            .chain(self.found.keys().map(|(ip, _)| *ip))
            .collect();
        let all: BTreeSet<u8> = self.local.keys().map(|(ip, _)| *ip).collect();
        (complete.len(), all.difference(&complete).count())
    }
}

proptest! {
    #[test]
    fn a_swarm_is_what_its_model_is(steps in steps(), want in 0..60usize, random in any::<u32>()) {
        let (mut swarm, mut model) = (Swarm::default(), Model::default());
        for (now, step) in steps.into_iter().enumerate() {
            let now = now as Seconds;
            match step {
                Step::Hear(ip, port, seeder) => {
                    swarm.hear(now, at(ip, port), PeerId([ip + 1; 20]), seeder, CountBy::Ip);
                    model.local.insert((ip, port), (seeder, now));
                    model.found.remove(&(ip, port));
                }
                Step::Leave(ip, port) => {
                    swarm.leave(at(ip, port), CountBy::Ip);
                    model.local.remove(&(ip, port));
                }
                Step::Find(ip, port) => {
                    let new = swarm.find(now, at(ip, port), 3, 1000, CountBy::Ip);
                    let local = model.local.contains_key(&(ip, port));
                    prop_assert_eq!(new, !local && !model.found.contains_key(&(ip, port)));
                    if !local {
                        model.found.insert((ip, port), now);
                    }
                }
                Step::Purge(age) => {
                    let before = now.saturating_sub(u32::from(age));
                    swarm.purge(before, CountBy::Ip);
                    model.local.retain(|_, (_, heard)| *heard >= before);
                    model.found.retain(|_, seen| *seen >= before);
                }
            }
            let counts = swarm.counts(CountBy::Ip);
            prop_assert_eq!((counts.complete as usize, counts.incomplete as usize), model.counts_by_ip());
            prop_assert_eq!(swarm.local_peers(), model.local.len());
            let seeders = model.local.values().filter(|(seeder, _)| *seeder).count();
            let counts = swarm.counts(CountBy::Peer);
            prop_assert_eq!(counts.complete as usize, seeders + model.found.len());
            prop_assert_eq!(counts.incomplete as usize, model.local.len() - seeders);
        }
        for seeder in [false, true] {
            let Packed::V4(me) = at(0, 0) else { unreachable!() };
            let draw = Draw { want, id: PeerId([1; 20]), seeder, random };
            let mut out = Vec::new();
            swarm.draw4(&draw, Some(&me), &mut out);
            let drawn: BTreeSet<_> = out.chunks(6).map(<[u8]>::to_vec).collect();
            prop_assert_eq!(drawn.len() * 6, out.len(), "nobody twice");
            let useful = |ip: u8, is_seeder: bool| ip.is_multiple_of(2) && ip != 0 && !(seeder && is_seeder);
            let local = model.local.iter().filter(|((ip, _), (s, _))| useful(*ip, *s)).count();
            let found = model.found.keys().filter(|(ip, _)| ip % 2 == 0).count();
            prop_assert_eq!(drawn.len(), (local + found).min(want), "as many as there are");
        }
    }
}
