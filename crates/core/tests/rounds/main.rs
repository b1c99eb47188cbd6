//! Two coordinated sides over random trees, in memory and paged from a toy store, with retries,
//! failures, pauses, lost leases and a clock that sometimes goes back.
//!
//! The checker keeps its own books from the calls and answers.

mod resumed;
mod tree;
mod walker;
mod world;

use headworks_core::rounds::{Discovered, Rounds};
use headworks_core::{Coordinator, Side, Time};
use proptest::prelude::*;
use std::collections::BTreeSet;
use world::World;

fn drive(seed: u64, lag: u32, max_lead: u32, levels: u32, empty_destination: bool) -> World {
    let mut world = World::new(seed, lag, max_lead, levels, empty_destination);
    world.first_pass();
    world.later_pass();
    let all: BTreeSet<usize> = (0..world.tree.children.len()).collect();
    assert_eq!(world.leader.done, all);
    assert!(world.leader.failed.is_empty() && world.follower.failed.is_empty());
    let both = all.into_iter().filter(|&n| world.tree.on_both[n]);
    assert!(both.eq(world.follower.done.iter().copied()));
    world
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn two_sides_walk_every_tree_to_its_end(
        seed in any::<u64>(), lag in 1..=8u32, more in 0..8u32, levels in 0..12u32, empty in prop::bool::weighted(0.2),
    ) {
        drive(seed, lag, (lag + more).min(8), levels, empty);
    }
}

#[test]
fn no_lag_and_lead_up_to_eight_deadlocks() {
    let mut seen = [0; 11];
    for lag in 1..=8 {
        for max_lead in lag..=8 {
            for levels in 0..=12 {
                let seed = u64::from(lag * 1000 + max_lead * 100 + levels);
                let world = drive(seed, lag, max_lead, levels, false);
                for (sum, count) in seen.iter_mut().zip(world.seen.counts()) {
                    *sum += count;
                }
            }
        }
    }
    assert!(seen.iter().all(|&count| count >= 20), "{seen:?}");
}

#[test]
fn the_leader_does_use_its_lead() {
    let widest = (0..40).map(|seed| drive(seed, 3, 4, 10, false).widest);
    assert_eq!(widest.max(), Some(4));
}

/// A leader that waited for an empty destination would never end.
#[test]
fn an_empty_destination_never_blocks_the_source() {
    let mut coordinator = Coordinator::new(1, 1).unwrap();
    let (mut leader, mut follower) = (Rounds::default(), Rounds::<u32>::default());
    leader.seed(Time::ZERO, vec![0u32].into()).unwrap();
    follower.seed(Time::ZERO, Discovered::none()).unwrap();
    coordinator.report(Side::Follower, follower.position());
    for depth in 0..50 {
        let lease = leader.next(Time::ZERO).unwrap();
        let found = if depth < 49 { vec![depth + 1] } else { vec![] };
        let _ = leader.finish(Time::ZERO, lease.id, found.into());
        coordinator.report(Side::Leader, leader.position());
        if let Some(leave) = coordinator.leave(Side::Leader) {
            leader.advance(Time::ZERO, leave);
        }
    }
    assert!(leader.is_completed());
}
