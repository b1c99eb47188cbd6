//! Audited walks with thousands of flows that come once: memory follows the jobs that live.

use headworks_sim::audit::Coverage;
use headworks_sim::chaos;

const SEEDS: u64 = 4;
const STEPS: u32 = 3000;

#[test]
fn flows_and_target_sets_are_remembered_no_longer_than_needed() {
    let mut total = Coverage::default();
    std::thread::scope(|scope| {
        let walk = |seed| (seed, scope.spawn(move || chaos::churn(seed, STEPS)));
        let walks: Vec<_> = (0..SEEDS).map(walk).collect();
        for (seed, walk) in walks {
            let walked = walk.join().expect("a walk does not panic");
            total.add(&walked.unwrap_or_else(|violation| panic!("seed {seed}: {violation}")));
        }
    });
    for what in [
        "ended done",
        "flows forgotten",
        "elsewhere",
        "target disabled",
    ] {
        println!("{:>9}  {what}", total.count(what));
        assert!(total.count(what) > 0, "no walk came across: {what}");
    }
}
