//! Who is admitted when no place is free, and at whose expense.

use headworks_core::{
    Bound, Class, Config, Core, Event, Flow, Job, Reason, Refused, TargetConfig, Time,
};

/// A bound per class of `places`, and two targets at each of which `max_waiting` jobs may wait.
fn start(places: usize, max_waiting: usize) -> Core<u64> {
    let config = Config {
        bound: Bound::PerClass(places),
        targets: vec![TargetConfig::default(); 2],
        max_waiting: Some(max_waiting),
        ..Config::default()
    };
    Core::new(config, Time::ZERO).expect("a good configuration")
}

fn job(class: u8, flow: u64) -> Job<u64> {
    Job::new(flow).class(Class(class)).flow(Flow(flow))
}

fn shed(core: &mut Core<u64>) -> usize {
    let events = std::iter::from_fn(|| core.poll_event());
    events
        .filter(|event| matches!(event, Event::Shed { .. }))
        .count()
}

#[test]
fn a_caller_who_asks_for_it_takes_nobodys_place() {
    for (places, max_waiting, reason) in [(4, 100, Reason::Full), (100, 4, Reason::TargetFull)] {
        let mut core = start(places, max_waiting);
        for _ in 0..4 {
            core.submit(Time::ZERO, job(3, 1)).expect("room");
        }
        let refused: Refused<u64> = core
            .submit_without_shedding(Time::ZERO, job(3, 2))
            .expect_err("somebody would have to go");
        assert_eq!(refused.reason, reason);
        assert!(refused.retry_after.is_some() && refused.booking.is_none());
        assert_eq!(shed(&mut core), 0);
        core.submit(Time::ZERO, job(3, 2))
            .expect("its flow holds nothing");
        assert_eq!(shed(&mut core), 1);
    }
}

#[test]
fn a_job_is_shed_at_a_full_target_only_for_a_job_of_its_bound() {
    let mut core = start(100, 4);
    for _ in 0..4 {
        core.submit(Time::ZERO, job(5, 1)).expect("room");
    }
    let refused = core.submit(Time::ZERO, job(0, 2)).expect_err("full");
    assert_eq!(refused.reason, Reason::TargetFull);
    assert_eq!(shed(&mut core), 0, "it would free no place of class 0");
}
