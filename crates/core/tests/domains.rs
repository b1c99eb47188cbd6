//! Targets of different domains compete for nothing: what a class or flow gets in one does not
//! count in another.

use headworks_core::{
    Bound, Class, ClassConfig, Config, ConfigError, Core, Domain, Flow, FlowConfig, Job, Lease,
    Limits, MAX_DOMAINS, Outcome, Policy, Reason, TargetConfig, TargetId, Time, Verdict,
};
use std::collections::BTreeMap;

const BUSY: u32 = 0;
const SCARCE: u32 = 1;

/// The class and flow of a job.
type Owner = (Class, Flow);

fn target(concurrent: Option<u32>, domain: u16) -> TargetConfig {
    TargetConfig {
        limits: Limits {
            concurrent,
            ..Limits::default()
        },
        domain: Domain(domain),
        ..TargetConfig::default()
    }
}

/// A target that serves one job at a time, beside one that serves any number.
fn config() -> Config {
    Config {
        policy: Policy::Hybrid,
        classes: [100, 3, 1].map(ClassConfig::weight).into(),
        flows: [(Flow(3), 2)].map(weighted).into(),
        targets: vec![target(None, 0), target(Some(1), 1)],
        ..Config::default()
    }
}

fn weighted((flow, weight): (Flow, u32)) -> (Flow, FlowConfig) {
    let limits = Limits::default();
    (flow, FlowConfig { weight, limits })
}

fn core(config: Config) -> Core<Owner> {
    Core::new(config, Time::ZERO).expect("a good configuration")
}

fn submit(core: &mut Core<Owner>, owner: Owner, target: u32) {
    let job = Job::new(owner).class(owner.0).flow(owner.1);
    let job = job.targets(TargetId::new(target));
    core.submit(Time::ZERO, job).expect("there is room");
}

fn finish(core: &mut Core<Owner>, lease: Lease<Owner>) {
    core.finish(Time::ZERO, lease, Outcome::DONE, Verdict::Fine);
}

/// Serves the scarce target many times, for owners that always wait there. Between two of its
/// grants, `busy` is served ten times by the other one. Says how often each was served.
fn shares(core: &mut Core<Owner>, owners: &[Owner], busy: Owner) -> BTreeMap<Owner, u32> {
    for owner in owners {
        (0..3).for_each(|_| submit(core, *owner, SCARCE));
    }
    let mut served = BTreeMap::new();
    for _ in 0..1200 {
        let lease = core.next(Time::ZERO).expect("somebody waits");
        assert_eq!(lease.target, TargetId::new(SCARCE));
        *served.entry(lease.payload).or_default() += 1;
        for _ in 0..10 {
            submit(core, busy, BUSY);
            let other = core.next(Time::ZERO).expect("no limit is in its way");
            assert_eq!(other.target, TargetId::new(BUSY));
            finish(core, other);
        }
        submit(core, lease.payload, SCARCE);
        finish(core, lease);
    }
    served
}

#[test]
fn a_flow_that_also_uses_another_domain_keeps_its_part() {
    let flows = [1, 2, 3].map(|flow| (Class(1), Flow(flow)));
    let served = shares(&mut core(config()), &flows, flows[0]);
    let expected = [(flows[0], 300), (flows[1], 300), (flows[2], 600)];
    assert_eq!(served, expected.into());
}

#[test]
fn a_class_that_also_uses_another_domain_keeps_its_part() {
    let owners = [(Class(1), Flow(1)), (Class(2), Flow(2))];
    for busy in owners {
        let served = shares(&mut core(config()), &owners, busy);
        assert_eq!(served, [(owners[0], 900), (owners[1], 300)].into());
    }
}

#[test]
fn the_first_class_goes_first_in_its_domain_whatever_else_it_uses() {
    let owners = [(Class(0), Flow(1)), (Class(1), Flow(2))];
    let served = shares(&mut core(config()), &owners, owners[0]);
    assert_eq!(served, [(owners[0], 1200)].into());
}

/// Both targets serve at once, but only one job runs at a time.
fn one_at_a_time(policy: Policy) -> Core<Owner> {
    let config = config();
    core(Config {
        policy,
        limits: Limits {
            concurrent: Some(1),
            ..Limits::default()
        },
        targets: vec![target(None, 0), target(None, 1)],
        ..config
    })
}

/// How often the first and the second target serve, each asked for by its owner all the time.
fn served_by_target(core: &mut Core<Owner>, owners: [Owner; 2]) -> [u32; 2] {
    for (target, owner) in (0..).zip(owners) {
        // One has far more waiting than the other.
        (0..3 + 100 * (1 - target)).for_each(|_| submit(core, owner, target));
    }
    let mut served = [0; 2];
    for _ in 0..1200 {
        let lease = core.next(Time::ZERO).expect("both wait");
        let target = lease.target.index();
        served[target] += 1;
        submit(core, lease.payload, target as u32);
        finish(core, lease);
    }
    served
}

#[test]
fn domains_share_the_limits_on_everything_by_the_weights_of_their_jobs() {
    let (one, double) = (Flow(1), Flow(3));
    let class = Class(1);
    let shared = |owners| served_by_target(&mut one_at_a_time(Policy::Hybrid), owners);
    assert_eq!(shared([(class, one), (class, one)]), [600, 600]);
    assert_eq!(shared([(class, one), (class, double)]), [400, 800]);
    assert_eq!(shared([(class, one), (Class(2), one)]), [900, 300]);
    assert_eq!(shared([(class, one), (Class(0), one)]), [0, 1200]);
    let strict = &mut one_at_a_time(Policy::Strict);
    let owners = [(class, one), (class, one)];
    assert_eq!(served_by_target(strict, owners), [600, 600]);
}

#[test]
fn the_oldest_goes_first_across_domains_under_fifo() {
    let mut core = one_at_a_time(Policy::Fifo);
    let order = [1, 0, 0, 1, 1, 0];
    for target in order {
        submit(&mut core, (Class(1), Flow(1)), target);
    }
    for target in order {
        let lease = core.next(Time::ZERO).expect("all wait");
        assert_eq!(lease.target, TargetId::new(target));
        finish(&mut core, lease);
    }
}

#[test]
fn a_full_domain_refuses_nobody_in_another() {
    let mut core = core(Config {
        bound: Bound::PerClass(10),
        ..config()
    });
    let owner = (Class(1), Flow(1));
    (0..10).for_each(|_| submit(&mut core, owner, SCARCE));
    let more = Job::new(owner).class(owner.0).flow(owner.1);
    let more = more.targets(TargetId::new(SCARCE));
    let refused = core.submit(Time::ZERO, more).expect_err("no place is left");
    assert_eq!(refused.reason, Reason::Full);
    submit(&mut core, owner, BUSY);
    assert_eq!(core.waiting_in(owner.0), 11);
    assert_eq!(core.waiting_for(owner.0, owner.1), 11);
    assert_eq!(core.inspect().classes[1].waiting, 11);
    assert_eq!(core.inspect().classes[1].stats.admitted, 11);
}

#[test]
fn a_target_may_change_its_domain_while_jobs_wait_and_run() {
    let mut core = core(config());
    let flows = [1, 2, 3].map(|flow| (Class(1), Flow(flow)));
    for owner in flows {
        (0..50).for_each(|_| submit(&mut core, owner, SCARCE));
    }
    let running = core.next(Time::ZERO).expect("one may run");
    assert!(core.next(Time::ZERO).is_none(), "the others are blocked");
    // Together with the other target, apart again under another number, and back.
    for domain in [0, 7, 1] {
        let targets = vec![target(None, 0), target(Some(1), domain)];
        let config = Config {
            targets,
            ..config()
        };
        core.reconfigure(Time::ZERO, config).expect("it fits");
        assert!(core.next(Time::ZERO).is_none(), "one still runs");
        assert_eq!(core.waiting(), 149);
    }
    finish(&mut core, running);
    let mut served = 1;
    while let Some(lease) = core.next(Time::ZERO) {
        finish(&mut core, lease);
        served += 1;
    }
    assert_eq!((served, core.waiting(), core.running()), (150, 0, 0));
}

#[test]
fn jobs_take_their_places_along_when_their_target_changes_its_domain() {
    let bound = Bound::PerClass(10);
    let mut core = core(Config { bound, ..config() });
    let owner = (Class(1), Flow(1));
    (0..10).for_each(|_| submit(&mut core, owner, SCARCE));
    let targets = vec![target(None, 0), target(Some(1), 2)];
    let config = Config {
        bound,
        targets,
        ..config()
    };
    core.reconfigure(Time::ZERO, config).expect("it fits");
    let more = Job::new(owner).class(owner.0).flow(owner.1);
    let more = more.targets(TargetId::new(SCARCE));
    let refused = core.submit(Time::ZERO, more).expect_err("no place is left");
    assert_eq!(refused.reason, Reason::Full);
}

#[test]
fn a_domain_beyond_the_last_is_refused() {
    let config = Config {
        targets: vec![target(None, MAX_DOMAINS as u16)],
        ..config()
    };
    let domain = Domain(MAX_DOMAINS as u16);
    let expected = ConfigError::Domain { target: 0, domain };
    assert_eq!(config.check(), Err(expected.clone()));
    assert_eq!(
        expected.to_string(),
        "domain of target 0: 1024 given, 0 to 1023 are possible"
    );
}
