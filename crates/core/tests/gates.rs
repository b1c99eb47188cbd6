//! Gates that shut and open again: which job goes next, and which wake-up times are named.

use headworks_core::{
    Class, ClassConfig, Config, Core, Cost, Flow, FlowConfig, Job, Limits, Outcome, Policy, Rate,
    TargetConfig, TargetId, Time, Verdict,
};

/// 10 per second, and 100 at once.
fn bucket() -> Limits {
    Limits {
        cost: Some(Rate::per_second(10.0).with_burst(Cost(100))),
        ..Limits::default()
    }
}

fn concurrent(limit: u32) -> Limits {
    Limits {
        concurrent: Some(limit),
        ..Limits::default()
    }
}

fn target(limits: Limits) -> TargetConfig {
    TargetConfig {
        limits,
        ..TargetConfig::default()
    }
}

fn strict(flow: Limits, targets: &[Limits]) -> Core<&'static str> {
    let mut config = Config {
        policy: Policy::Strict,
        targets: targets.iter().map(|limits| target(*limits)).collect(),
        ..Config::default()
    };
    let limits = flow;
    config
        .flows
        .insert(Flow(1), FlowConfig { weight: 1, limits });
    Core::new(config, Time::ZERO).expect("a good configuration")
}

fn job(name: &'static str, class: u8, flow: u64, cost: u64) -> Job<&'static str> {
    Job::new(name)
        .class(Class(class))
        .flow(Flow(flow))
        .cost(Cost(cost))
}

fn next(core: &mut Core<&'static str>, now: Time) -> Option<&'static str> {
    core.next(now).map(|lease| lease.payload)
}

#[test]
fn a_flow_does_not_wait_for_a_job_that_has_left() {
    let mut core = strict(bucket(), &[Limits::default()]);
    core.submit(Time::ZERO, job("first", 0, 1, 80))
        .expect("room");
    assert_eq!(next(&mut core, Time::ZERO), Some("first"));
    let large = core.submit(Time::ZERO, job("large", 0, 1, 90));
    core.submit(Time::ZERO, job("small", 1, 1, 5))
        .expect("room");
    assert_eq!(next(&mut core, Time::ZERO), None, "kept for the large job");
    core.cancel(Time::ZERO, large.expect("room"));
    assert_eq!(next(&mut core, Time::ZERO), Some("small"));
}

#[test]
fn a_reservation_ends_when_there_is_enough() {
    let mut core = strict(Limits::default(), &[bucket()]);
    for job in [
        job("first", 0, 1, 80),
        job("large", 1, 2, 90),
        job("small", 2, 3, 1),
    ] {
        core.submit(Time::ZERO, job).expect("room");
    }
    assert_eq!(next(&mut core, Time::ZERO), Some("first"));
    assert_eq!(next(&mut core, Time::ZERO), None, "kept for the large job");
    let enough = Time::from_secs(7);
    assert_eq!(core.wake_at(), Some(enough));
    assert_eq!(next(&mut core, enough), Some("large"));
    assert_eq!(next(&mut core, enough), None, "the bucket is empty");
    let wake = core
        .wake_at()
        .expect("a tenth of a second for the small job");
    assert_eq!(next(&mut core, wake), Some("small"));
}

#[test]
fn nothing_is_reserved_for_a_flow_whose_own_gate_is_shut() {
    let mut core = strict(concurrent(1), &[bucket(), Limits::default()]);
    core.submit(Time::ZERO, job("first", 0, 3, 80))
        .expect("room");
    assert_eq!(next(&mut core, Time::ZERO), Some("first"));
    core.submit(Time::ZERO, job("large", 0, 1, 90))
        .expect("room");
    core.submit(Time::ZERO, job("small", 1, 2, 5))
        .expect("room");
    assert_eq!(next(&mut core, Time::ZERO), None, "kept for the large job");
    let elsewhere = job("elsewhere", 5, 1, 1).targets(TargetId::new(1));
    core.submit(Time::ZERO, elsewhere).expect("room");
    assert_eq!(next(&mut core, Time::ZERO), Some("elsewhere"));
    // The large job cannot go now, however much there is in the bucket.
    assert_eq!(next(&mut core, Time::ZERO), Some("small"));
}

#[test]
fn a_surplus_moves_the_blocked_jobs_of_its_flow_forward() {
    let config = Config {
        policy: Policy::Wfq,
        classes: vec![ClassConfig::weight(1)],
        targets: vec![target(concurrent(2))],
        ..Config::default()
    };
    let mut core = Core::new(config, Time::ZERO).expect("a good configuration");
    for job in [
        job("a1", 0, 1, 1000),
        job("b1", 0, 2, 10),
        job("a2", 0, 1, 10),
        job("b2", 0, 2, 10),
    ] {
        core.submit(Time::ZERO, job).expect("room");
    }
    let overestimated = core.next(Time::ZERO).expect("granted");
    assert_eq!(overestimated.payload, "a1");
    assert_eq!(next(&mut core, Time::ZERO), Some("b1"));
    assert_eq!(next(&mut core, Time::ZERO), None, "two run");
    let cost = Some(Cost(1));
    core.finish(
        Time::ZERO,
        overestimated,
        Outcome::Done { cost },
        Verdict::Fine,
    );
    assert_eq!(next(&mut core, Time::ZERO), Some("a2"));
}

#[test]
fn a_time_that_has_passed_is_not_named_again() {
    let mut core = Core::new(
        Config {
            limits: Limits {
                requests: Some(Rate::per_second(1.0)),
                ..Limits::default()
            },
            ..Config::default()
        },
        Time::ZERO,
    )
    .expect("a good configuration");
    core.submit(Time::ZERO, job("a", 0, 1, 1)).expect("room");
    core.submit(Time::ZERO, job("b", 0, 1, 1)).expect("room");
    assert_eq!(next(&mut core, Time::ZERO), Some("a"));
    assert_eq!(next(&mut core, Time::ZERO), None);
    let second = Time::from_secs(1);
    assert_eq!(core.wake_at(), Some(second));
    // A driver without a free worker only moves time on; it must not be woken again and again.
    core.advance(second);
    assert_eq!(core.wake_at(), None);
}

#[test]
fn a_target_that_sends_a_job_elsewhere_gets_its_charge_back() {
    let mut core = strict(Limits::default(), &[bucket(), bucket()]);
    let both = [TargetId::new(0), TargetId::new(1)];
    let both = core.targets(&both).expect("they exist");
    core.submit(Time::ZERO, job("refused", 0, 1, 100).targets(both))
        .expect("room");
    let lease = core.next(Time::ZERO).expect("granted");
    let target = lease.target;
    core.finish(Time::ZERO, lease, Outcome::Elsewhere, Verdict::Unknown);
    let lease = core.next(Time::ZERO).expect("granted");
    assert_ne!(lease.target, target);
    core.submit(Time::ZERO, job("other", 0, 1, 100).targets(target))
        .expect("room");
    assert_eq!(next(&mut core, Time::ZERO), Some("other"));
}

#[test]
fn a_job_sent_elsewhere_goes_before_the_reservation_of_a_later_one() {
    let config = Config {
        policy: Policy::Fifo,
        targets: vec![target(bucket()), target(Limits::default())],
        ..Config::default()
    };
    let mut core = Core::new(config, Time::ZERO).expect("a good configuration");
    let both = [TargetId::new(0), TargetId::new(1)];
    let both = core.targets(&both).expect("they exist");
    for job in [
        job("first", 0, 3, 80),
        job("oldest", 0, 1, 5).targets(both),
        job("large", 0, 2, 90),
        job("behind", 0, 1, 5),
    ] {
        core.submit(Time::ZERO, job).expect("room");
    }
    assert_eq!(next(&mut core, Time::ZERO), Some("first"));
    let lease = core.next(Time::ZERO).expect("granted");
    assert_eq!((lease.payload, lease.target), ("oldest", TargetId::new(1)));
    assert_eq!(next(&mut core, Time::ZERO), None, "kept for the large job");
    // It joins the lane of the job behind, which the reservation keeps waiting, and precedes both.
    core.finish(Time::ZERO, lease, Outcome::Elsewhere, Verdict::Unknown);
    assert_eq!(next(&mut core, Time::ZERO), Some("oldest"));
    assert_eq!(next(&mut core, Time::ZERO), None, "and kept again");
}
