//! Headworks: a job that uses every feature.

use super::{BOUND, FLOWS, PRODUCERS, TARGETS, Work, runtime};
use crate::measure::{Timing, measure};
use headworks_core::{
    Bound, Class, Config, Core, Cost, Flow, Job, Key, Limits, Outcome, Rate, TargetConfig,
    TargetId, Time, Verdict,
};
use headworks_pool::{Handler, Permits, Pool, Report, Run, Workers};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::Notify;

pub(crate) const NAME: &str = "headworks pool, full-feature job";
pub(crate) const PERMIT: &str = "headworks permits, full-feature job";
/// Jobs that run before the measurement.
const WARM_UP: u64 = 50_000;

pub(crate) const CORE: &str = "headworks core alone, full-feature job";

/// Ten classes under the hybrid policy, a bound, and targets with a gate and a cost bucket each.
pub(crate) fn config(targets: usize, bound: usize) -> Config {
    let target = TargetConfig {
        limits: Limits {
            concurrent: Some(1000),
            cost: Some(Rate::per_second(1e12)),
            ..Limits::default()
        },
        ..TargetConfig::default()
    };
    Config {
        bound: Bound::Shared(bound),
        targets: vec![target; targets],
        max_waiting: Some(bound),
        bookings: 0,
        ..Config::default()
    }
}

/// A job that uses class, flow, dedupe key, target and cost.
pub(crate) fn job(n: u64, flows: u64, targets: u64) -> Job<u64> {
    let work = Work::new(n, flows, targets);
    Job::new(work.number)
        .class(Class(work.class))
        .flow(Flow(work.flow))
        .cost(Cost(work.cost))
        .targets(TargetId::new(work.target))
        .key(Key(work.key))
}

/// Number of finished jobs. Producers that are too far ahead wait for it to advance.
#[derive(Default)]
struct Count {
    done: AtomicU64,
    goal: AtomicU64,
    step: Notify,
    all: Notify,
}

impl Count {
    const STEP: u64 = 256;

    fn one_more(&self) {
        let done = self.done.fetch_add(1, Ordering::Relaxed) + 1;
        if done.is_multiple_of(Self::STEP) {
            self.step.notify_waiters();
        }
        if done == self.goal.load(Ordering::Relaxed) {
            self.all.notify_one();
        }
    }

    /// Waits until at most [`BOUND`] jobs before the `n`th are unfinished.
    async fn room_for(&self, n: u64) {
        let ahead = || n > self.done.load(Ordering::Relaxed) + BOUND as u64;
        while ahead() {
            let step = self.step.notified();
            if ahead() {
                step.await;
            }
        }
    }
}

struct Counter(Arc<Count>);

impl Handler<u64> for Counter {
    async fn run(&self, _run: &mut Run<'_, u64>) -> Report {
        self.0.one_more();
        Report::done()
    }
}

/// Eight producers submit jobs, and workers run them, until all are finished.
pub(crate) fn pool(jobs: u64) -> Timing {
    runtime().block_on(async {
        let count = Arc::new(Count::default());
        // A full queue would shed jobs for fairness, so the producers stop before that.
        let config = config(TARGETS as usize, 4 * BOUND);
        let pool = Pool::new(config, Workers::new(2, 2), Counter(count.clone()))
            .expect("a good configuration");
        // The first jobs make the tables grow.
        pass_through(&pool, &count, 0..WARM_UP);
        measure(jobs, || {
            pass_through(&pool, &count, WARM_UP..WARM_UP + jobs);
        })
    })
}

fn pass_through(pool: &Pool<u64>, count: &Arc<Count>, jobs: std::ops::Range<u64>) {
    let handle = tokio::runtime::Handle::current();
    count.goal.store(jobs.end, Ordering::Relaxed);
    for producer in 0..PRODUCERS {
        let (pool, count) = (pool.clone(), count.clone());
        let (from, to) = (jobs.start + producer, jobs.end);
        handle.spawn(async move {
            for n in (from..to).step_by(PRODUCERS as usize) {
                count.room_for(n).await;
                pool.submit(job(n, FLOWS, TARGETS)).expect("there is room");
            }
        });
    }
    std::thread::scope(|scope| {
        scope.spawn(|| handle.block_on(count.all.notified()));
    });
}

/// Eight callers acquire and release permits.
pub(crate) fn permits(jobs: u64) -> Timing {
    runtime().block_on(async {
        let pool = Permits::new(config(TARGETS as usize, BOUND)).expect("a good configuration");
        let handle = tokio::runtime::Handle::current();
        measure(jobs, || {
            let callers: Vec<_> = (0..PRODUCERS)
                .map(|caller| {
                    let pool = pool.clone();
                    handle.spawn(async move {
                        for n in (caller..jobs).step_by(PRODUCERS as usize) {
                            let Job {
                                class,
                                flow,
                                cost,
                                targets,
                                key,
                                ..
                            } = job(n, FLOWS, TARGETS);
                            let job = Job {
                                key,
                                ..Job::new(())
                                    .class(class)
                                    .flow(flow)
                                    .cost(cost)
                                    .targets(targets)
                            };
                            let permit = pool.acquire(job).await.expect("granted");
                            permit.finish(Report::done());
                        }
                    })
                })
                .collect();
            std::thread::scope(|scope| {
                scope.spawn(|| handle.block_on(futures_util::future::join_all(callers)));
            });
        })
    })
}

/// The core without a driver: submit, next and finish in turn, with a thousand jobs queued.
pub(crate) fn core(jobs: u64) -> Timing {
    let mut core =
        Core::new(config(TARGETS as usize, 4 * BOUND), Time::ZERO).expect("a good configuration");
    for n in 0..1000 {
        core.submit(Time::ZERO, job(n, FLOWS, TARGETS))
            .expect("there is room");
    }
    measure(jobs, || {
        for n in 1000..jobs + 1000 {
            let now = Time::from_nanos(n * 500);
            core.submit(now, job(n, FLOWS, TARGETS))
                .expect("there is room");
            let lease = core.next(now).expect("nothing is limited");
            core.finish(now, lease, Outcome::DONE, Verdict::Fine);
        }
    })
}
