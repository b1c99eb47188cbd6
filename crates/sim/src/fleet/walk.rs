//! Random fleets, from a seed: their load, and everything that goes wrong.

use super::{Call, Fleet, FleetSpec, NodeState};
use crate::audit::{Coverage, Violation};
use headworks_core::shares::{OnLoss, ShareSettings};
use headworks_core::{
    Class, ClassConfig, Config, Cost, Flow, FlowConfig, Job, Limits, Policy, Rate, TargetConfig,
    TargetId, Time,
};
use headworks_synth::Rng;
use std::time::Duration;

/// For how long things go wrong.
const TROUBLE: Duration = Duration::from_secs(14);

/// For how long everything works afterwards, longer than it takes to forget a dead node.
const PEACE: Duration = Duration::from_secs(20);

/// The last part of it, in which every node must make progress.
const PROGRESS: Duration = Duration::from_secs(7);

const FORGET_AFTER: Duration = Duration::from_secs(9);

/// No partition is longer, so that nobody is forgotten while it lives.
const LONGEST_PARTITION: u64 = 6_500;

/// A flow of jobs on a node.
struct Source {
    class: Class,
    flow: Flow,
    /// Jobs that it keeps waiting.
    backlog: u64,
    most_cost: u64,
}

struct Walk {
    rng: Rng,
    fleet: Fleet,
    on_loss: OnLoss,
    trouble_ends: Time,
    sources: Vec<Vec<Source>>,
    cut_until: Vec<Time>,
    dead_until: Vec<Time>,
    takes: u64,
    lossless_until: Time,
    /// While the exchange is away, and for a moment afterwards, no node is cut off besides: nobody
    /// is to be silent for long enough to be forgotten.
    away_until: Time,
    few_slots: bool,
    coverage: Coverage,
}

/// Simulates a fleet from a seed and returns the coverage.
///
/// # Errors
/// The guarantee that was violated.
pub fn walk(seed: u64) -> Result<Coverage, Violation> {
    let mut rng = Rng::new(seed ^ 0x5eed);
    let nodes = 1 + rng.below(5) as usize;
    let on_loss = match rng.below(3) {
        0 => OnLoss::Keep,
        1 => OnLoss::Closed {
            request_timeout: None,
        },
        _ => OnLoss::Closed {
            request_timeout: Some(Duration::from_secs(2)),
        },
    };
    let config = config(&mut rng);
    let spec = FleetSpec {
        settings: ShareSettings {
            on_loss,
            forget_after: FORGET_AFTER,
            ..ShareSettings::default()
        },
        delay: (
            Duration::from_millis(1),
            Duration::from_millis(1 + rng.below(900)),
        ),
        loss: [0.0, 0.0, 0.1, 0.3][rng.below(4) as usize],
        step: Duration::from_millis(20),
        flows: (0..4).map(Flow).collect(),
        wrong_clocks: rng.below(2) == 0,
        ..FleetSpec::new(config, nodes)
    };
    let few_slots = has_few_slots(&spec.config, nodes);
    let sources = (0..nodes)
        .map(|_| sources(&mut rng, &spec.config))
        .collect();
    let fleet = Fleet::new(spec, seed);
    let walk = Walk {
        takes: 50 + rng.below(1_500),
        rng,
        trouble_ends: fleet.now() + TROUBLE,
        fleet,
        on_loss,
        sources,
        cut_until: vec![Time::ZERO; nodes],
        dead_until: vec![Time::ZERO; nodes],
        lossless_until: Time::ZERO,
        away_until: Time::ZERO,
        few_slots,
        coverage: Coverage::default(),
    };
    walk.run()
}

fn config(rng: &mut Rng) -> Config {
    let rate = |rng: &mut Rng, most: u64| {
        (rng.below(2) == 0).then(|| {
            let rate = Rate::per_second((10 + rng.below(most)) as f64);
            match rng.below(3) {
                0 => rate.with_burst(Cost(1 + rng.below(most))),
                _ => rate,
            }
        })
    };
    let limits = |rng: &mut Rng| Limits {
        concurrent: (rng.below(2) == 0).then(|| 1 + rng.below(12) as u32),
        requests: rate(rng, 60),
        cost: rate(rng, 600),
        max_cost: None,
    };
    let none = Limits::default();
    let mut config = Config {
        policy: Policy::ALL[rng.below(Policy::ALL.len() as u64) as usize],
        classes: (0..3)
            .map(|_| ClassConfig::weight(1 + rng.below(9) as u32))
            .collect(),
        limits: if rng.below(4) == 0 { none } else { limits(rng) },
        ..Config::default()
    };
    config.targets = (0..1 + rng.below(2))
        .map(|_| TargetConfig {
            limits: if rng.below(3) == 0 { limits(rng) } else { none },
            ..TargetConfig::default()
        })
        .collect();
    if rng.below(3) == 0 {
        config.default_flow.limits = limits(rng);
    }
    let weight = 1 + rng.below(9) as u32;
    let limits = if rng.below(3) == 0 { limits(rng) } else { none };
    config.flows.insert(Flow(1), FlowConfig { weight, limits });
    config
}

/// Whether any limit has fewer slots than there are nodes.
fn has_few_slots(config: &Config, nodes: usize) -> bool {
    let flows = config.flows.values().chain([&config.default_flow]);
    let targets = config.targets.iter().map(|target| &target.limits);
    let limits = flows
        .map(|flow| &flow.limits)
        .chain(targets)
        .chain([&config.limits]);
    let mut slots = limits.filter_map(|limits| limits.concurrent);
    slots.any(|slots| (slots as usize) < nodes)
}

fn sources(rng: &mut Rng, config: &Config) -> Vec<Source> {
    // At the end of a walk every node must start jobs. A class that precedes others may rightly
    // leave nothing to them, so only classes that do not precede each other get load.
    let (least, most) = match config.policy {
        Policy::Strict => (1, 2),
        Policy::Hybrid => (1, 3),
        Policy::Fifo | Policy::Wfq => (0, 3),
    };
    (0..1 + rng.below(3))
        .map(|_| Source {
            class: Class((least + rng.below(most - least)) as u8),
            flow: Flow(rng.below(4)),
            // A flow is split by its demand: a node with one job of a flow that has fifty elsewhere
            // would have a fiftieth of its rate, and might start none for long.
            backlog: [20, 50][rng.below(2) as usize],
            most_cost: [1, 8, 30][rng.below(3) as usize],
        })
        .collect()
}

impl Walk {
    fn run(mut self) -> Result<Coverage, Violation> {
        let trouble_ends = self.trouble_ends;
        let end = trouble_ends + PEACE;
        let nodes = self.fleet.len();
        let mut progress = vec![0_u64; nodes];
        while self.fleet.now() < end {
            let now = self.fleet.now();
            if now < trouble_ends {
                self.trouble();
            }
            self.heal(now >= trouble_ends);
            self.load();
            let started = self.fleet.step()?;
            if now >= end - PROGRESS {
                started.iter().for_each(|call| progress[call.node] += 1);
            }
        }
        // With fewer slots than nodes they take turns, which slow messages stretch: then the fleet
        // as a whole must go on.
        if self.few_slots {
            progress = vec![progress.iter().sum()];
        }
        for (node, calls) in progress.iter().enumerate() {
            if *calls == 0 {
                let what = format!("node {node} has jobs and started none in {PROGRESS:?}");
                return Err(Violation { at: end, what });
            }
        }
        self.coverage.note("survived");
        Ok(self.coverage)
    }

    /// One thing goes wrong from time to time.
    fn trouble(&mut self) {
        if self.rng.below(60) != 0 {
            return;
        }
        let now = self.fleet.now();
        let node = self.rng.below(self.fleet.len() as u64) as usize;
        let is_up = self.fleet.state(node) == NodeState::Up;
        let is_allocator = self.fleet.allocator() == Some(node);
        let any_cut = self.cut_until.iter().any(|until| *until > now);
        match self.rng.below(11) {
            0..4 if is_up && now >= self.lossless_until && now >= self.away_until => {
                self.fleet.set_connected(node, false);
                let length = 100 + self.rng.below(LONGEST_PARTITION - 100);
                self.cut_until[node] = now + Duration::from_millis(length);
                self.coverage.note("cut off");
                if is_allocator {
                    self.coverage.note("allocator cut off");
                }
            }
            4..6 if is_up => {
                self.fleet.kill(node);
                self.dead_until[node] = now + Duration::from_millis(self.rng.below(6_000));
                self.coverage.note("killed");
                if is_allocator {
                    self.coverage.note("allocator killed");
                }
            }
            6 if is_up && self.cut_until[node] <= now => {
                self.fleet.leave(node);
                self.dead_until[node] = now + Duration::from_millis(self.rng.below(6_000));
                self.coverage.note("left");
            }
            7 | 8 => {
                self.fleet.crash_exchange();
                self.coverage.note("exchange crashed");
            }
            // A node that is cut off under `keep` cannot be known to an exchange that lost its
            // grants: that needs a synchronous standby.
            9 if self.on_loss != OnLoss::Keep
                || (!any_cut && now >= self.away_until && self.all_up()) =>
            {
                self.fleet.lose_exchange();
                self.lossless_until = now + Duration::from_secs(8);
                self.coverage.note("exchange lost");
            }
            10 if !any_cut && now >= self.lossless_until && now >= self.away_until => {
                self.fleet.set_reachable(false);
                // Longer than a node may be silent, if time is left for that.
                let length = 1_000 + self.rng.below(11_000);
                self.away_until = now + Duration::from_millis(length);
                self.coverage.note("exchange away");
                let end = self.away_until.min(self.trouble_ends);
                if end.since(now) > FORGET_AFTER {
                    self.coverage
                        .note("exchange away for longer than `forget_after`");
                }
            }
            _ => {}
        }
    }

    fn all_up(&self) -> bool {
        (0..self.fleet.len()).all(|node| self.fleet.state(node) == NodeState::Up)
    }

    fn heal(&mut self, all: bool) {
        let now = self.fleet.now();
        if all || self.away_until <= now {
            self.fleet.set_reachable(true);
        }
        for node in 0..self.fleet.len() {
            if all || self.cut_until[node] <= now {
                self.fleet.set_connected(node, true);
                self.cut_until[node] = Time::ZERO;
            }
            let over = all || self.dead_until[node] <= now;
            if over && self.fleet.state(node) == NodeState::Dead {
                self.fleet.restart(node);
                self.coverage.note("restarted");
            }
        }
    }

    fn load(&mut self) {
        for node in 0..self.fleet.len() {
            if self.fleet.state(node) != NodeState::Up {
                continue;
            }
            for source in &self.sources[node] {
                while self.fleet.waiting(node, source.flow) < source.backlog {
                    let takes = Duration::from_millis(20 + self.rng.below(self.takes));
                    let target = TargetId::new(0);
                    let job = Job::new(Call::taking(takes))
                        .class(source.class)
                        .flow(source.flow)
                        .cost(Cost(1 + self.rng.below(source.most_cost)))
                        .targets(target);
                    if !self.fleet.submit(node, job) {
                        break;
                    }
                }
            }
        }
    }
}
