//! Limits and weights of a node of a fleet: shares that fall, rise and shut.

use headworks_core::{
    Class, ClassConfig, Config, Core, Cost, Flow, FlowConfig, Job, Limits, LocalLimits, LocalShare,
    Outcome, Policy, Rate, TargetConfig, TargetId, Time, Verdict,
};
use proptest::prelude::*;

fn requests(per_second: f64) -> Limits {
    Limits {
        requests: Some(Rate::per_second(per_second)),
        ..Limits::default()
    }
}

fn share(micros: u64, burst: u64) -> LocalShare {
    LocalShare {
        requests: Some(Rate::share(micros, burst)),
        ..LocalShare::default()
    }
}

fn slots(concurrent: u32) -> LocalShare {
    LocalShare {
        concurrent: Some(concurrent),
        ..LocalShare::default()
    }
}

fn start(config: Config) -> Core<u64> {
    Core::new(config, Time::ZERO).expect("a good configuration")
}

/// Each gate with a share: of everything, of flow 1, of target 0.
fn gates(share: LocalShare) -> [LocalLimits; 3] {
    let mut of_flow = LocalLimits::default();
    of_flow.flows.insert(Flow(1), share);
    let mut of_target = LocalLimits::default();
    of_target.targets.insert(TargetId::new(0), share);
    let of_all = LocalLimits {
        all: share,
        ..LocalLimits::default()
    };
    [of_all, of_flow, of_target]
}

fn job(payload: u64) -> Job<u64> {
    Job::new(payload).flow(Flow(1))
}

#[test]
fn a_shut_gate_grants_nothing_and_wakes_nobody() {
    for shut in [share(0, 0), slots(0)] {
        for local in gates(shut) {
            let mut core = start(Config::default());
            core.set_limits(Time::ZERO, local.clone());
            core.submit(Time::ZERO, job(1)).expect("room");
            assert!(core.next(Time::ZERO).is_none());
            assert_eq!(core.wake_at(), None, "{local:?}");
            assert!(core.next(Time::from_secs(1_000_000)).is_none());
            core.set_limits(Time::from_secs(1_000_000), LocalLimits::default());
            assert!(core.next(Time::from_secs(1_000_000)).is_some());
        }
    }
}

#[test]
fn a_refusal_behind_a_shut_gate_names_the_longest_wait() {
    let mut core = start(Config {
        bound: headworks_core::Bound::PerClass(1),
        limits: requests(10.0),
        ..Config::default()
    });
    core.set_limits(Time::ZERO, gates(share(0, 0))[0].clone());
    core.submit(Time::ZERO, job(1)).expect("room");
    let refused = core.submit(Time::ZERO, job(2)).expect_err("full");
    assert_eq!(refused.retry_after, Some(headworks_core::LONGEST));
}

#[test]
fn the_time_to_wake_follows_the_share() {
    for place in 0..3 {
        let at = |micros, burst| gates(share(micros, burst))[place].clone();
        let mut core = start(Config::default());
        core.set_limits(Time::ZERO, at(1_000_000, 1_000_000));
        core.submit(Time::ZERO, job(1)).expect("room");
        assert!(core.next(Time::ZERO).is_none(), "a share starts empty");
        assert_eq!(core.wake_at(), Some(Time::from_secs(1)));
        // Half of the token is there, and the rest comes ten times as fast.
        let half = Time::from_millis(500);
        core.set_limits(half, at(10_000_000, 1_000_000));
        assert!(core.next(half).is_none());
        assert_eq!(core.wake_at(), Some(Time::from_millis(550)));
        core.set_limits(half, at(100_000, 1_000_000));
        assert!(core.next(half).is_none());
        assert!(core.next(Time::from_millis(550)).is_none());
        assert_eq!(core.wake_at(), Some(Time::from_millis(5_500)));
        assert!(core.next(Time::from_millis(5_500)).is_some());
    }
}

#[test]
fn lanes_that_a_share_blocked_go_when_it_rises() {
    for place in 0..3 {
        let mut core = start(Config::default());
        core.set_limits(Time::ZERO, gates(slots(1))[place].clone());
        for payload in 0..3 {
            core.submit(Time::ZERO, job(payload)).expect("room");
        }
        let first = core.next(Time::ZERO).expect("one slot");
        assert!(core.next(Time::ZERO).is_none());
        core.set_limits(Time::ZERO, gates(slots(2))[place].clone());
        assert!(core.next(Time::ZERO).is_some() && core.next(Time::ZERO).is_none());
        // A share falls only as running work does.
        core.set_limits(Time::ZERO, gates(slots(1))[place].clone());
        core.finish(Time::ZERO, first, Outcome::DONE, Verdict::Fine);
        assert!(core.next(Time::ZERO).is_none(), "one runs still");
    }
}

#[test]
fn a_reload_leaves_the_shares_in_force() {
    let mut config = Config {
        limits: requests(100.0),
        targets: vec![TargetConfig::default()],
        ..Config::default()
    };
    let mut core = start(config.clone());
    for local in gates(share(0, 0)) {
        core.set_limits(Time::ZERO, local.clone());
        config.limits = requests(200.0);
        core.reconfigure(Time::ZERO, config.clone()).expect("valid");
        let ticket = core.submit(Time::ZERO, job(1)).expect("room");
        assert!(core.next(Time::ZERO).is_none(), "{local:?}");
        core.cancel(Time::ZERO, ticket);
    }
}

#[test]
fn flows_that_are_not_named_have_their_part_of_the_configured_limit() {
    let mut core = start(Config {
        default_flow: FlowConfig {
            weight: 1,
            limits: Limits {
                concurrent: Some(9),
                ..Limits::default()
            },
        },
        ..Config::default()
    });
    let local = LocalLimits {
        other_flows: Some(333_333_333),
        ..LocalLimits::default()
    };
    core.set_limits(Time::ZERO, local);
    for payload in 0..20 {
        core.submit(Time::ZERO, job(payload)).expect("room");
    }
    let granted = std::iter::from_fn(|| core.next(Time::ZERO)).count();
    assert_eq!(granted, 2, "a third of nine, rounded down");
}

/// Serves one job at a time from an endless backlog; says what flows 1 and 2 of class 1 and flow 3
/// of class 2 got.
fn served(core: &mut Core<u64>, grants: usize) -> [usize; 3] {
    let mut got = [0; 3];
    for _ in 0..grants {
        for (flow, class) in [(1, 1), (2, 1), (3, 2)] {
            while core.waiting_for(Class(class), Flow(flow)) < 2 {
                let job = Job::new(0).flow(Flow(flow)).class(Class(class));
                core.submit(Time::ZERO, job).expect("room");
            }
        }
        let lease = core.next(Time::ZERO).expect("nothing is limited");
        got[lease.flow.0 as usize - 1] += 1;
        core.finish(Time::ZERO, lease, Outcome::DONE, Verdict::Fine);
    }
    got
}

#[test]
fn local_weights_are_fractions_and_take_effect_at_once() {
    let mut core = start(Config {
        policy: Policy::Wfq,
        classes: vec![ClassConfig::weight(1); 3],
        ..Config::default()
    });
    assert_eq!(served(&mut core, 400), [100, 100, 200]);
    let mut local = LocalLimits::default();
    local.flow_weights.insert(Flow(1), 0.25);
    local.flow_weights.insert(Flow(2), 0.75);
    local.class_weights.insert(Class(1), 3.0);
    core.set_limits(Time::ZERO, local);
    let [first, second, third] = served(&mut core, 4000);
    for (got, due) in [(first, 750), (second, 2250), (third, 1000)] {
        assert!(got.abs_diff(due) <= 4, "{first}, {second}, {third}");
    }
    // A flow that had hardly any weight is not made to wait for what it got then.
    let mut local = LocalLimits::default();
    local.flow_weights.insert(Flow(1), 0.001);
    core.set_limits(Time::ZERO, local);
    served(&mut core, 5000);
    core.set_limits(Time::ZERO, LocalLimits::default());
    let [first, ..] = served(&mut core, 40);
    assert!(first >= 8, "{first} of 10");
}

#[test]
fn demand_is_reported_by_class_flow_and_targets() {
    let mut core = start(Config::default());
    for cost in [5, 7, 11] {
        let job = job(cost).class(Class(2)).cost(Cost(cost));
        core.submit(Time::ZERO, job).expect("room");
    }
    let _lease = core.next(Time::ZERO).expect("nothing is limited");
    let demand: Vec<_> = core.demand().collect();
    assert_eq!(demand.len(), 1);
    let of = &demand[0];
    assert_eq!((of.class, of.flow), (Class(2), Flow(1)));
    assert_eq!(of.targets, [TargetId::new(0)]);
    assert_eq!((of.waiting, of.waiting_cost), (2, 18));
    assert_eq!((of.granted, of.granted_cost), (1, 5));
    let flow = core.flow(Flow(1)).expect("known");
    assert_eq!(
        (flow.waiting_cost, flow.granted, flow.granted_cost),
        (18, 1, 5)
    );
    let class = &core.inspect().classes[2];
    assert_eq!((class.waiting_cost, class.stats.charged), (18, 5));
}

proptest! {
    /// For any shares, a bucket lets through at most the burst at the start of a window, one job,
    /// and what the rates add.
    #[test]
    fn shares_grant_what_their_rates_add(
        steps in prop::collection::vec((0u64..50_000_000, 0u64..20_000_000, 1u64..400), 1..60),
    ) {
        let mut core = start(Config::default());
        let (mut now, mut granted, mut allowed) = (Time::ZERO, 0.0, 0.0);
        core.set_limits(now, gates(share(0, 0))[0].clone());
        for (micros, burst, millis) in steps {
            core.set_limits(now, gates(share(micros, burst))[0].clone());
            let end = now + std::time::Duration::from_millis(millis);
            while now <= end {
                while core.waiting() < 3 {
                    core.submit(now, job(0)).expect("room");
                }
                while let Some(lease) = core.next(now) {
                    granted += 1.0;
                    core.finish(now, lease, Outcome::DONE, Verdict::Fine);
                    core.submit(now, job(0)).expect("room");
                }
                match core.wake_at().filter(|at| *at <= end) {
                    Some(at) => { prop_assert!(at > now); now = at; }
                    None => break,
                }
            }
            now = end;
            allowed += micros as f64 / 1e6 * millis as f64 / 1e3;
            prop_assert!(granted <= allowed + 1.0 + 1e-6, "{granted} of {allowed}");
        }
    }
}
