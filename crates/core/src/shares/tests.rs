//! Rules of the allocator, one by one. The simulated fleet of `headworks-sim` checks them together.

use super::*;
use crate::bucket::Rate;
use crate::config::{Config, Limits};
use crate::id::{Class, Cost};
use std::time::Duration;

fn limits(rate: f64, slots: u32) -> FleetLimits {
    let limits = Limits {
        cost: Some(Rate::per_second(rate).with_burst(Cost(rate as u64))),
        concurrent: Some(slots),
        ..Limits::default()
    };
    FleetLimits::from(&Config {
        limits,
        ..Config::default()
    })
}

fn demand(class: u8, flow: u64, cost: f64, running: f64) -> Demand {
    Demand {
        class: Class(class),
        flow: Some(Flow(flow)),
        targets: Vec::new(),
        flows: 1,
        waiting: Load {
            requests: 0.0,
            cost,
        },
        granted: Load::default(),
        running,
    }
}

/// A fleet whose nodes apply every allocation at once.
struct Fleet {
    shares: Shares,
    on_loss: OnLoss,
    now: Time,
    numbers: u64,
    last: BTreeMap<NodeId, Allocation>,
}

impl Fleet {
    fn new(limits: FleetLimits, on_loss: OnLoss) -> Self {
        let settings = ShareSettings {
            on_loss,
            ..ShareSettings::default()
        };
        Fleet {
            shares: Shares::new(limits, settings, Time::ZERO),
            on_loss,
            now: Time::ZERO + LEARN_FOR,
            numbers: 0,
            last: BTreeMap::new(),
        }
    }

    fn tick(&mut self, nodes: &[(u128, Vec<Demand>)]) -> Round {
        self.now += Duration::from_millis(250);
        self.numbers += 1;
        for (node, demand) in nodes {
            let last = self.last.get(&NodeId(*node)).cloned().unwrap_or_default();
            self.shares.report(
                self.now,
                &Report {
                    node: NodeId(*node),
                    number: self.numbers,
                    echo: last.stamp,
                    in_force: last.share,
                    demand: demand.clone(),
                    complete: true,
                    on_loss: self.on_loss,
                    ..Report::default()
                },
            );
        }
        let round = self.shares.allocate(self.now);
        self.last.extend(round.allocations.clone());
        round
    }

    fn settle(&mut self, nodes: &[(u128, Vec<Demand>)]) -> Round {
        (0..20).for_each(|_| drop(self.tick(nodes)));
        self.tick(nodes)
    }
}

fn rate(round: &Round, node: u128) -> f64 {
    let share = &round.allocations[&NodeId(node)].share.gates[&GateId::All];
    share.cost.expect("limited").rate as f64 / 1e6
}

fn slots(round: &Round, node: u128) -> u32 {
    let share = &round.allocations[&NodeId(node)].share.gates[&GateId::All];
    share.concurrent.expect("limited")
}

#[test]
fn idle_nodes_share_evenly() {
    let mut fleet = Fleet::new(limits(100.0, 10), OnLoss::Keep);
    let round = fleet.settle(&[(1, vec![]), (2, vec![])]);
    assert_eq!((rate(&round, 1), rate(&round, 2)), (50.0, 50.0));
    assert_eq!((slots(&round, 1), slots(&round, 2)), (5, 5));
}

#[test]
fn bursts_add_up_to_the_configured_one() {
    let mut fleet = Fleet::new(limits(99.0, 10), OnLoss::Keep);
    let nodes: Vec<_> = (1..=7)
        .map(|node| (node, vec![demand(3, node as u64, 1e3, 1.0)]))
        .collect();
    let round = fleet.settle(&nodes);
    let bursts = round.allocations.values().map(|allocation| {
        allocation.share.gates[&GateId::All]
            .cost
            .expect("limited")
            .burst
    });
    let sum: u64 = bursts.sum();
    assert!((98_999_980..=99_000_000).contains(&sum), "{sum}");
}

#[test]
fn class_0_goes_first_and_the_rest_by_weight() {
    let mut fleet = Fleet::new(limits(100.0, 10), OnLoss::Keep);
    // Classes 1 and 3 have weights 128 and 32.
    let round = fleet.settle(&[
        (1, vec![demand(0, 1, 20.0, 1.0)]),
        (2, vec![demand(1, 2, 1e4, 1.0)]),
        (3, vec![demand(3, 3, 1e4, 1.0)]),
    ]);
    assert!(
        (20.0..=21.1).contains(&rate(&round, 1)),
        "{}",
        rate(&round, 1)
    );
    assert!((rate(&round, 2) / rate(&round, 3) - 4.0).abs() < 0.05);
}

#[test]
fn weights_are_scaled_by_the_part_that_a_node_serves() {
    let mut fleet = Fleet::new(limits(100.0, 10), OnLoss::Keep);
    let round = fleet.settle(&[
        (1, vec![demand(3, 1, 1e4, 1.0), demand(3, 2, 1e4, 1.0)]),
        (2, vec![demand(3, 2, 3e4, 1.0)]),
    ]);
    let weights = |node| round.allocations[&NodeId(node)].flow_weights.clone();
    assert_eq!(weights(1)[&Flow(1)], 1.0);
    assert!((weights(1)[&Flow(2)] - 0.25).abs() < 1e-3);
    assert!((weights(2)[&Flow(2)] - 0.75).abs() < 1e-3);
    assert!((rate(&round, 1) - 62.5).abs() < 0.5, "{}", rate(&round, 1));
}

#[test]
fn a_raise_waits_until_the_fall_of_another_is_echoed() {
    let mut fleet = Fleet::new(limits(100.0, 10), OnLoss::Keep);
    let busy = |node: u64| vec![demand(3, node, 1e4, 10.0)];
    fleet.settle(&[(1, busy(1)), (2, vec![])]);
    let nodes = [(1, busy(1)), (2, busy(2))];
    let before = fleet.last[&NodeId(1)].clone();
    let round = fleet.tick(&nodes);
    assert!(
        rate(&round, 1) < 51.0 && rate(&round, 2) < 2.0,
        "lowered at once, not raised"
    );
    // The first node has not applied it yet: it echoes the old one.
    fleet.last.insert(NodeId(1), before);
    let round = fleet.tick(&nodes);
    assert!(rate(&round, 2) < 2.0, "it may still be in force");
    let round = fleet.tick(&nodes);
    assert!(rate(&round, 2) > 49.0);
}

#[test]
fn an_allocator_that_knows_nothing_only_lowers() {
    let mut shares = Shares::new(limits(100.0, 10), ShareSettings::default(), Time::ZERO);
    let share = |rate| {
        let mut share = Share::default();
        let cost = Some(RateShare { rate, burst: 0 });
        share.gates.insert(
            GateId::All,
            GateShare {
                cost,
                ..GateShare::default()
            },
        );
        share
    };
    for (node, had) in [(1, 80_000_000), (2, 60_000_000)] {
        shares.report(
            Time::ZERO,
            &Report {
                node: NodeId(node),
                number: 1,
                echo: Stamp {
                    epoch: 7,
                    number: 9,
                },
                in_force: share(had),
                ..Report::default()
            },
        );
    }
    let round = shares.allocate(Time::ZERO);
    assert!(
        round.allocations[&NodeId(1)].stamp.epoch > 7,
        "nodes ignore lower epochs"
    );
    assert!((rate(&round, 1) - 57.14).abs() < 0.1 && (rate(&round, 2) - 42.85).abs() < 0.1);
}

#[test]
fn a_lost_share_is_withheld_reclaimed_or_forgotten() {
    let request_timeout = Some(Duration::from_secs(10));
    let long = Duration::from_secs(600);
    for (on_loss, rate_after, slots_after) in [
        (OnLoss::Keep, long, long),
        (
            OnLoss::Closed { request_timeout },
            RECLAIM_AFTER,
            Duration::from_secs(14),
        ),
        (
            OnLoss::Closed {
                request_timeout: None,
            },
            RECLAIM_AFTER,
            RECLAIM_AFTER,
        ),
    ] {
        let mut fleet = Fleet::new(limits(100.0, 10), on_loss);
        let busy = |node: u64| vec![demand(3, node, 1e4, 10.0)];
        fleet.settle(&[(1, busy(1)), (2, busy(2))]);
        let lost_at = fleet.now;
        let (mut rate_at, mut slots_at) = (None, None);
        for _ in 0..4 * 620 {
            let round = fleet.tick(&[(1, busy(1))]);
            let silent = fleet.now.since(lost_at);
            rate_at = rate_at.or((rate(&round, 1) > 51.0).then_some(silent));
            slots_at = slots_at.or((slots(&round, 1) > 5).then_some(silent));
        }
        assert_eq!(
            (rate_at, slots_at),
            (Some(rate_after), Some(slots_after)),
            "{on_loss:?}"
        );
    }
}

/// Between two looks at the reports, a silent node may come back and apply a grant that it had not
/// received yet.
#[test]
fn a_share_is_reclaimed_only_after_it_was_withdrawn() {
    let on_loss = OnLoss::Closed {
        request_timeout: None,
    };
    let mut fleet = Fleet::new(limits(100.0, 10), on_loss);
    let busy = |node: u64| vec![demand(3, node, 1e4, 10.0)];
    fleet.settle(&[(1, busy(1)), (2, busy(2))]);
    let lost = fleet.now;
    while fleet.now.since(lost) < Duration::from_millis(3_250) {
        fleet.tick(&[(1, busy(1))]);
    }
    // The next look is late, but not so late that the allocator missed anything.
    fleet.now += Duration::from_millis(700);
    let round = fleet.tick(&[(1, busy(1))]);
    assert!(fleet.now.since(lost) > RECLAIM_AFTER);
    assert_eq!(round.allocations[&NodeId(2)].share, Share::default());
    assert!(
        rate(&round, 1) < 51.0,
        "it may still apply the grant before"
    );
    // Nobody knows whether that was published.
    fleet.shares.not_published();
    let round = fleet.tick(&[(1, busy(1))]);
    assert!(
        rate(&round, 1) < 51.0,
        "it may still apply the grant before"
    );
    let round = fleet.tick(&[(1, busy(1))]);
    assert!(rate(&round, 1) > 99.0, "it was withdrawn");
}

/// The shared server was away: the allocator heard nobody, and nobody is lost for that.
#[test]
fn time_in_which_the_allocator_could_not_look_is_no_silence() {
    let request_timeout = None;
    for on_loss in [OnLoss::Keep, OnLoss::Closed { request_timeout }] {
        let mut fleet = Fleet::new(limits(100.0, 10), on_loss);
        let busy = |node: u64| vec![demand(3, node, 1e4, 10.0)];
        fleet.settle(&[(1, busy(1)), (2, busy(2))]);
        fleet.now += Duration::from_secs(11 * 60);
        let round = fleet.tick(&[(1, busy(1))]);
        assert!(round.bounds.contains_key(&NodeId(2)), "{on_loss:?}");
        assert!(
            rate(&round, 1) < 51.0,
            "the other one may still use its share"
        );
        // Silence that it sees itself counts as ever.
        let back = fleet.now;
        while rate(&fleet.tick(&[(1, busy(1))]), 1) < 51.0 {}
        let silent = fleet.now.since(back);
        match on_loss {
            OnLoss::Keep => assert!(silent > Duration::from_secs(598), "{silent:?}"),
            OnLoss::Closed { .. } => assert!(silent <= RECLAIM_AFTER, "{silent:?}"),
        }
    }
}

/// The same while it learns: nodes that could not report are not known to have nothing.
#[test]
fn an_allocator_does_not_learn_while_it_cannot_look() {
    let mut shares = Shares::new(limits(100.0, 10), ShareSettings::default(), Time::ZERO);
    let report = |number| Report {
        node: NodeId(1),
        number,
        ..Report::default()
    };
    shares.report(Time::from_secs(1), &report(1));
    let now = Time::from_secs(60);
    shares.report(now, &report(2));
    assert!(shares.is_learning(now));
    let round = shares.allocate(now);
    assert!(rate(&round, 1) == 0.0, "somebody may have everything");
    let now = now + LEARN_FOR;
    assert!(shares.is_learning(now), "it has not looked since");
    for step in 0..20 {
        shares.report(
            Time::from_secs(60) + Duration::from_millis(250) * step,
            &report(3 + u64::from(step)),
        );
    }
    assert!(!shares.is_learning(Time::from_secs(65)));
}

#[test]
fn a_leaving_node_gives_its_share_back_at_once() {
    let mut fleet = Fleet::new(limits(100.0, 10), OnLoss::Keep);
    let busy = |node: u64| vec![demand(3, node, 1e4, 10.0)];
    fleet.settle(&[(1, busy(1)), (2, busy(2))]);
    let last = fleet.last[&NodeId(2)].clone();
    fleet.shares.report(
        fleet.now,
        &Report {
            node: NodeId(2),
            number: 1000,
            echo: last.stamp,
            leaves: true,
            complete: true,
            ..Report::default()
        },
    );
    let round = fleet.tick(&[(1, busy(1))]);
    assert!(rate(&round, 1) > 99.0, "{}", rate(&round, 1));
}

/// Its process may have ended with requests in flight, and without saying that it is gone.
#[test]
fn the_slots_of_a_leaving_node_that_is_silent_return_when_no_call_can_run() {
    let mut fleet = Fleet::new(limits(100.0, 10), OnLoss::Keep);
    let leave_after = Duration::from_secs(20);
    let settings = fleet.shares.settings;
    fleet.shares.set_settings(ShareSettings {
        leave_after,
        ..settings
    });
    let busy = |node: u64| vec![demand(3, node, 1e4, 10.0)];
    fleet.settle(&[(1, busy(1)), (2, busy(2))]);
    let mut in_force = Share::default();
    let running = GateShare {
        concurrent: Some(5),
        ..GateShare::default()
    };
    in_force.gates.insert(GateId::All, running);
    let leaves = Report {
        node: NodeId(2),
        number: 1000,
        echo: fleet.last[&NodeId(2)].stamp,
        in_force,
        leaves: true,
        complete: true,
        ..Report::default()
    };
    fleet.shares.report(fleet.now, &leaves);
    let left = fleet.now;
    let round = fleet.settle(&[(1, busy(1))]);
    assert_eq!(slots(&round, 1), 5, "they may still be in use");
    let round = loop {
        let round = fleet.tick(&[(1, busy(1))]);
        if slots(&round, 1) == 10 {
            break round;
        }
        assert!(
            fleet.now.since(left) < leave_after,
            "they are withheld for too long"
        );
    };
    assert_eq!(fleet.now.since(left), leave_after);
    assert!(!round.bounds.contains_key(&NodeId(2)));
}

/// While a configuration is rolled out, nodes behave differently when they are cut off.
#[test]
fn a_silent_node_is_judged_by_its_own_mode() {
    let closed = OnLoss::Closed {
        request_timeout: None,
    };
    for (own, others) in [(OnLoss::Keep, closed), (closed, OnLoss::Keep)] {
        let mut fleet = Fleet::new(limits(100.0, 10), own);
        let busy = |node: u64| vec![demand(3, node, 1e4, 10.0)];
        fleet.settle(&[(1, busy(1)), (2, busy(2))]);
        let settings = fleet.shares.settings;
        let on_loss = others;
        fleet.shares.set_settings(ShareSettings {
            on_loss,
            ..settings
        });
        fleet.on_loss = others;
        let round = fleet.settle(&[(1, busy(1))]);
        assert_eq!(rate(&round, 1) > 51.0, own == closed, "{own:?}");
        assert_eq!(slots(&round, 1) > 5, own == closed, "{own:?}");
    }
}

/// An allocation names no more flows than fit into a message. The others still have limits.
#[test]
fn flows_beyond_the_most_that_are_named_keep_their_limits() {
    let mut config = Config::default();
    config.default_flow.limits.requests = Some(Rate::per_second(10.0));
    let mut fleet = Fleet::new(FleetLimits::from(&config), OnLoss::Keep);
    let settings = fleet.shares.settings;
    let most_flows = 5;
    fleet.shares.set_settings(ShareSettings {
        most_flows,
        ..settings
    });
    let used = |flow| {
        let mut used = demand(3, flow, 100.0, 1.0);
        used.waiting.requests = 100.0;
        used
    };
    let round = fleet.settle(&[(1, (0..20).map(used).collect()), (2, vec![])]);
    let shares: Vec<&Share> = round.allocations.values().map(|one| &one.share).collect();
    assert!(shares.iter().all(|share| share.gates.len() == most_flows));
    let others: u64 = shares.iter().map(|share| share.other_flows).sum();
    assert_eq!(
        others, WHOLE,
        "of every flow that is not named, each node has a part"
    );
}

#[test]
fn slots_rotate_when_there_are_fewer_than_nodes() {
    let mut fleet = Fleet::new(limits(100.0, 2), OnLoss::Keep);
    let nodes: Vec<_> = (1..=3)
        .map(|node| (node, vec![demand(3, node as u64, 10.0, 3.0)]))
        .collect();
    let mut had = [0; 3];
    for _ in 0..200 {
        let round = fleet.tick(&nodes);
        let now: Vec<u32> = (1..=3).map(|node| slots(&round, node)).collect();
        assert!(now.iter().sum::<u32>() <= 2);
        (0..3).for_each(|node| had[node] += now[node]);
    }
    assert!(had.iter().all(|had| *had > 60), "{had:?}");
}

#[test]
fn a_limited_flow_is_named_only_while_it_is_in_use() {
    let mut config = Config::default();
    config.default_flow.limits.requests = Some(Rate::per_second(10.0));
    let mut fleet = Fleet::new(FleetLimits::from(&config), OnLoss::Keep);
    let mut used = demand(3, 9, 100.0, 1.0);
    used.waiting.requests = 100.0;
    let idle = fleet.settle(&[(1, vec![]), (2, vec![])]);
    assert_eq!(idle.allocations[&NodeId(1)].share.other_flows, WHOLE / 2);
    let gate = GateId::Flow(Flow(9));
    let round = fleet.settle(&[(1, vec![used]), (2, vec![])]);
    let rate = |node| {
        round.allocations[&NodeId(node)].share.gates[&gate]
            .requests
            .unwrap()
            .rate
    };
    assert!(rate(1) > 9_800_000 && rate(1) + rate(2) <= 10_000_000);
    let mut round = round;
    for _ in 0..15 {
        round = fleet.settle(&[(1, vec![]), (2, vec![])]);
    }
    assert!(
        !round.allocations[&NodeId(1)]
            .share
            .gates
            .contains_key(&gate)
    );
}

#[test]
fn a_node_ignores_what_is_late_and_stops_when_it_is_cut_off() {
    let on_loss = OnLoss::Closed {
        request_timeout: None,
    };
    let mut node = NodeShare::new(NodeId(1), limits(100.0, 10), on_loss);
    let share = |epoch, number, rate| {
        let mut share = Share::default();
        let cost = Some(RateShare { rate, burst: rate });
        let gate = GateShare {
            cost,
            requests: None,
            concurrent: Some(1),
        };
        share.gates.insert(GateId::All, gate);
        let stamp = Stamp { epoch, number };
        Allocation {
            stamp,
            share,
            ..Allocation::default()
        }
    };
    let rate = |node: &NodeShare| {
        node.local_limits()
            .all
            .cost
            .expect("limited")
            .micros_per_second()
    };
    assert_eq!(rate(&node), 0, "nothing before the first allocation");
    let at = Time::from_millis;
    assert!(node.receive(at(10), at(0), Some(&share(2, 5, 40))));
    assert_eq!(rate(&node), 40);
    node.receive(at(20), at(15), Some(&share(1, 9, 70)));
    node.receive(at(30), at(25), Some(&share(2, 4, 70)));
    assert_eq!(rate(&node), 40);
    assert_eq!(node.deadline(), Some(at(3_025)));
    assert!(!node.expire(at(3_024)) && node.expire(at(3_025)));
    assert_eq!(rate(&node), 0);
    // The answer to an exchange that was sent too long ago starts nothing.
    node.receive(at(4_000), at(900), Some(&share(2, 6, 40)));
    assert_eq!(rate(&node), 0);
    node.receive(at(4_010), at(4_000), Some(&share(2, 6, 40)));
    assert_eq!(rate(&node), 0, "only a newer share starts it again");
    node.receive(at(4_020), at(4_010), Some(&share(2, 7, 30)));
    assert_eq!(rate(&node), 30);
}
