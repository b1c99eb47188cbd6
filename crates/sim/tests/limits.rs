//! Rate limits of the core, and jobs that do not fit yet.

use headworks_core::{
    Class, Config, Core, Cost, Flow, FlowConfig, Job, Lease, Limits, Outcome, Policy, Rate,
    TargetConfig, TargetId, Time, Verdict,
};
use headworks_synth::Rng;
use proptest::prelude::*;
use std::time::Duration;

/// The account of one rate: net charges, and the minimum of their lead over the rate before any
/// charge.
struct Account {
    rate: Rate,
    net: f64,
    least: f64,
}

impl Account {
    fn new(rate: Rate) -> Self {
        Account {
            rate,
            net: 0.0,
            least: 0.0,
        }
    }

    /// The lead of the charges over the rate.
    fn ahead(&self, now: Time) -> f64 {
        self.net - self.rate.as_per_second() * now.as_secs_f64()
    }

    fn charge(&mut self, now: Time, amount: f64) {
        self.least = self.least.min(self.ahead(now));
        self.net += amount;
    }

    /// The excess of charges over the rate in the worst window that ends now.
    fn excess(&self, now: Time) -> f64 {
        self.ahead(now) - self.least
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// In any window that ends with a grant, charges − refunds ≤ max(burst, largest job) + rate ×
    /// length. This holds globally, for a flow and for a target, even if estimates are wrong either
    /// way.
    #[test]
    fn no_window_takes_more_than_its_rate(
        seed in any::<u64>(),
        policy in prop::sample::select(Policy::ALL.to_vec()),
        rates in prop::array::uniform3((50.0..5000.0f64, 1..3000u64)),
        wrong in prop::sample::select(vec![1u64, 40]),
    ) {
        let [all, flow, target] = rates.map(|(rate, burst)| {
            Rate::per_second(rate).with_burst(Cost(burst))
        });
        let limits = |rate| Limits { cost: Some(rate), ..Limits::default() };
        let config = Config {
            policy,
            limits: limits(all),
            default_flow: FlowConfig { weight: 1, limits: limits(flow) },
            targets: vec![TargetConfig { limits: limits(target), ..TargetConfig::default() }; 3],
            ..Config::default()
        };
        let mut core: Core<u64> = Core::new(config, Time::ZERO).expect("made to be right");
        let mut rng = Rng::new(seed);
        let mut accounts: Vec<Account> = [all; 1]
            .into_iter()
            .chain([flow; 3])
            .chain([target; 3])
            .map(Account::new)
            .collect();
        let mut running: Vec<Lease<u64>> = Vec::new();
        let mut now = Time::ZERO;
        let mut largest = 0;
        let mut granted = 0;
        for _ in 0..3000 {
            now += Duration::from_micros(rng.below(40_000));
            let most = if rng.below(10) == 0 { 4000 } else { 200 };
            let estimate = 1 + rng.below(most);
            let actual = (estimate * (1 + rng.below(wrong)) / (1 + rng.below(wrong))).max(1);
            let job = Job::new(actual)
                .class(Class(rng.below(10) as u8))
                .flow(Flow(rng.below(3)))
                .cost(Cost(estimate))
                .targets(TargetId::new(rng.below(3) as u32));
            let _ = core.submit(now, job);
            while let Some(lease) = core.next(now) {
                granted += 1;
                largest = largest.max(lease.cost.0);
                let mine = [0, 1 + lease.flow.0 as usize, 4 + lease.target.index()];
                for account in mine {
                    let account = &mut accounts[account];
                    account.charge(now, lease.cost.0 as f64);
                    let most = account.rate.burst().0.max(largest) as f64;
                    prop_assert!(account.excess(now) <= most + 1e-3, "{} of {most}", account.excess(now));
                }
                running.push(lease);
            }
            while running.len() > 8 || (!running.is_empty() && rng.below(3) == 0) {
                let lease = running.swap_remove(rng.below(running.len() as u64) as usize);
                let mine = [0, 1 + lease.flow.0 as usize, 4 + lease.target.index()];
                for account in mine {
                    accounts[account].charge(now, lease.payload as f64 - lease.cost.0 as f64);
                }
                let cost = Some(Cost(lease.payload));
                let _ = core.finish(now, lease, Outcome::Done { cost }, Verdict::Fine);
            }
        }
        prop_assert!(granted > 0);
    }
}

/// Two targets; the first has a bucket of 100 per second.
fn with_a_bucket(policy: Policy) -> Core<&'static str> {
    let config = Config {
        policy,
        targets: vec![
            TargetConfig {
                limits: Limits {
                    cost: Some(Rate::per_second(100.0)),
                    ..Limits::default()
                },
                ..TargetConfig::default()
            },
            TargetConfig::default(),
        ],
        ..Config::default()
    };
    Core::new(config, Time::ZERO).expect("made to be right")
}

fn small(name: &'static str, target: u32) -> Job<&'static str> {
    Job::new(name)
        .class(Class(3))
        .flow(Flow(1))
        .cost(Cost(5))
        .targets(TargetId::new(target))
}

#[test]
fn a_job_that_does_not_fit_does_not_block_another_target() {
    for policy in Policy::ALL {
        let mut core = with_a_bucket(policy);
        let now = Time::ZERO;
        core.submit(now, small("small", 0)).expect("there is room");
        let large = small("large", 0).cost(Cost(100));
        core.submit(now, large).expect("there is room");
        for _ in 0..50 {
            core.submit(now, small("other", 1)).expect("there is room");
        }
        let mut names = Vec::new();
        while let Some(lease) = core.next(now) {
            names.push(lease.payload);
            let _ = core.finish(now, lease, Outcome::DONE, Verdict::Fine);
        }
        assert_eq!(names.len(), 51, "{policy:?}");
        assert!(!names.contains(&"large"));
        let at = core.wake_at().expect("the bucket fills");
        assert_eq!(
            core.next(at).expect("it is full").payload,
            "large",
            "{policy:?}"
        );
    }
}

/// A large job in a stream of small ones that would consume the whole bucket: it goes as soon as
/// its turn has come and the bucket has been full once.
#[test]
fn a_large_job_is_not_starved_by_small_ones_on_its_own_target() {
    for policy in Policy::ALL {
        for cost in [100, 100_000] {
            let mut core = with_a_bucket(policy);
            let large = small("large", 0).flow(Flow(2)).cost(Cost(cost));
            let mut rng = Rng::new(5);
            let mut went = None;
            for tick in 0..2000u64 {
                let now = Time::from_millis(tick * 10);
                if tick == 100 {
                    core.submit(now, large.clone()).expect("there is room");
                }
                for _ in 0..rng.below(3) {
                    let _ = core.submit(now, small("small", 0));
                }
                while let Some(lease) = core.next(now) {
                    if lease.payload == "large" {
                        went = Some(tick);
                    }
                    let _ = core.finish(now, lease, Outcome::DONE, Verdict::Fine);
                }
                if went.is_some() {
                    break;
                }
            }
            // Under `fifo` all earlier jobs go first; otherwise its flow gets a turn at once.
            let latest = if policy == Policy::Fifo { 1000 } else { 320 };
            let went = went.unwrap_or_else(|| panic!("{policy:?}: {cost} never went"));
            assert!(went <= latest, "{policy:?}: {cost} went at tick {went}");
        }
    }
}

/// Regression test: the places for a single target were derived from the bound of one class, so two
/// classes full of background work shut out the most urgent one.
#[test]
fn a_single_target_has_places_for_every_class() {
    let config = Config::default();
    let mut core = Core::new(config, Time::ZERO).expect("made to be right");
    for class in (0..10).rev() {
        for _ in 0..1000 {
            let job = Job::new(()).class(Class(class));
            core.submit(Time::ZERO, job)
                .unwrap_or_else(|refused| panic!("P{class}: {}", refused.reason));
        }
    }
}

/// Regression test: the first arrival took the booked place, because its flow held less than the
/// whole bound.
#[test]
fn a_booked_place_is_not_given_to_a_new_arrival() {
    let config = Config {
        bound: headworks_core::Bound::PerClass(8),
        ..Config::default()
    };
    let mut core = Core::new(config, Time::ZERO).expect("made to be right");
    let mut now = Time::ZERO;
    let serve = |core: &mut Core<()>, now| {
        let lease = core.next(now).expect("there is work");
        let _ = core.finish(now, lease, Outcome::DONE, Verdict::Fine);
    };
    // A constant second between places teaches the core the service interval.
    for _ in 0..50 {
        while core.submit(now, Job::new(())).is_ok() {}
        now += Duration::from_secs(1);
        serve(&mut core, now);
    }
    let refused = loop {
        if let Err(refused) = core.submit(now, Job::new(())) {
            break refused;
        }
    };
    let told = now + refused.retry_after.expect("coming back helps");
    let booking = refused.booking.expect("a place is booked");
    let mut admitted = 0;
    while now < told {
        now += Duration::from_secs(1);
        serve(&mut core, now);
        // New arrivals may have the places that are left over, and no more.
        while core.submit(now, Job::new(())).is_ok() {
            admitted += 1;
        }
    }
    assert!(admitted > 0, "nothing idles");
    let job = Job::new(()).booking(Some(booking));
    assert!(
        core.submit(told, job).is_ok(),
        "the place is kept for who was promised it"
    );
}

#[test]
fn an_urgent_arrival_takes_a_reserved_bucket() {
    let limits = Limits {
        cost: Some(Rate::per_second(10.0).with_burst(Cost(100))),
        ..Limits::default()
    };
    let config = Config {
        policy: Policy::Strict,
        targets: vec![TargetConfig {
            limits,
            ..TargetConfig::default()
        }],
        ..Config::default()
    };
    let mut core = Core::new(config, Time::ZERO).expect("a good configuration");
    let job = |name, class, cost| Job::new(name).class(Class(class)).cost(Cost(cost));
    core.submit(Time::ZERO, job("first", 5, 80))
        .expect("there is room");
    assert_eq!(core.next(Time::ZERO).expect("it fits").payload, "first");
    core.submit(Time::ZERO, job("large", 5, 90))
        .expect("there is room");
    core.submit(Time::ZERO, job("behind", 6, 1))
        .expect("there is room");
    assert!(
        core.next(Time::ZERO).is_none(),
        "the bucket is reserved for the large one"
    );
    core.submit(Time::ZERO, job("urgent", 0, 5))
        .expect("there is room");
    assert_eq!(
        core.next(Time::ZERO).expect("chosen anew").payload,
        "urgent"
    );
    assert!(core.next(Time::ZERO).is_none(), "and reserved again");
    let wake = core.wake_at().expect("when there is enough");
    assert_eq!(core.next(wake).expect("it fits now").payload, "large");
}
