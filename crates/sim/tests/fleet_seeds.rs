//! Random fleets: whatever goes wrong, limits hold at the upstream and every node makes progress.
//!
//! A few hundred fleets; ten thousand with `HEADWORKS_FULL=1`. A failing seed is printed:
//! `HEADWORKS_SEED=n cargo test -p headworks-sim --test fleet_seeds` replays it.

use headworks_sim::audit::Coverage;
use headworks_sim::fleet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

const SAMPLE: u64 = 250;
const ALL: u64 = 10_000;

/// Number of failures after which the remaining fleets are skipped.
const ENOUGH: usize = 20;

const UNPOISONED: &str = "nothing panics while it holds this";

/// The situations that must occur at least once.
const EVERYTHING: &[&str] = &[
    "cut off",
    "allocator cut off",
    "killed",
    "allocator killed",
    "left",
    "restarted",
    "exchange crashed",
    "exchange lost",
    "exchange away",
    "exchange away for longer than `forget_after`",
    "survived",
];

#[test]
fn every_fleet_keeps_its_limits_and_makes_progress() {
    if let Ok(seed) = std::env::var("HEADWORKS_SEED") {
        let seed = seed.parse().expect("HEADWORKS_SEED is a number");
        fleet::walk(seed).unwrap_or_else(|violation| panic!("seed {seed}: {violation}"));
        return;
    }
    let seeds = match std::env::var_os("HEADWORKS_FULL") {
        Some(_) => ALL,
        None => SAMPLE,
    };
    let next = AtomicU64::new(0);
    let total = Mutex::new((Coverage::default(), Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(2, usize::from) {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    let failed = total.lock().expect(UNPOISONED).1.len();
                    if seed >= seeds || failed >= ENOUGH {
                        break;
                    }
                    let walked = std::panic::catch_unwind(|| fleet::walk(seed));
                    let mut total = total.lock().expect(UNPOISONED);
                    match walked {
                        Ok(Ok(coverage)) => total.0.add(&coverage),
                        Ok(Err(violation)) => total.1.push(format!("seed {seed}: {violation}")),
                        Err(_) => total.1.push(format!("seed {seed}: panicked")),
                    }
                }
            });
        }
    });
    let (total, failures) = total.into_inner().expect("all fleets have ended");
    assert!(failures.is_empty(), "fleets failed: {failures:#?}");
    for (what, count) in total.iter() {
        println!("{count:>9}  {what}");
    }
    let missing: Vec<&&str> = EVERYTHING
        .iter()
        .filter(|what| total.count(what) == 0)
        .collect();
    assert!(missing.is_empty(), "no fleet came across: {missing:?}");
}
