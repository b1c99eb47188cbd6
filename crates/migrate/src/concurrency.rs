//! The number of concurrent calls to a storage, found by measuring.
//!
//! Against a disk two calls at a time are enough, against a network share with 20 ms of latency
//! sixty-four are not too many, and nothing in advance tells the two apart. [`Climb`] therefore
//! tries: it doubles the number while that yields more work per second, and now and then tries a
//! neighbouring number again. It decides and owns no clock; [`Concurrency`] applies its decisions
//! to a pool whose workers are all there and cost nothing while its target's limit holds them back.

use headworks_core::Config;
use headworks_pool::PoolHandle;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};
use tokio_util::task::AbortOnDropHandle;

/// Interval at which the work is measured, unless too little was done in it.
const TICK: Duration = Duration::from_millis(100);
/// The same at the start: a short job must not be over before the number fits.
const START_TICK: Duration = Duration::from_millis(5);
/// While calls take longer than this many seconds, a start doubles without waiting for a gain: such
/// a storage is far away, and waits rather than works.
const SLOW_CALL: f64 = 0.005;
/// A slow storage is judged after this time, however little was done.
const LONGEST: Duration = Duration::from_secs(2);
/// Doubling must yield this much more work. Less is noise, or a storage at its limit.
const GAIN: f64 = 1.08;
/// Half as many calls are kept if they do at least this part of the work.
const LOSS: f64 = 0.97;
/// Measurements between two trials.
const HELD: u32 = 20;
/// How long a worker may be busy with one batch.
const BATCH_TIME: f64 = 0.1;

/// Finds the number of concurrent calls with the highest throughput.
#[derive(Debug)]
pub(crate) struct Climb {
    current: usize,
    min: usize,
    max: usize,
    phase: Phase,
    /// The numbers tried at the start, with the work per second of each.
    started: Vec<(usize, f64)>,
}

#[derive(Clone, Copy, Debug)]
enum Phase {
    /// Doubles while calls are slow.
    Start,
    /// Doubled from `from`, which did `rate`.
    Up { from: usize, rate: f64 },
    /// Halved from `from`, which did `rate`.
    Down { from: usize, rate: f64 },
    /// Stays for some measurements; then the next trial is up or down.
    Held { measured: u32, up: bool },
}

impl Climb {
    pub(crate) fn new(base: usize, max: usize) -> Climb {
        let min = base.max(1);
        Climb {
            current: min,
            min,
            max: max.max(min),
            phase: Phase::Start,
            started: Vec::new(),
        }
    }

    /// Starts again, at the current number.
    fn restart(&mut self) {
        self.phase = Phase::Start;
        self.started.clear();
    }

    /// Whether a measurement of one round trip is enough.
    fn is_starting(&self) -> bool {
        matches!(self.phase, Phase::Start)
    }

    /// Takes a measurement of the work per second with the current number, and returns the next.
    pub(crate) fn measured(&mut self, rate: f64) -> usize {
        match self.phase {
            Phase::Start => self.start(rate),
            Phase::Up { from, rate: before } => match rate > before * GAIN {
                true => self.try_up(rate),
                false => self.hold(from, false),
            },
            Phase::Down { from, rate: before } => match rate >= before * LOSS {
                true => self.hold(self.current, true),
                false => self.hold(from, true),
            },
            Phase::Held { measured, up } if measured + 1 < HELD => {
                let measured = measured + 1;
                self.phase = Phase::Held { measured, up };
            }
            Phase::Held { up: true, .. } => self.try_up(rate),
            Phase::Held { up: false, .. } => self.try_down(rate),
        }
        self.current
    }

    /// Doubles, or ends the start with the smallest number that does about as much as the best.
    fn start(&mut self, rate: f64) {
        self.started.push((self.current, rate));
        let next = (self.current * 2).min(self.max);
        if self.current as f64 / rate > SLOW_CALL && next > self.current {
            self.current = next;
            return;
        }
        let tried = std::mem::take(&mut self.started);
        let best = tried.iter().map(|(_, rate)| *rate).fold(0.0, f64::max);
        let enough = tried.iter().find(|(_, rate)| rate * GAIN >= best);
        match enough {
            Some((number, _)) if *number < self.current => self.hold(*number, true),
            _ => self.try_up(rate),
        }
    }

    fn hold(&mut self, at: usize, up: bool) {
        self.current = at;
        self.phase = Phase::Held { measured: 0, up };
    }

    fn try_up(&mut self, rate: f64) {
        let from = self.current;
        self.current = (from * 2).min(self.max);
        self.phase = match self.current == from {
            true => Phase::Held {
                measured: 0,
                up: false,
            },
            false => Phase::Up { from, rate },
        };
    }

    fn try_down(&mut self, rate: f64) {
        let from = self.current;
        self.current = (from / 2).max(self.min);
        self.phase = match self.current == from {
            true => Phase::Held {
                measured: 0,
                up: true,
            },
            false => Phase::Down { from, rate },
        };
    }
}

/// The current number of concurrent calls of a pool, readable by everybody.
#[derive(Clone, Debug)]
pub(crate) struct Concurrency(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    current: AtomicUsize,
    /// Nanoseconds that a call takes; 0 while unknown.
    call: AtomicU64,
    /// Set when calls of another kind follow.
    restarts: AtomicBool,
}

impl Concurrency {
    pub(crate) fn new(current: usize) -> Concurrency {
        Concurrency(Arc::new(Shared {
            current: AtomicUsize::new(current),
            call: AtomicU64::new(0),
            restarts: AtomicBool::new(false),
        }))
    }

    /// Forgets the measurements, because calls of another kind follow: how long the storage takes
    /// to make folders says nothing about the files of a far one.
    pub(crate) fn restart(&self) {
        self.0.call.store(0, Relaxed);
        self.0.restarts.store(true, Relaxed);
    }

    /// Returns how many calls may run at a time.
    pub(crate) fn current(&self) -> usize {
        self.0.current.load(Relaxed)
    }

    /// Returns how many calls a worker should make one after the other, between 1 and `max`. They
    /// keep it busy for a tenth of a second; before anything was measured it is `unknown`.
    pub(crate) fn batch(&self, unknown: usize, max: usize) -> usize {
        let fits = match self.0.call.load(Relaxed) {
            0 => unknown,
            nanos => (BATCH_TIME * 1e9 / nanos as f64) as usize,
        };
        fits.clamp(1, max)
    }

    /// Adjusts the limit of a pool's only target for as long as the returned handle lives. `work`
    /// returns the work done so far; `show` is told the limit and the number of running calls.
    pub(crate) fn adjust<P: Send + 'static>(
        &self,
        pool: PoolHandle<P>,
        max: usize,
        work: impl Fn() -> f64 + Send + 'static,
        show: impl Fn(usize, u64) + Send + 'static,
    ) -> AbortOnDropHandle<()> {
        let mut climb = Climb::new(self.current(), max);
        let shared = self.0.clone();
        let adjust = async move {
            let (mut since, mut done) = (Instant::now(), work());
            let mut busy = true;
            loop {
                let (tick, least) = match climb.is_starting() {
                    true => (START_TICK, 1.0),
                    false => (TICK, 2.0),
                };
                tokio::time::sleep(tick).await;
                let view = pool.inspect();
                if shared.restarts.swap(false, Relaxed) {
                    climb.restart();
                    shared.call.store(0, Relaxed);
                    (since, done, busy) = (Instant::now(), work(), true);
                    continue;
                }
                // With nothing left to start, the rate says nothing about the number.
                busy &= view.waiting > 0;
                let current = shared.current.load(Relaxed);
                show(current, view.running);
                let (elapsed, more) = (since.elapsed(), work() - done);
                let is_starved = climb.is_starting() && !busy;
                if more < least * current as f64 && elapsed < LONGEST && !is_starved {
                    continue;
                }
                if busy && more > 0.0 {
                    let rate = more / elapsed.as_secs_f64();
                    shared
                        .call
                        .store((current as f64 * 1e9 / rate) as u64, Relaxed);
                    let next = climb.measured(rate);
                    if next != current && set_limit(&pool, next) {
                        shared.current.store(next, Relaxed);
                    }
                }
                (since, done, busy) = (Instant::now(), work(), true);
            }
        };
        AbortOnDropHandle::new(tokio::spawn(adjust))
    }
}

fn set_limit<P>(pool: &PoolHandle<P>, concurrent: usize) -> bool {
    let mut config: Config = pool.config();
    for target in &mut config.targets {
        target.limits.concurrent = u32::try_from(concurrent).ok();
    }
    pool.reconfigure(config).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A storage that takes `latency` per call and does at most `most` calls per second.
    fn storage(latency: f64, most: f64) -> impl Fn(usize) -> f64 {
        move |concurrent| (concurrent as f64 / latency).min(most)
    }

    /// Returns the number after some measurements, with noise of a few percent.
    fn climb(base: usize, max: usize, rate: impl Fn(usize) -> f64) -> usize {
        let mut climb = Climb::new(base, max);
        let mut random = fastrand::Rng::with_seed(7);
        for _ in 0..200 {
            let noise = 0.98 + 0.04 * random.f64();
            climb.measured(rate(climb.current) * noise);
        }
        climb.current
    }

    #[test]
    fn latency_is_met_with_more_calls() {
        let best = climb(2, 64, storage(0.02, f64::MAX));
        assert!(best >= 32, "{best}");
    }

    #[test]
    fn a_storage_at_its_limit_gets_no_more_calls_than_it_needs() {
        let limited = storage(0.02, 400.0);
        let found = climb(2, 64, &limited);
        assert!(limited(found) >= 360.0 && found <= 32, "{found}");
        let disk = climb(2, 64, storage(0.0001, 20_000.0));
        assert!(disk <= 4, "{disk}");
    }

    #[test]
    fn it_grows_within_a_second() {
        let mut climb = Climb::new(4, 64);
        let rate = storage(0.02, f64::MAX);
        for _ in 0..5 {
            climb.measured(rate(climb.current));
        }
        assert_eq!(climb.current, 64);
    }

    #[test]
    fn slow_calls_are_doubled_without_waiting_for_a_gain() {
        let mut climb = Climb::new(2, 64);
        assert!(climb.is_starting());
        let far = storage(0.02, f64::MAX);
        let tried: Vec<usize> = (0..5).map(|_| climb.measured(far(climb.current))).collect();
        assert_eq!(tried, [4, 8, 16, 32, 64]);
        assert_eq!(climb.measured(far(64)), 64);
        assert!(!climb.is_starting());
        // Each call gets slower instead: a busy disk, which needs no more than four.
        let mut climb = Climb::new(2, 64);
        let disk = storage(0.02, 200.0);
        let tried: Vec<usize> = (0..6)
            .map(|_| climb.measured(disk(climb.current)))
            .collect();
        assert_eq!(tried, [4, 8, 16, 32, 64, 4]);
    }

    /// Simulates a number of seconds. Returns the work as a share of that with the best number.
    fn share_of_best(climb: &mut Climb, seconds: f64, rate: impl Fn(usize) -> f64) -> f64 {
        let (mut now, mut work) = (0.0, 0.0);
        while now < seconds {
            let (tick, least) = match climb.is_starting() {
                true => (START_TICK, 1.0),
                false => (TICK, 2.0),
            };
            let current = climb.current;
            let took = tick
                .as_secs_f64()
                .max(least * current as f64 / rate(current));
            now += took;
            work += rate(current) * took;
            climb.measured(rate(current));
        }
        let best = (climb.min..=climb.max).map(&rate).fold(0.0, f64::max);
        work / (best * now)
    }

    #[test]
    fn the_defaults_reach_nine_tenths_of_the_best_number() {
        for latency in [0.005, 0.02, 0.1] {
            for (base, max) in [(2, 64), (4, 128), (64, 128)] {
                for most in [400.0, f64::MAX] {
                    let mut climb = Climb::new(base, max);
                    let share = share_of_best(&mut climb, 10.0, storage(latency, most));
                    let case = format!("{latency} {base} {max} {most}");
                    assert!(share >= 0.9, "{case}: {share}");
                }
            }
        }
    }

    /// A local folder is made in no time, and a file of a far source takes a round trip.
    #[test]
    fn calls_of_another_kind_are_measured_anew() {
        let mut climb = Climb::new(4, 128);
        share_of_best(&mut climb, 0.2, storage(0.000_1, 20_000.0));
        assert_eq!(climb.current, 4);
        climb.restart();
        let far = storage(0.02, f64::MAX);
        let share = share_of_best(&mut climb, 5.0, far);
        assert!(share >= 0.9, "{share}");
    }

    #[test]
    fn batches_keep_a_worker_busy_for_a_tenth_of_a_second() {
        let concurrency = Concurrency::new(2);
        assert_eq!(concurrency.batch(8, 64), 8);
        concurrency.0.call.store(20_000_000, Relaxed);
        assert_eq!(concurrency.batch(8, 64), 5);
        concurrency.0.call.store(10_000, Relaxed);
        assert_eq!(concurrency.batch(8, 64), 64);
        concurrency.0.call.store(u64::MAX, Relaxed);
        assert_eq!(concurrency.batch(8, 64), 1);
    }
}
