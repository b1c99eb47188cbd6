//! Figures that a fleet must reach, at 250 ms between exchanges.

use headworks_core::{Class, Config, Cost, Flow, FlowConfig, Job, Limits, Policy, Rate, Time};
use headworks_sim::fleet::{Call, Fleet, FleetSpec, Started};
use std::time::Duration;

const RATE: f64 = 200.0;

fn config() -> Config {
    let limits = Limits {
        cost: Some(Rate::per_second(RATE).with_burst(Cost(20))),
        ..Limits::default()
    };
    let mut config = Config {
        policy: Policy::Hybrid,
        limits,
        ..Config::default()
    };
    for (flow, weight) in [(1, 1), (9, 9)] {
        let limits = Limits::default();
        config
            .flows
            .insert(Flow(flow), FlowConfig { weight, limits });
    }
    config
}

/// Keeps that many jobs of a flow waiting on a node.
fn keep_waiting(fleet: &mut Fleet, node: usize, flow: u64, backlog: u64) {
    while fleet.waiting(node, Flow(flow)) < backlog {
        let takes = Duration::from_millis(20);
        let job = Job::new(Call::taking(takes))
            .class(Class(5))
            .flow(Flow(flow));
        assert!(fleet.submit(node, job), "there is room");
    }
}

/// Runs for that long after ten seconds of warming up. Returns the calls with their times.
fn run(fleet: &mut Fleet, seconds: u64, mut load: impl FnMut(&mut Fleet)) -> Vec<(Time, Started)> {
    let start = fleet.now() + Duration::from_secs(10);
    let end = start + Duration::from_secs(seconds);
    let mut calls = Vec::new();
    while fleet.now() < end {
        load(fleet);
        let started = fleet
            .step()
            .unwrap_or_else(|violation| panic!("{violation}"));
        let now = fleet.now();
        if now > start {
            calls.extend(started.into_iter().map(|call| (now, call)));
        }
    }
    calls
}

/// The least and the most of the limit that was used in any ten seconds.
fn use_of_limit(calls: &[(Time, Started)]) -> (f64, f64) {
    let window = Duration::from_secs(10);
    let (first, last) = (calls[0].0, calls[calls.len() - 1].0);
    let (mut least, mut most) = (f64::MAX, 0.0_f64);
    let mut from = first;
    while from + window <= last {
        let inside = calls
            .iter()
            .filter(|(at, _)| *at >= from && *at < from + window);
        let cost: u64 = inside.map(|(_, call)| call.cost).sum();
        let part = cost as f64 / (RATE * window.as_secs_f64());
        (least, most) = (least.min(part), most.max(part));
        from += Duration::from_millis(100);
    }
    (least, most)
}

#[test]
fn weights_hold_across_nodes_with_one_tenant_each() {
    let mut fleet = Fleet::new(FleetSpec::new(config(), 2), 1);
    let calls = run(&mut fleet, 30, |fleet| {
        keep_waiting(fleet, 0, 1, 100);
        keep_waiting(fleet, 1, 9, 100);
    });
    let of = |flow: u64| {
        calls
            .iter()
            .filter(|(_, call)| call.flow == Flow(flow))
            .count()
    };
    let share = of(1) as f64 / calls.len() as f64;
    println!("share of weight 1 of 10: {share:.4}");
    assert!((0.098..=0.102).contains(&share), "{share}");
    let (least, most) = use_of_limit(&calls);
    println!("use: {least:.3} to {most:.3}");
    assert!(least >= 0.96 && most <= 1.02, "{least} to {most}");
}

#[test]
fn a_tenant_that_moves_between_nodes_does_not_change_the_use_of_the_limit() {
    let mut fleet = Fleet::new(FleetSpec::new(config(), 2), 2);
    let calls = run(&mut fleet, 40, |fleet| {
        let node = (fleet.now().as_nanos() / 2_000_000_000 % 2) as usize;
        keep_waiting(fleet, node, 9, 50);
        keep_waiting(fleet, 0, 1, 100);
        keep_waiting(fleet, 1, 1, 100);
    });
    let (least, most) = use_of_limit(&calls);
    println!("use: {least:.3} to {most:.3}");
    assert!(least >= 0.96 && most <= 1.02, "{least} to {most}");
}
