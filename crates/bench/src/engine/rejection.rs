//! Cost of a rejected job while the queue is full.

use super::ours;
use crate::measure::{allocations, measure as time, median};
use crate::report::Report;
use headworks_core::{Class, Core, Reason, Time};

const NAME: &str = "headworks core, refusal when full";
const REFUSALS: u64 = 1_000_000;

pub(crate) fn measure(report: &mut Report, rounds: usize) {
    let mut core = Core::new(ours::config(8, 1000), Time::ZERO).expect("a good configuration");
    for n in 0..1000 {
        core.submit(Time::ZERO, ours::job(n, 1, 8).class(Class(1)))
            .expect("there is room");
    }
    let refuse = |core: &mut Core<u64>, from: u64, count: u64| {
        for n in from..from + count {
            let refused = core.submit(Time::from_nanos(n), ours::job(n, 1, 8).class(Class(1)));
            assert_eq!(refused.expect_err("it is full").reason, Reason::Full);
        }
    };
    refuse(&mut core, 1000, 10_000);
    let times = (0..rounds).map(|_| time(REFUSALS, || refuse(&mut core, 11_000, REFUSALS)).wall);
    let wall = median(times.collect());
    report.row(NAME, "ns", wall, None);
    let allocated = allocations(|| refuse(&mut core, 11_000, 100_000));
    report.row(
        "  allocations in 100,000 refusals",
        "",
        allocated as f64,
        None,
    );
    report.bound(format!("{NAME}, ns"), wall, 150.0);
    report.bound(
        "allocations in 100,000 refusals".into(),
        allocated as f64,
        0.0,
    );
}
