//! A fleet of nodes with one set of limits, under a virtual clock.
//!
//! Every node has a real core and a real [`NodeShare`](headworks_core::NodeShare); one of them runs
//! a real [`Shares`](headworks_core::Shares). Messages take time, overtake each other and are lost;
//! nodes are cut off, die and come back; the exchange loses its tables; clocks are wrong. An
//! auditor checks what the upstream sees.

mod auditor;
mod exchange;
mod node;
mod walk;

pub use node::{Call, Ended, How, NodeState, Started};
pub use walk::walk;

use crate::audit::Violation;
use auditor::Auditor;
use exchange::Exchange;
use headworks_core::shares::{Allocation, FleetLimits, NodeId, OnLoss, Report, ShareSettings};
use headworks_core::{Class, Config, Flow, Job, Rate, Reason, Time};
use headworks_synth::Rng;
use node::Node;
use std::time::Duration;

/// A simulated fleet, before it starts.
#[derive(Clone, Debug)]
pub struct FleetSpec {
    /// The configuration of all nodes: the limits of the whole fleet.
    pub config: Config,
    /// Settings of the allocator.
    pub settings: ShareSettings,
    /// The number of nodes.
    pub nodes: usize,
    /// The time between two exchanges of a node.
    pub tick: Duration,
    /// The shortest and the longest time that a message takes.
    pub delay: (Duration, Duration),
    /// The part of messages that is lost.
    pub loss: f64,
    /// The simulation proceeds in steps of this.
    pub step: Duration,
    /// The flows whose limits are checked.
    pub flows: Vec<Flow>,
    /// Whether clocks differ.
    pub wrong_clocks: bool,
}

impl FleetSpec {
    /// A fleet with quick and reliable messages.
    #[must_use]
    pub fn new(config: Config, nodes: usize) -> Self {
        FleetSpec {
            config,
            settings: ShareSettings::default(),
            nodes,
            tick: Duration::from_millis(250),
            delay: (Duration::from_millis(1), Duration::from_millis(5)),
            loss: 0.0,
            step: Duration::from_millis(5),
            flows: Vec::new(),
            wrong_clocks: false,
        }
    }
}

/// A message on its way.
enum Message {
    /// To the exchange, sent by that node at that time.
    Report(usize, Time, Box<Report>),
    /// Back to the node, in answer to an exchange that was sent at that time.
    Answer(usize, NodeId, Time, Box<Option<Allocation>>),
}

/// A running fleet.
pub struct Fleet {
    spec: FleetSpec,
    limits: FleetLimits,
    rng: Rng,
    now: Time,
    nodes: Vec<Node>,
    exchange: Exchange,
    /// Whether messages reach the exchange at all.
    reachable: bool,
    messages: Vec<(Time, Message)>,
    auditor: Auditor,
    ids: u128,
}

impl Fleet {
    /// Starts all nodes.
    #[must_use]
    pub fn new(spec: FleetSpec, seed: u64) -> Self {
        let now = Time::from_secs(1);
        let mut fleet = Fleet {
            limits: FleetLimits::from(&spec.config),
            auditor: Auditor::new(&spec.config, &spec.flows, now),
            rng: Rng::new(seed),
            now,
            nodes: Vec::new(),
            exchange: Exchange::default(),
            reachable: true,
            messages: Vec::new(),
            ids: 0,
            spec,
        };
        for _ in 0..fleet.spec.nodes {
            let node = fleet.new_node();
            fleet.nodes.push(node);
        }
        fleet
    }

    fn new_node(&mut self) -> Node {
        self.ids += 1;
        self.auditor.process_started();
        let offset = match self.spec.wrong_clocks {
            true => Duration::from_millis(self.rng.below(1_000_000_000)),
            false => Duration::ZERO,
        };
        let on_loss = self.spec.settings.on_loss;
        let id = NodeId(self.ids);
        let mut node = Node::new(
            id,
            &self.spec.config,
            &self.limits,
            on_loss,
            offset,
            self.now,
        );
        node.next_exchange = self.now + self.spec.tick.mul_f64(self.rng.unit());
        node
    }

    /// The time.
    #[must_use]
    pub fn now(&self) -> Time {
        self.now
    }

    /// The number of nodes, dead ones included.
    #[must_use]
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether there are no nodes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// The state of a node.
    #[must_use]
    pub fn state(&self, node: usize) -> NodeState {
        self.nodes[node].state
    }

    /// The jobs of a flow that wait on a node.
    #[must_use]
    pub fn waiting(&self, node: usize, flow: Flow) -> u64 {
        self.nodes[node]
            .core
            .flow(flow)
            .map_or(0, |flow| flow.waiting)
    }

    /// The jobs that wait on a node.
    #[must_use]
    pub fn waiting_in_all(&self, node: usize) -> u64 {
        self.nodes[node].core.waiting()
    }

    /// The rate over everything that a node has in force, in cost per second if that is limited,
    /// else in requests.
    #[must_use]
    pub fn rate_in_force(&self, node: usize) -> f64 {
        let all = self.nodes[node].in_force().all;
        let rate = all.cost.or(all.requests);
        let serves = self.nodes[node].state == NodeState::Up;
        rate.filter(|_| serves)
            .map_or(0.0, headworks_core::Rate::as_per_second)
    }

    /// Submits a job to a node. Returns whether it was admitted.
    pub fn submit(&mut self, node: usize, job: Job<Call>) -> bool {
        self.offer(node, job).is_ok()
    }

    /// Submits a job to a node.
    ///
    /// # Errors
    /// The reason of the refusal; none if the node does not serve.
    pub fn offer(&mut self, node: usize, job: Job<Call>) -> Result<(), Option<Reason>> {
        self.nodes[node].submit(self.now, job)
    }

    /// The jobs that have ended on all nodes since the last call.
    pub fn take_ended(&mut self) -> Vec<Ended> {
        let ended = self.nodes.iter_mut();
        ended
            .flat_map(|node| std::mem::take(&mut node.ended))
            .collect()
    }

    /// The calls that run on all nodes.
    #[must_use]
    pub fn running(&self) -> u64 {
        self.nodes.iter().map(|node| node.calls.len() as u64).sum()
    }

    /// The jobs of a class that wait on a node.
    #[must_use]
    pub fn waiting_in(&self, node: usize, class: Class) -> u64 {
        self.nodes[node].core.waiting_in(class)
    }

    /// The part of the limit over everything that a node has in force: of the cost if that is
    /// limited, else of the requests, else of the slots. `None` if nothing is limited.
    #[must_use]
    pub fn share_in_force(&self, node: usize) -> Option<f64> {
        let (whole, all) = (self.spec.config.limits, self.nodes[node].in_force().all);
        let serves = self.nodes[node].state == NodeState::Up;
        let rate = |whole: Option<Rate>, own: Option<Rate>| {
            let whole = whole?.as_per_second();
            Some(own.map_or(whole, Rate::as_per_second) / whole)
        };
        let slots = || {
            let whole = whole.concurrent?;
            Some(f64::from(all.concurrent.unwrap_or(whole)) / f64::from(whole))
        };
        let part = rate(whole.cost, all.cost);
        let part = part.or_else(|| rate(whole.requests, all.requests));
        let part = part.or_else(slots)?;
        Some(if serves { part } else { 0.0 })
    }

    /// Cuts a node off from the exchange, or connects it again.
    pub fn set_connected(&mut self, node: usize, connected: bool) {
        self.nodes[node].connected = connected;
    }

    /// Takes the exchange away from all nodes, or brings it back with everything that it had.
    pub fn set_reachable(&mut self, reachable: bool) {
        self.reachable = reachable;
    }

    /// Ends a node's process.
    pub fn kill(&mut self, node: usize) {
        let aborts = self.aborts();
        self.nodes[node].kill(aborts);
    }

    /// Has a node leave: it grants nothing more, and ends when its calls have ended.
    pub fn leave(&mut self, node: usize) {
        let now = self.now;
        self.nodes[node].leave(now);
    }

    /// Starts a new process in the place of a dead one.
    pub fn restart(&mut self, node: usize) {
        let mut new = self.new_node();
        new.ended = std::mem::take(&mut self.nodes[node].ended);
        new.orphans = std::mem::take(&mut self.nodes[node].orphans);
        self.nodes[node] = new;
    }

    /// Empties the exchange, but for what is durable.
    pub fn crash_exchange(&mut self) {
        self.exchange.crash();
    }

    /// Empties the exchange altogether.
    pub fn lose_exchange(&mut self) {
        self.exchange.lose_everything();
    }

    /// The place of the node that is the allocator.
    #[must_use]
    pub fn allocator(&self) -> Option<usize> {
        let id = self.exchange.allocator()?;
        self.nodes.iter().position(|node| node.share.id() == id)
    }

    fn aborts(&self) -> bool {
        self.spec.settings.on_loss
            == OnLoss::Closed {
                request_timeout: None,
            }
    }

    /// Proceeds by one step. Returns the calls that started.
    ///
    /// # Errors
    /// The guarantee that was violated.
    pub fn step(&mut self) -> Result<Vec<Started>, Violation> {
        for node in &mut self.nodes {
            // Nobody has asked for them.
            node.ended.clear();
        }
        let (started, violation) = self.advance();
        violation.map_or(Ok(started), Err)
    }

    /// Proceeds by one step, whatever is violated. Returns the calls that started.
    pub fn advance(&mut self) -> (Vec<Started>, Option<Violation>) {
        self.now += self.spec.step;
        let (now, aborts) = (self.now, self.aborts());
        for node in &mut self.nodes {
            node.finish_calls(now);
            if node.state == NodeState::Leaving && node.calls.is_empty() {
                // Its last report says so; the process ends with the answer, or without.
                node.next_exchange = node.next_exchange.min(now);
            }
            if node.state != NodeState::Dead {
                node.expire(now, aborts);
            }
        }
        self.deliver();
        self.send();
        let mut started = Vec::new();
        for (place, node) in self.nodes.iter_mut().enumerate() {
            if node.state == NodeState::Up {
                let calls = node.grant(now);
                started.extend(calls.into_iter().map(|call| Started {
                    node: place,
                    ..call
                }));
            }
        }
        let checked = self.auditor.check(now, &self.nodes, &started);
        (started, checked.err())
    }

    /// Delivers the messages whose time has come, in that order.
    fn deliver(&mut self) {
        loop {
            let due = self.messages.iter().enumerate();
            let first = due.min_by_key(|(at, (time, _))| (*time, *at));
            let Some((at, (time, _))) = first else {
                return;
            };
            if *time > self.now {
                return;
            }
            let (_, message) = self.messages.remove(at);
            match message {
                Message::Report(node, sent, report) => self.exchange(node, sent, *report),
                Message::Answer(node, id, sent, allocation) => {
                    let now = self.now;
                    let node = &mut self.nodes[node];
                    let arrives = self.reachable && node.connected;
                    if arrives && node.share.id() == id && node.state != NodeState::Dead {
                        node.receive(now, sent, Option::as_ref(&allocation));
                    }
                }
            }
        }
    }

    /// A report reaches the exchange.
    fn exchange(&mut self, place: usize, sent: Time, report: Report) {
        let (id, leaves) = (report.node, report.leaves);
        if !self.reachable || !self.nodes[place].connected {
            return;
        }
        let allocation = self.exchange.exchange(report);
        let now = self.now;
        let node = &mut self.nodes[place];
        let is_current = node.share.id() == id && node.state == NodeState::Up;
        if is_current && !leaves && self.exchange.acquire(now, id) {
            let clock = node.clock(now);
            let settings = self.spec.settings;
            self.exchange
                .allocate(clock, id, &mut node.shares, &self.limits, settings);
        } else if is_current {
            node.shares = None;
        }
        let answer = Message::Answer(place, id, sent, Box::new(allocation));
        self.post(answer);
    }

    /// Every node whose turn it is sends its report.
    fn send(&mut self) {
        let now = self.now;
        for place in 0..self.nodes.len() {
            let node = &mut self.nodes[place];
            if node.state == NodeState::Dead || node.next_exchange > now {
                continue;
            }
            node.next_exchange = now + self.spec.tick;
            let report = node.report(now);
            let gone = node.state == NodeState::Leaving && node.calls.is_empty();
            let connected = node.connected;
            if gone && connected {
                node.kill(false);
            }
            if connected {
                self.post(Message::Report(place, now, Box::new(report)));
            }
        }
    }

    /// Puts a message on its way, unless it is lost.
    fn post(&mut self, message: Message) {
        let (least, most) = self.spec.delay;
        let delay = least + (most.saturating_sub(least)).mul_f64(self.rng.unit());
        if self.rng.unit() >= self.spec.loss {
            self.messages.push((self.now + delay, message));
        }
    }
}
