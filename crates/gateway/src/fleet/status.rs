//! The state of a fleet, for people.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use headworks_core::Time;
use headworks_fleet::{ExchangeStatus, NodeToken};
use serde::Serialize;

use super::wire::{Gate, NodeMessage};

/// A fleet as one look at the exchange shows it.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct FleetStatus {
    /// The nodes, by name.
    pub nodes: Vec<NodeStatus>,
    /// Counts the allocators so far.
    pub epoch: u64,
    /// Counts the allocations of this allocator.
    pub allocations: u64,
}

/// A node of a fleet.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct NodeStatus {
    /// Its name; not unique.
    pub name: String,
    /// The token that it is registered under.
    pub token: String,
    /// Whether this is the process that looks.
    pub is_self: bool,
    /// Whether it divides the limits.
    pub is_allocator: bool,
    /// Whether it has a share and serves.
    pub is_ready: bool,
    /// Whether it leaves: it finishes the requests that run.
    pub is_leaving: bool,
    /// Whether its configuration has the same limits and weights as that of the allocator.
    pub same_config: bool,
    /// A fingerprint of the limits and weights in its configuration.
    pub config: String,
    /// The version of its program; empty if its report cannot be read.
    pub version: String,
    /// Seconds since its last report, as far as the observer knows.
    pub silent_seconds: Option<f64>,
    /// Its share of every limit.
    pub shares: Vec<LimitShare>,
}

/// The share of one limit.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct LimitShare {
    /// The kind of limit: "gateway", "tenant" or "pool".
    pub scope: &'static str,
    /// The name of the tenant or pool.
    pub name: String,
    /// "requests", "tokens" (both per second) or "concurrent".
    pub limit: &'static str,
    /// The share.
    pub value: f64,
}

/// Notes when reports change.
#[derive(Debug, Default)]
pub(crate) struct Observer {
    numbers: HashMap<NodeToken, (u64, Time)>,
    /// Nodes whose configuration differs; logged once.
    differing: HashSet<String>,
}

impl Observer {
    /// How long a node has not sent another report than this.
    pub(crate) fn silence(&mut self, now: Time, node: NodeToken, number: u64) -> Option<Duration> {
        let entry = self.numbers.entry(node).or_insert((number, now));
        if entry.0 != number {
            *entry = (number, now);
        }
        Some(now.since(entry.1))
    }

    pub(crate) fn keep(&mut self, found: &ExchangeStatus) {
        let present: HashSet<NodeToken> = found.reports.iter().map(|report| report.node).collect();
        self.numbers.retain(|node, _| present.contains(node));
    }
}

/// Puts a look at the exchange into words. `silence` says how long a node is silent whose last
/// report has that number.
pub(crate) fn describe(
    found: &ExchangeStatus,
    own: Option<NodeToken>,
    mut silence: impl FnMut(NodeToken, u64) -> Option<Duration>,
) -> FleetStatus {
    let mut nodes = Vec::with_capacity(found.reports.len());
    let mut of_allocator = None;
    for report in &found.reports {
        let is_allocator = found.allocator == Some(report.node);
        let message = NodeMessage::decode(&report.body).ok();
        if let (true, Some(message)) = (is_allocator, &message) {
            of_allocator = Some(message.fingerprint);
        }
        let number = message.as_ref().map_or(0, |message| message.number);
        let mut node = NodeStatus {
            name: report.name.clone(),
            token: report.node.to_string(),
            is_self: own == Some(report.node),
            is_allocator,
            silent_seconds: silence(report.node, number).map(|silent| silent.as_secs_f64()),
            ..NodeStatus::default()
        };
        if let Some(message) = &message {
            node.is_ready = message.ready;
            node.is_leaving = message.leaves;
            node.config = format!("{:016x}", message.fingerprint);
            node.version = message.program.to_string();
            node.shares = shares(message);
        }
        nodes.push(node);
    }
    // Without an allocator, nodes are compared with the first one.
    let reference = of_allocator.map(|fingerprint| format!("{fingerprint:016x}"));
    let first = nodes.iter().find(|node| !node.config.is_empty());
    let reference = reference.or_else(|| first.map(|node| node.config.clone()));
    for node in &mut nodes {
        node.same_config = Some(&node.config) == reference.as_ref();
    }
    nodes.sort_by(|a, b| (&a.name, &a.token).cmp(&(&b.name, &b.token)));
    FleetStatus {
        nodes,
        epoch: found.epoch,
        allocations: found.number,
    }
}

fn shares(message: &NodeMessage) -> Vec<LimitShare> {
    let mut shares = Vec::new();
    for (gate, share) in &message.in_force.gates {
        let (scope, name) = match gate {
            Gate::All => ("gateway", ""),
            Gate::Tenant(name) => ("tenant", &**name),
            Gate::Pool(name) => ("pool", &**name),
        };
        let rate = |rate: u64| rate as f64 / 1e6;
        let values = [
            ("requests", share.requests.map(|share| rate(share.rate))),
            ("tokens", share.cost.map(|share| rate(share.rate))),
            ("concurrent", share.concurrent.map(f64::from)),
        ];
        for (limit, value) in values {
            shares.extend(value.map(|value| LimitShare {
                scope,
                name: name.to_owned(),
                limit,
                value,
            }));
        }
    }
    shares
}

impl FleetStatus {
    /// Nodes whose configuration differs from the allocator's.
    pub fn differing(&self) -> impl Iterator<Item = &NodeStatus> {
        self.nodes.iter().filter(|node| !node.same_config)
    }

    /// The name of the allocator, if there is one.
    #[must_use]
    pub fn allocator(&self) -> Option<&str> {
        let node = self.nodes.iter().find(|node| node.is_allocator)?;
        Some(&node.name)
    }

    pub(crate) fn warn_about_mismatch(&self, observer: &mut Observer) {
        let differing: HashSet<String> = self.differing().map(|node| node.token.clone()).collect();
        for node in self.differing() {
            if observer.differing.insert(node.token.clone()) {
                tracing::warn!(
                    node = node.name,
                    "a node of the fleet has other limits, weights, `fleet.on_loss` or \
                     `fleet.forget_after` in its configuration than the allocator: use the same \
                     configuration on all nodes"
                );
            }
        }
        observer.differing.retain(|token| differing.contains(token));
    }
}
