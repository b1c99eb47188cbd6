//! A million timers: set them all, then let all of them come.

use super::Contender;
use crate::measure::{Took, measure};
use headworks_core::{Config, Core, Job, Time, Wheel};

pub(crate) const WHEEL: &str = "headworks wheel, a million timers: set + expire";
pub(crate) const JOBS: &str = "headworks core, a million delayed jobs: submit + due";
pub(crate) const DELAY_QUEUE: &str = "tokio-util DelayQueue, a million: insert + expire";

pub(crate) fn contenders() -> Vec<Contender> {
    let mut contenders: Vec<Contender> = vec![(WHEEL, Box::new(wheel)), (JOBS, Box::new(jobs))];
    #[cfg(feature = "peers")]
    contenders.push((DELAY_QUEUE, Box::new(delay_queue)));
    contenders
}

/// Due in up to a minute, in no order.
fn due(n: u64) -> u64 {
    n.wrapping_mul(0x9e37_79b9_7f4a_7c15) % 60_000_000_000
}

fn wheel(units: u64) -> Took {
    let mut wheel = Wheel::new();
    let mut out = Vec::with_capacity(1024);
    measure(units, || {
        for n in 0..units {
            wheel.set(Time::from_nanos(due(n)), n);
        }
        let mut seen = 0;
        // A driver that wakes every millisecond at the most.
        for milli in 1..=60_000 {
            wheel.advance(Time::from_millis(milli), &mut out);
            seen += out.drain(..).count() as u64;
        }
        assert_eq!(seen, units);
    })
}

fn jobs(units: u64) -> Took {
    let config = Config {
        delayed_bound: units as usize,
        bound: headworks_core::Bound::PerClass(units as usize),
        max_waiting: Some(units as usize),
        ..Config::default()
    };
    let mut core = Core::new(config, Time::ZERO).expect("a good configuration");
    measure(units, || {
        for n in 0..units {
            let job = Job::new(n).start_at(Time::from_nanos(1 + due(n)));
            core.submit(Time::ZERO, job).expect("there is room");
        }
        for milli in 1..=60_001 {
            core.advance(Time::from_millis(milli));
        }
        assert_eq!(core.waiting(), units);
    })
}

#[cfg(feature = "peers")]
fn delay_queue(units: u64) -> Took {
    use futures_util::StreamExt;
    use std::time::Duration;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .expect("a runtime can be built");
    runtime.block_on(async {
        let mut queue = tokio_util::time::DelayQueue::new();
        measure_async(units, async {
            for n in 0..units {
                // All are due by the time they are looked for, so that no waiting is measured.
                queue.insert(n, Duration::from_nanos(due(n) / 60_000));
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
            let mut seen = 0;
            while seen < units && queue.next().await.is_some() {
                seen += 1;
            }
            assert_eq!(seen, units);
        })
        .await
    })
}

#[cfg(feature = "peers")]
async fn measure_async(units: u64, work: impl Future<Output = ()>) -> Took {
    let mut took = None;
    let cell = &mut took;
    futures_util::pin_mut!(work);
    let start = std::time::Instant::now();
    work.await;
    let wall = start.elapsed();
    *cell = Some(wall);
    let each = wall.as_nanos() as f64 / units as f64;
    Took {
        wall: each,
        cpu: each,
    }
}
