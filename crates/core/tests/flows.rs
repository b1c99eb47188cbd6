//! Flows that come and go by the thousand.

use headworks_core::{
    Bound, Class, ClassConfig, Config, Core, Cost, Flow, Job, Outcome, Policy, TargetConfig,
    TargetId, Time, Verdict,
};
use std::collections::BTreeSet;

/// Enough that idle ones are forgotten, more than once.
const MANY: u64 = 20_000;

fn two_targets() -> Core<(u64, u32)> {
    let config = Config {
        // In order of arrival: nobody owes anything for what it had.
        policy: Policy::Fifo,
        bound: Bound::Shared(2 * MANY as usize),
        targets: vec![TargetConfig::default(); 2],
        max_waiting: Some(2 * MANY as usize),
        ..Config::default()
    };
    Core::new(config, Time::ZERO).expect("a good configuration")
}

fn submit(core: &mut Core<(u64, u32)>, flow: u64, target: u32) {
    let job = Job::new((flow, target))
        .flow(Flow(flow))
        .targets(TargetId::new(target));
    core.submit(Time::ZERO, job).expect("there is room");
}

/// Runs all that waits, and says what ran.
fn run(core: &mut Core<(u64, u32)>) -> BTreeSet<(u64, u32)> {
    let mut ran = BTreeSet::new();
    while let Some(lease) = core.next(Time::ZERO) {
        let (flow, target) = lease.payload;
        assert_eq!(
            (lease.flow, lease.target),
            (Flow(flow), TargetId::new(target))
        );
        assert!(ran.insert(lease.payload), "{flow} ran twice on {target}");
        core.finish(Time::ZERO, lease, Outcome::DONE, Verdict::Fine);
    }
    ran
}

#[test]
fn a_lane_that_was_forgotten_is_nobodys() {
    let mut core = two_targets();
    let mut handed_in = BTreeSet::new();
    for flow in 0..MANY {
        // To one target or to both, in either order: numbers of queues and lanes part company.
        let mixed = flow.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 62;
        let (first, both) = (mixed as u32 & 1, mixed & 2 != 0);
        for target in [first, 1 - first].into_iter().take(1 + usize::from(both)) {
            submit(&mut core, flow, target);
            handed_in.insert((flow, target));
        }
        if flow % 700 == 0 || flow + 1 == MANY {
            assert_eq!(run(&mut core), std::mem::take(&mut handed_in));
        }
    }
}

#[test]
fn a_flow_with_jobs_is_never_forgotten() {
    let mut core = Core::new(Config::default(), Time::ZERO).expect("a good configuration");
    let job = |flow| Job::new(flow).flow(Flow(flow));
    core.submit(Time::ZERO, job(1)).expect("there is room");
    let running = core.next(Time::ZERO).expect("granted");
    let later = job(2).start_at(Time::from_secs(1));
    core.submit(Time::ZERO, later).expect("there is room");
    for flow in 100..MANY {
        core.submit(Time::ZERO, job(flow)).expect("there is room");
        let lease = core.next(Time::ZERO).expect("granted");
        core.finish(Time::ZERO, lease, Outcome::DONE, Verdict::Fine);
    }
    let known: Vec<(Flow, u32)> = (core.flows())
        .filter(|view| view.flow.0 < 100)
        .map(|view| (view.flow, view.running))
        .collect();
    assert_eq!(known, [(Flow(1), 1), (Flow(2), 0)]);
    core.finish(Time::ZERO, running, Outcome::DONE, Verdict::Fine);
    let lease = core.next(Time::from_secs(1)).expect("it is due");
    assert_eq!((lease.payload, lease.flow), (2, Flow(2)));
}

#[test]
fn a_reload_that_adds_a_class_leaves_what_waits_where_it_is() {
    let config = |classes| Config {
        classes: vec![ClassConfig::weight(1); classes],
        ..Config::default()
    };
    let mut core = Core::new(config(2), Time::ZERO).expect("a good configuration");
    let submit = |core: &mut Core<(u64, u8)>, flow, class| {
        let job = Job::new((flow, class)).flow(Flow(flow)).class(Class(class));
        core.submit(Time::ZERO, job).expect("there is room");
    };
    for flow in 0..3 {
        submit(&mut core, flow, 1);
    }
    core.reconfigure(Time::ZERO, config(3))
        .expect("a class may be added");
    for flow in 0..4 {
        submit(&mut core, flow, 2);
    }
    for flow in 0..3 {
        assert_eq!(core.waiting_for(Class(1), Flow(flow)), 1);
    }
    let mut ran = BTreeSet::new();
    while let Some(lease) = core.next(Time::ZERO) {
        let (flow, class) = lease.payload;
        assert_eq!((lease.flow, lease.class), (Flow(flow), Class(class)));
        ran.insert(lease.payload);
        core.finish(Time::ZERO, lease, Outcome::DONE, Verdict::Fine);
    }
    let all = [(0, 1), (1, 1), (2, 1), (0, 2), (1, 2), (2, 2), (3, 2)];
    assert_eq!(ran, BTreeSet::from(all));
}

/// Grants the next job, ends it at once, and returns its flow and cost.
fn serve(core: &mut Core<()>) -> (u64, u64) {
    let lease = core.next(Time::ZERO).expect("something waits");
    let (flow, cost) = (lease.flow.0, lease.cost.0);
    core.finish(Time::ZERO, lease, Outcome::DONE, Verdict::Fine);
    (flow, cost)
}

fn offer(core: &mut Core<()>, class: u8, flow: u64, cost: u64) {
    let job = Job::new(())
        .class(Class(class))
        .flow(Flow(flow))
        .cost(Cost(cost));
    core.submit(Time::ZERO, job).expect("there is room");
}

/// In each class flow 1 is served a long job, and is idle until enough others have come that it is
/// forgotten.
fn after_a_long_job(classes: usize) -> Core<()> {
    let mut core = Core::new(weighted(classes), Time::ZERO).expect("a good configuration");
    for class in 0..classes as u8 {
        offer(&mut core, class, 1, 100);
        assert_eq!(serve(&mut core), (1, 100));
    }
    for flow in 100..MANY {
        offer(&mut core, 0, flow, 1);
        assert_eq!(serve(&mut core), (flow, 1));
    }
    assert!(core.flows().all(|view| view.flow != Flow(1)));
    core
}

fn weighted(classes: usize) -> Config {
    Config {
        classes: vec![ClassConfig::weight(1); classes],
        policy: Policy::Wfq,
        bound: Bound::Shared(2000),
        max_waiting: Some(2000),
        ..Config::default()
    }
}

#[test]
fn an_idle_flow_keeps_its_tag() {
    let mut core = after_a_long_job(1);
    // Others are served with what it left behind.
    for flow in 2..4 {
        offer(&mut core, 0, flow, 10);
        assert_eq!(serve(&mut core), (flow, 10));
    }
    offer(&mut core, 0, 1, 1);
    for _ in 0..3 {
        offer(&mut core, 0, 2, 10);
    }
    let order: Vec<u64> = (0..4).map(|_| serve(&mut core).0).collect();
    assert_eq!(order, [2, 2, 2, 1]);
}

#[test]
fn an_idle_flow_keeps_its_tag_over_a_reload_that_adds_a_class() {
    let mut core = after_a_long_job(2);
    core.reconfigure(Time::ZERO, weighted(5))
        .expect("classes may be added");
    offer(&mut core, 1, 1, 1);
    for _ in 0..3 {
        offer(&mut core, 1, 2, 10);
    }
    let order: Vec<u64> = (0..4).map(|_| serve(&mut core).0).collect();
    assert_eq!(order, [2, 2, 2, 1]);
}
