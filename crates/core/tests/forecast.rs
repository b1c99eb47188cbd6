//! How right the times are that refused jobs are told, while every job takes as long as the others.

use headworks_core::{
    Bound, Config, Core, Job, Lease, Limits, Outcome, Reason, Refused, Time, Verdict,
};
use std::collections::VecDeque;
use std::time::Duration;

const SERVICE: Duration = Duration::from_millis(100);
const PLACES: usize = 100;
const REFUSED: usize = 40;

/// A far side that takes the same time for everything.
struct Steady {
    core: Core<()>,
    now: Time,
    running: VecDeque<(Time, Lease<()>)>,
    /// When each job began.
    began: Vec<Time>,
}

impl Steady {
    fn new(slots: u32) -> Steady {
        let config = Config {
            bound: Bound::PerClass(PLACES),
            limits: Limits {
                concurrent: Some(slots),
                ..Limits::default()
            },
            ..Config::default()
        };
        let mut steady = Steady {
            core: Core::new(config, Time::ZERO).unwrap(),
            now: Time::ZERO,
            running: VecDeque::new(),
            began: Vec::new(),
        };
        // One after the other, so that places are freed evenly.
        for _ in 0..slots {
            steady.submit().unwrap();
            steady.grant();
            steady.now += SERVICE / slots;
        }
        steady
    }

    #[expect(clippy::result_large_err, reason = "it is the core's own, handed on")]
    fn submit(&mut self) -> Result<(), Refused<()>> {
        self.core.submit(self.now, Job::new(())).map(drop)
    }

    fn grant(&mut self) {
        while let Some(lease) = self.core.next(self.now) {
            self.began.push(self.now);
            self.running.push_back((self.now + SERVICE, lease));
        }
    }

    /// The next job ends, and another begins.
    fn step(&mut self) {
        let (end, lease) = self.running.pop_front().expect("something runs");
        self.now = end;
        self.core.finish(end, lease, Outcome::DONE, Verdict::Fine);
        self.grant();
    }

    fn fill(&mut self) {
        while self.core.waiting() < PLACES as u64 {
            self.submit().expect("there is room");
        }
    }
}

#[test]
fn retry_after_is_about_when_a_place_is_free() {
    for slots in [1, 2, 4, 10] {
        let mut steady = Steady::new(slots);
        for _ in 0..200 {
            steady.fill();
            steady.step();
        }
        steady.fill();
        let (before, from) = (steady.began.len(), steady.now);
        let mut told = Vec::new();
        for _ in 0..REFUSED {
            let refused = steady.submit().expect_err("there is no room");
            assert_eq!(refused.reason, Reason::Full);
            told.push(refused.retry_after.expect("it may come back"));
        }
        while steady.began.len() < before + told.len() {
            steady.step();
        }
        let error = |(told, began): (&Duration, &Time)| {
            let right = began.since(from).as_secs_f64();
            (told.as_secs_f64() - right).abs() / right
        };
        let mut errors: Vec<f64> = told
            .iter()
            .zip(&steady.began[before..])
            .map(error)
            .collect();
        errors.sort_by(f64::total_cmp);
        assert!(
            errors[REFUSED / 2] <= 0.25,
            "{slots} slots: {errors:?} of {told:?}"
        );
    }
}
