//! Ten thousand audited random walks that together must reach every situation.
//!
//! A failing seed is printed. Replay it with `HEADWORKS_SEED=n cargo test -p headworks-sim --test
//! seeds`.

use headworks_sim::audit::Coverage;
use headworks_sim::chaos;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

const SEEDS: u64 = 10_000;
const STEPS: u32 = 400;

/// Number of failures after which the remaining walks are skipped.
const ENOUGH: usize = 20;

const UNPOISONED: &str = "nothing panics while it holds this";

/// The situations that must occur at least once.
const EVERYTHING: &[&str] = &[
    "ended done",
    "ended merged",
    "ended failed",
    "ended expired",
    "ended cancelled",
    "ended shed",
    "ended returned",
    "refused full",
    "refused target_full",
    "refused delayed_full",
    "refused duplicate",
    "refused merged",
    "refused too_large",
    "refused no_target",
    "refused suspended",
    "refused unknown_class",
    "refused expired",
    "refused deadline_unreachable",
    "refused draining",
    "limits set",
    "shut Everything(Share)",
    "shut Flow(Share)",
    "shut Targets(Some(Share))",
    "shut Everything(Concurrent)",
    "shut Everything(Requests)",
    "shut Everything(Cost)",
    "shut Flow(Concurrent)",
    "shut Flow(Requests)",
    "shut Flow(Cost)",
    "shut Targets(Some(Concurrent))",
    "shut Targets(Some(Requests))",
    "shut Targets(Some(Cost))",
    "shut Targets(None)",
    "target active",
    "target suspended",
    "target probation",
    "target disabled",
    "unservable NoTarget",
    "unservable Suspended",
    "unservable TooLarge",
    "reserved",
    "aged",
    "postponed",
    "released",
    "released by a reload",
    "elsewhere",
    "displaced",
    "retried Temporary",
    "retried Overload",
    "stale lease",
    "lease reclaimed",
    "cancelled while running",
    "reconfigured",
    "paused",
    "clock went back",
    "admitted by shedding",
    "shed for a full target",
    "node done",
    "node failed",
    "node delayed",
    "round entered",
    "side completed",
    "admitted with a booking",
    "kept its turn",
];

#[test]
fn every_walk_keeps_every_promise() {
    if let Ok(seed) = std::env::var("HEADWORKS_SEED") {
        let seed = seed.parse().expect("HEADWORKS_SEED is a number");
        chaos::replay(seed, STEPS).unwrap_or_else(|violation| panic!("seed {seed}: {violation}"));
        return;
    }
    let next = AtomicU64::new(0);
    let total = Mutex::new((Coverage::default(), Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(2, usize::from) {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    let failed = total.lock().expect(UNPOISONED).1.len();
                    if seed >= SEEDS || failed >= ENOUGH {
                        break;
                    }
                    let walked = std::panic::catch_unwind(|| chaos::walk(seed, STEPS));
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
    let (total, failures) = total.into_inner().expect("all walks have ended");
    assert!(failures.is_empty(), "walks failed: {failures:#?}");
    for (what, count) in total.iter() {
        println!("{count:>9}  {what}");
    }
    let missing: Vec<&&str> = EVERYTHING
        .iter()
        .filter(|what| total.count(what) == 0)
        .collect();
    assert!(missing.is_empty(), "no walk came across: {missing:?}");
}
