//! A million timers, due within a second in random order: all are set, then all expire.
//!
//! Only CPU time counts. tokio-util's `DelayQueue` waits for a real second; the core's wheel is
//! advanced by a second in steps of a millisecond.

use super::Contender;
use crate::measure::{Timing, measure};
use headworks_core::{Config, Core, Job, Time, Wheel};

pub(crate) const WHEEL: &str = "headworks wheel, a million timers: set + expire";
pub(crate) const JOBS: &str = "headworks core, a million delayed jobs: submit + due";
pub(crate) const DELAY_QUEUE: &str = "tokio-util DelayQueue, a million: insert + expire";

pub(crate) fn contenders() -> Vec<Contender> {
    vec![
        (WHEEL, Box::new(wheel)),
        (JOBS, Box::new(jobs)),
        #[cfg(feature = "peers")]
        (DELAY_QUEUE, Box::new(delay_queue)),
    ]
}

/// Due times within a second, in random order.
fn due(n: u64) -> u64 {
    n.wrapping_mul(0x9e37_79b9_7f4a_7c15) % 1_000_000_000
}

fn processor_time(took: Timing) -> Timing {
    Timing {
        wall: took.cpu,
        ..took
    }
}

fn wheel(units: u64) -> Timing {
    let mut wheel = Wheel::new();
    let mut out = Vec::with_capacity(1024);
    let took = measure(units, || {
        for n in 0..units {
            wheel.set(Time::from_nanos(due(n)), n);
        }
        let mut seen = 0;
        // Like a driver that wakes at most once per millisecond.
        for milli in 1..=1000 {
            wheel.advance(Time::from_millis(milli), &mut out);
            seen += out.drain(..).count() as u64;
        }
        assert_eq!(seen, units);
    });
    processor_time(took)
}

fn jobs(units: u64) -> Timing {
    let config = Config {
        delayed_bound: units as usize,
        bound: headworks_core::Bound::PerClass(units as usize),
        max_waiting: Some(units as usize),
        ..Config::default()
    };
    let mut core = Core::new(config, Time::ZERO).expect("a good configuration");
    let took = measure(units, || {
        for n in 0..units {
            let job = Job::new(n).start_at(Time::from_nanos(1 + due(n)));
            core.submit(Time::ZERO, job).expect("there is room");
        }
        for milli in 1..=1001 {
            core.advance(Time::from_millis(milli));
        }
        assert_eq!(core.waiting(), units);
    });
    processor_time(took)
}

#[cfg(feature = "peers")]
fn delay_queue(units: u64) -> Timing {
    use futures_util::StreamExt;
    use std::time::Duration;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .expect("a runtime can be built");
    let took = measure(units, || {
        runtime.block_on(async {
            let mut queue = tokio_util::time::DelayQueue::new();
            for n in 0..units {
                queue.insert(n, Duration::from_nanos(due(n)));
            }
            let mut seen = 0;
            while seen < units && queue.next().await.is_some() {
                seen += 1;
            }
            assert_eq!(seen, units);
        });
    });
    processor_time(took)
}
