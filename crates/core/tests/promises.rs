//! Promises that were broken once, one test each.

use headworks_core::{
    Bound, Class, ClassConfig, Config, Core, Cost, Disabled, Event, Flow, FlowConfig, Job, Key,
    Lease, Limits, OnSuspend, Outcome, Policy, Rate, Reason, TargetConfig, TargetId, TargetState,
    Time, Verdict,
};
use std::time::Duration;

fn start(config: Config) -> Core<u64> {
    Core::new(config, Time::ZERO).expect("a good configuration")
}

fn secs(seconds: u64) -> Time {
    Time::from_secs(seconds)
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

fn submit(core: &mut Core<u64>, now: Time, job: Job<u64>) {
    core.submit(now, job).expect("there is room");
}

fn done(core: &mut Core<u64>, now: Time, lease: Lease<u64>) {
    core.finish(now, lease, Outcome::DONE, Verdict::Fine);
}

/// Runs everything that waits, one job at a time and each for that long. Says when the payload was
/// leased.
fn leased_at(core: &mut Core<u64>, mut now: Time, takes: Duration, payload: u64) -> Time {
    for _ in 0..100_000 {
        match core.next(now) {
            Some(lease) if lease.payload == payload => return now,
            Some(lease) => {
                now += takes;
                done(core, now, lease);
            }
            None => now = core.wake_at().expect("something waits"),
        }
    }
    panic!("never leased");
}

/// A bucket is reserved for a large job, then an urgent one becomes ready because its flow's rate
/// opens.
fn assert_a_reserved_bucket_is_passed_by(policy: Policy) {
    let slow = Limits {
        requests: Some(Rate::per_second(1.0).with_burst(Cost(1))),
        ..Limits::default()
    };
    let mut config = Config {
        policy,
        targets: vec![target(Limits {
            cost: Some(Rate::per_second(10.0).with_burst(Cost(500))),
            ..Limits::default()
        })],
        ..Config::default()
    };
    config.flows.insert(
        Flow(1),
        FlowConfig {
            weight: 1,
            limits: slow,
        },
    );
    let mut core = start(config);
    // The bucket is empty, and the flow has used its request of this second.
    submit(
        &mut core,
        Time::ZERO,
        Job::new(0).flow(Flow(1)).cost(Cost(490)),
    );
    let first = core.next(Time::ZERO).expect("granted");
    done(&mut core, Time::ZERO, first);
    submit(
        &mut core,
        Time::ZERO,
        Job::new(1).class(Class(0)).flow(Flow(1)).cost(Cost(5)),
    );
    submit(
        &mut core,
        Time::ZERO,
        Job::new(9).class(Class(9)).flow(Flow(2)).cost(Cost(500)),
    );
    assert!(
        core.next(Time::ZERO).is_none(),
        "the bucket is reserved for the large job"
    );
    let at = leased_at(&mut core, Time::ZERO, Duration::ZERO, 1);
    assert_eq!(at, secs(1), "when its flow's rate allowed it");
}

#[test]
fn an_urgent_job_whose_flow_opens_does_not_wait_for_a_reserved_bucket() {
    assert_a_reserved_bucket_is_passed_by(Policy::Strict);
}

#[test]
fn hybrids_most_urgent_job_does_not_wait_for_a_reserved_bucket_either() {
    assert_a_reserved_bucket_is_passed_by(Policy::Hybrid);
}

fn one_at_a_time(bound: Bound, policy: Policy) -> Core<u64> {
    start(Config {
        policy,
        bound,
        limits: concurrent(1),
        max_waiting: Some(10_000),
        refuse_unreachable: true,
        ..Config::default()
    })
}

/// Has a flow wait with that many jobs, after a second of service at ten jobs per second.
fn greedy(core: &mut Core<u64>, class: Class, jobs: u64) -> (Time, Lease<u64>) {
    let mut now = Time::ZERO;
    for _ in 0..jobs + 10 {
        submit(core, now, Job::new(0).class(class).flow(Flow(1)));
    }
    let mut running = core.next(now).expect("granted");
    for _ in 0..10 {
        now += Duration::from_millis(100);
        done(core, now, running);
        running = core.next(now).expect("granted");
    }
    (now, running)
}

#[test]
fn a_deadline_is_judged_by_the_place_that_fair_sharing_gives() {
    let mut core = one_at_a_time(Bound::PerClass(1000), Policy::Hybrid);
    let (now, _running) = greedy(&mut core, Class(3), 500);
    let job = |flow| {
        Job::new(1)
            .class(Class(3))
            .flow(Flow(flow))
            .expire_at(now + Duration::from_secs(2))
    };
    let refused = core
        .submit(now, job(1))
        .expect_err("fifty seconds are ahead of it");
    assert_eq!(refused.reason, Reason::DeadlineUnreachable);
    let hint = refused.retry_after.expect("a time to wait");
    assert!(hint >= Duration::from_secs(40), "{hint:?}");
    assert!(core.submit(now, job(2)).is_ok(), "its flow is next");
}

#[test]
fn a_deadline_is_judged_by_the_place_that_strict_order_gives() {
    let mut core = one_at_a_time(Bound::Shared(1000), Policy::Strict);
    let (now, _running) = greedy(&mut core, Class(9), 500);
    let urgent = Job::new(1)
        .class(Class(0))
        .flow(Flow(2))
        .expire_at(now + Duration::from_secs(1));
    assert!(core.submit(now, urgent).is_ok(), "nothing goes before it");
}

#[test]
fn flows_that_came_and_went_do_not_count_at_a_full_target() {
    let mut core = start(Config {
        bound: Bound::Shared(10_000),
        targets: vec![target(concurrent(1)); 2],
        max_waiting: Some(100),
        ..Config::default()
    });
    for flow in 0..2000 {
        submit(
            &mut core,
            Time::ZERO,
            Job::new(flow).flow(Flow(flow)).targets(TargetId::new(1)),
        );
        let lease = core.next(Time::ZERO).expect("granted");
        done(&mut core, Time::ZERO, lease);
    }
    for n in 0..101 {
        submit(
            &mut core,
            Time::ZERO,
            Job::new(n).flow(Flow(9999)).targets(TargetId::new(1)),
        );
        core.next(Time::ZERO);
    }
    let newcomer = Job::new(7).flow(Flow(7)).targets(TargetId::new(1));
    assert!(
        core.submit(Time::ZERO, newcomer).is_ok(),
        "it holds nothing, the other everything"
    );
    let shed = std::iter::from_fn(|| core.poll_event());
    assert_eq!(
        shed.filter(|event| matches!(event, Event::Shed { .. }))
            .count(),
        1
    );
}

#[test]
fn disabling_a_target_ends_its_jobs_in_the_order_of_arrival() {
    let mut core = start(Config {
        targets: vec![target(concurrent(1))],
        ..Config::default()
    });
    for flow in 0..50 {
        submit(&mut core, Time::ZERO, Job::new(flow).flow(Flow(50 - flow)));
    }
    let reason = Disabled::Operator;
    core.set_target(
        Time::ZERO,
        TargetId::new(0),
        TargetState::Disabled { reason },
    );
    let ended = std::iter::from_fn(|| core.poll_event()).filter_map(|event| match event {
        Event::Failed { job, .. } => Some(job.payload),
        _ => None,
    });
    assert!(ended.eq(0..50), "each once");
}

#[test]
fn aging_finds_a_job_behind_many_older_ones_on_a_busy_target() {
    let mut core = start(Config {
        policy: Policy::Strict,
        classes: vec![
            ClassConfig::weight(1),
            ClassConfig {
                aging: Some(Duration::from_secs(10)),
                ..ClassConfig::weight(1)
            },
        ],
        targets: vec![target(concurrent(1)); 2],
        bound: Bound::Shared(10_000),
        max_waiting: Some(10_000),
        ..Config::default()
    });
    // The first target is busy for good, and a hundred older lanes wait for it.
    submit(
        &mut core,
        Time::ZERO,
        Job::new(0).class(Class(1)).flow(Flow(999)),
    );
    let _busy = core.next(Time::ZERO).expect("granted");
    for flow in 0..100 {
        submit(
            &mut core,
            Time::ZERO,
            Job::new(0).class(Class(1)).flow(Flow(flow)),
        );
    }
    let second = |payload, class| {
        Job::new(payload)
            .class(Class(class))
            .targets(TargetId::new(1))
    };
    submit(&mut core, secs(1), second(42, 1).flow(Flow(500)));
    // The other target always has urgent work.
    let mut now = secs(1);
    for n in 0..100 {
        submit(&mut core, now, second(1000 + n, 0));
    }
    let mut granted = 0;
    loop {
        now += Duration::from_millis(500);
        let lease = core.next(now).expect("there is urgent work");
        if lease.payload == 42 {
            assert!(lease.aged);
            break;
        }
        granted += 1;
        assert!(granted < 40, "never aged");
        done(&mut core, now, lease);
    }
    assert!(now <= secs(14), "{now}");
}

#[test]
fn flows_seen_once_are_forgotten() {
    let mut core = start(Config::default());
    let mut now = Time::ZERO;
    for flow in 0..500_000 {
        now += Duration::from_micros(10);
        submit(
            &mut core,
            now,
            Job::new(flow).class(Class(5)).flow(Flow(flow)),
        );
        let lease = core.next(now).expect("granted");
        done(&mut core, now, lease);
    }
    assert!(
        core.remembered_flows() < 100_000,
        "{}",
        core.remembered_flows()
    );
    assert!(core.flows().count() <= 2048, "{}", core.flows().count());
}

#[test]
fn a_full_target_names_the_time_of_its_next_grant() {
    let mut core = start(Config {
        targets: vec![target(concurrent(1)); 4],
        bound: Bound::Shared(1000),
        max_waiting: Some(50),
        ..Config::default()
    });
    let job = || Job::new(0).targets(TargetId::new(1));
    let mut now = Time::ZERO;
    submit(&mut core, now, job());
    let mut running = core.next(now).expect("granted");
    for _ in 0..50 {
        submit(&mut core, now, job());
    }
    for _ in 0..5 {
        now += Duration::from_secs(10);
        done(&mut core, now, running);
        running = core.next(now).expect("granted");
        submit(&mut core, now, job());
    }
    let refused = core.submit(now, job()).expect_err("fifty wait");
    assert_eq!(refused.reason, Reason::TargetFull);
    let hint = refused.retry_after.expect("a time to wait");
    assert!((5..=15).contains(&hint.as_secs()), "{hint:?}");
}

/// The key of a job that waits last.
const LEAVES: Key = Key(77);

/// A full class that is served one job per second; says what an arrival is told after `disturb`.
fn hint_after(config: Config, disturb: impl FnOnce(&mut Core<u64>, Time)) -> (Duration, Duration) {
    let mut core = start(config);
    let mut now = Time::ZERO;
    let job = |flow| Job::new(0).class(Class(3)).flow(Flow(flow));
    submit(&mut core, now, job(1));
    let mut running = core.next(now).expect("granted");
    for _ in 0..19 {
        submit(&mut core, now, job(1));
    }
    submit(&mut core, now, job(1).key(LEAVES));
    for _ in 0..10 {
        now += Duration::from_secs(1);
        done(&mut core, now, running);
        running = core.next(now).expect("granted");
        submit(&mut core, now, job(1));
    }
    let hint = |core: &mut Core<u64>| {
        core.submit(now, job(1))
            .expect_err("full")
            .retry_after
            .expect("a time")
    };
    let before = hint(&mut core);
    disturb(&mut core, now);
    while core.waiting_in(Class(3)) < 20 {
        submit(&mut core, now, job(1));
    }
    (before, hint(&mut core))
}

fn twenty_places() -> Config {
    Config {
        bound: Bound::PerClass(20),
        bookings: 0,
        limits: concurrent(1),
        targets: vec![TargetConfig::default(); 2],
        max_waiting: Some(1000),
        on_suspend: OnSuspend::Delay,
        ..Config::default()
    }
}

#[test]
fn jobs_that_leave_without_being_served_do_not_shorten_the_hint() {
    let (before, after) = hint_after(twenty_places(), |core, now| {
        let leaves = core.find(LEAVES).expect("it waits");
        core.cancel(now, leaves);
        for _ in 0..1000 {
            let job = Job::new(0).class(Class(3)).flow(Flow(1));
            let ticket = core.submit(now, job).expect("one place is free");
            core.cancel(now, ticket);
        }
    });
    assert!(after >= before, "{before:?} before, {after:?} after");
    assert!(before >= Duration::from_secs(1), "{before:?}");
}

#[test]
fn delaying_the_jobs_of_a_suspended_target_does_not_shorten_the_hint() {
    let (before, after) = hint_after(twenty_places(), |core, now| {
        let until = now + Duration::from_secs(60);
        core.set_target(now, TargetId::new(0), TargetState::Suspended { until });
        assert_eq!(core.waiting_in(Class(3)), 0);
        core.set_target(now, TargetId::new(0), TargetState::Active);
    });
    assert!(after >= before, "{before:?} before, {after:?} after");
}

#[test]
fn a_lifted_suspension_releases_what_it_delayed() {
    let mut core = start(Config {
        on_suspend: OnSuspend::Delay,
        ..Config::default()
    });
    submit(&mut core, Time::ZERO, Job::new(1));
    core.set_target(
        secs(1),
        TargetId::new(0),
        TargetState::Suspended { until: secs(600) },
    );
    submit(&mut core, secs(2), Job::new(2));
    submit(&mut core, secs(2), Job::new(3).start_at(secs(30)));
    assert_eq!((core.waiting(), core.delayed()), (0, 3));
    core.set_target(secs(10), TargetId::new(0), TargetState::Active);
    assert_eq!((core.waiting(), core.delayed()), (2, 1));
    assert!(core.next(secs(10)).is_some_and(|lease| lease.payload == 1));
    assert_eq!(core.wake_at(), Some(secs(30)), "it was not to start before");
}

#[test]
fn sets_left_behind_by_a_refusal_are_forgotten() {
    let mut core = start(Config {
        targets: vec![TargetConfig::default(); 16],
        ..Config::default()
    });
    let all: Vec<TargetId> = (0..16).map(TargetId::new).collect();
    let set = core.targets(&all).expect("they exist");
    for round in 0..2000 {
        submit(&mut core, Time::ZERO, Job::new(round).targets(set));
        for _ in 0..8 {
            let lease = core.next(Time::ZERO).expect("granted");
            core.finish(Time::ZERO, lease, Outcome::Elsewhere, Verdict::Unknown);
        }
        let lease = core.next(Time::ZERO).expect("granted");
        done(&mut core, Time::ZERO, lease);
    }
    // One for each target, and the one that was asked for.
    assert_eq!(core.remembered_target_sets(), 17);
}

#[test]
fn an_unused_grant_is_returned_also_without_refunds() {
    let mut core = start(Config {
        limits: Limits {
            requests: Some(Rate::every(Duration::from_secs(10))),
            cost: Some(Rate::per_second(1.0).with_burst(Cost(100)).without_refund()),
            ..Limits::default()
        },
        ..Config::default()
    });
    submit(&mut core, Time::ZERO, Job::new(1).cost(Cost(100)));
    let lease = core.next(Time::ZERO).expect("granted");
    core.finish(Time::ZERO, lease, Outcome::Unused, Verdict::Unknown);
    submit(&mut core, Time::ZERO, Job::new(2).cost(Cost(100)));
    assert!(core.next(Time::ZERO).is_some(), "nothing was used");
}

#[test]
fn the_largest_bounds_and_costs_do_not_overflow() {
    let huge = Limits {
        cost: Some(Rate::per_second(1e12).with_burst(Cost(u64::MAX))),
        ..Limits::default()
    };
    let mut core = start(Config {
        bound: Bound::PerClass(usize::MAX),
        limits: huge,
        default_flow: FlowConfig {
            weight: 1,
            limits: huge,
        },
        targets: vec![target(huge)],
        max_waiting: Some(usize::MAX),
        delayed_bound: usize::MAX,
        ..Config::default()
    });
    assert_eq!(core.capacity(), u64::MAX);
    let (mut now, mut running) = (Time::ZERO, None);
    for round in 0..100_000u64 {
        submit(
            &mut core,
            now,
            Job::new(round)
                .class(Class(3))
                .flow(Flow(round % 3))
                .cost(Cost(u64::MAX)),
        );
        // Two are in flight at once when the first of them ends.
        let lease = core.next(now);
        if let Some(before) = lease.and_then(|lease| running.replace(lease)) {
            let cost = Some(Cost(if round % 2 == 0 { u64::MAX } else { 0 }));
            core.finish(now, before, Outcome::Done { cost }, Verdict::Fine);
        }
        now += Duration::from_secs(1 << 20);
    }
    assert!(core.stats(Class(3)).expect("it exists").granted > 0);
}

#[test]
fn a_postponement_of_nothing_does_not_spin() {
    let mut core = start(Config {
        bound: Bound::PerClass(1),
        limits: concurrent(1),
        postpone_by: Duration::ZERO,
        ..Config::default()
    });
    submit(&mut core, Time::ZERO, Job::new(0));
    let _running = core.next(Time::ZERO).expect("granted");
    submit(&mut core, Time::ZERO, Job::new(1));
    submit(&mut core, Time::ZERO, Job::new(2).start_at(secs(1)));
    core.advance(secs(1));
    assert!(
        core.wake_at().is_some_and(|at| at > secs(1)),
        "{:?}",
        core.wake_at()
    );
}

#[test]
fn a_gate_that_nobody_waits_for_any_more_wakes_nobody() {
    let mut core = start(Config {
        limits: Limits {
            requests: Some(Rate::per_second(1.0)),
            ..Limits::default()
        },
        ..Config::default()
    });
    submit(&mut core, Time::ZERO, Job::new(0));
    let lease = core.next(Time::ZERO).expect("granted");
    done(&mut core, Time::ZERO, lease);
    let ticket = core.submit(Time::ZERO, Job::new(1)).expect("room");
    assert!(core.next(Time::ZERO).is_none());
    assert_eq!(core.wake_at(), Some(secs(1)));
    core.cancel(Time::ZERO, ticket);
    assert_eq!(core.wake_at(), None);
}

#[test]
fn a_target_suspended_without_an_end_keeps_its_jobs() {
    let mut core = start(Config::default());
    submit(&mut core, Time::ZERO, Job::new(1));
    let until = Time::MAX;
    core.set_target(
        Time::ZERO,
        TargetId::new(0),
        TargetState::Suspended { until },
    );
    submit(&mut core, Time::ZERO, Job::new(2));
    assert_eq!(core.waiting(), 2);
    core.set_target(secs(1), TargetId::new(0), TargetState::Active);
    assert!(core.next(secs(1)).is_some());
}

#[test]
fn a_job_that_expired_while_its_target_was_suspended_is_not_leased() {
    let mut core = start(Config {
        on_suspend: OnSuspend::Delay,
        ..Config::default()
    });
    let until = secs(10);
    core.set_target(
        Time::ZERO,
        TargetId::new(0),
        TargetState::Suspended { until },
    );
    submit(&mut core, Time::ZERO, Job::new(1).expire_at(secs(12)));
    assert!(core.next(secs(15)).is_none());
    let events = std::iter::from_fn(|| core.poll_event());
    assert_eq!(
        events
            .filter(|event| matches!(event, Event::Expired { .. }))
            .count(),
        1
    );
}

#[test]
fn a_job_shed_at_a_full_target_learns_when_that_serves_the_next() {
    let mut core = start(Config {
        bound: Bound::Shared(1000),
        targets: vec![target(concurrent(1)); 2],
        max_waiting: Some(10),
        ..Config::default()
    });
    let job = |flow| Job::new(flow).flow(Flow(flow)).targets(TargetId::new(1));
    let mut now = Time::ZERO;
    submit(&mut core, now, job(1));
    let mut running = core.next(now).expect("granted");
    for _ in 0..10 {
        submit(&mut core, now, job(1));
    }
    for _ in 0..3 {
        now += Duration::from_secs(10);
        done(&mut core, now, running);
        running = core.next(now).expect("granted");
        submit(&mut core, now, job(1));
    }
    submit(&mut core, now, job(2));
    let hint = std::iter::from_fn(|| core.poll_event()).find_map(|event| match event {
        Event::Shed {
            retry_after,
            booking,
            ..
        } => Some((retry_after, booking)),
        _ => None,
    });
    let (after, booking) = hint.expect("one was shed");
    assert!(
        after.is_some_and(|after| after >= Duration::from_secs(5)),
        "{after:?}"
    );
    assert_eq!(booking, None);
}

#[test]
fn an_infinite_rate_does_not_stop_everything() {
    let mut core = start(Config {
        limits: Limits {
            requests: Some(Rate::per_second(f64::INFINITY)),
            ..Limits::default()
        },
        ..Config::default()
    });
    for n in 0..100 {
        submit(&mut core, Time::ZERO, Job::new(n));
        assert!(core.next(Time::ZERO).is_some());
    }
}
