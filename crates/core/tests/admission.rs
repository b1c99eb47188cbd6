//! Admission when no place is free: the arrival, and the job that gives way.

use headworks_core::{
    Bound, Class, Config, Core, Event, Flow, FlowConfig, Job, Limits, Reason, Refused,
    TargetConfig, Time,
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

#[test]
fn weights_count_at_a_full_target() {
    let mut config = start(100, 12).config().clone();
    for (flow, weight) in [(2, 3), (3, 10)] {
        let limits = Limits::default();
        config
            .flows
            .insert(Flow(flow), FlowConfig { weight, limits });
    }
    let fill = |flows: &[u64]| {
        let mut core = Core::new(config.clone(), Time::ZERO).expect("a good configuration");
        for flow in flows.iter().cycle().take(12) {
            core.submit(Time::ZERO, job(3, *flow)).expect("room");
        }
        core
    };
    let mut core = fill(&[1, 2]);
    for _ in 0..3 {
        core.submit(Time::ZERO, job(3, 2))
            .expect("it is due three quarters");
    }
    let refused = core.submit(Time::ZERO, job(3, 2)).expect_err("it has them");
    assert_eq!(refused.reason, Reason::TargetFull);
    assert_eq!(core.waiting_for(Class(3), Flow(1)), 3);

    let mut core = fill(&[3, 3, 1]);
    core.submit(Time::ZERO, job(3, 4))
        .expect("flow 1 holds most for its weight, flow 3 most");
    assert_eq!(core.waiting_for(Class(3), Flow(1)), 3);
}

#[test]
fn other_bounds_do_not_make_a_share_at_a_full_target_smaller() {
    let mut core = start(100, 50);
    for flow in 100..130 {
        core.submit(Time::ZERO, job(9, flow)).expect("room");
    }
    for _ in 0..19 {
        core.submit(Time::ZERO, job(3, 1)).expect("room");
    }
    for _ in 0..5 {
        core.submit(Time::ZERO, job(3, 2))
            .expect("the other flow of its class holds more");
    }
    assert_eq!(core.waiting_for(Class(3), Flow(1)), 15);
}
