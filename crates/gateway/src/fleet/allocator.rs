//! The allocator, on the node that holds the lease: reports in, allocations out.
//!
//! The exchange orders publications by its own stamp; the allocations inside carry the allocator's.
//! The two are apart, because an allocation with the same share keeps its stamp, and its node is to
//! receive the weights and the acknowledgement all the same.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use headworks_core::Time;
use headworks_core::shares::{Bound, FleetLimits, NodeId, Round, Share, ShareSettings, Shares};
use headworks_fleet::{Allocated, AllocatorView, MAX_BODY, NodeToken, Publication, Stamp};

use super::hints::CountedHints;
use super::names::Names;
use super::state::{node_id, node_token};
use super::wire::{NodeMessage, PoolHint, ShareMessage};

/// Tenants that an allocation names take at most this much of a message. The rest is for pools,
/// and for the demand in a report that repeats the share.
const TENANTS_SIZE: usize = 160 << 10;

/// Bytes per tenant in an allocation, beside its name: three limits with their bursts, a weight.
const TENANT_SIZE: usize = 48;

/// The allocator of this process. It has a state only while the process holds the lease.
#[derive(Debug, Default)]
pub(super) struct Allocator {
    shares: Option<Shares>,
    /// The allocations that are in the exchange.
    published: BTreeMap<NodeToken, Published>,
    /// The number of the last publication, and of the one that may have happened.
    numbers: [u64; 2],
    /// A publication may not have happened.
    in_doubt: bool,
    /// Nodes with a report in the last view.
    reporting: BTreeSet<NodeToken>,
    /// Nodes that were forgotten, until their reports are gone.
    forgotten: BTreeSet<NodeToken>,
    /// Nodes whose reports cannot be read; logged once.
    unreadable: BTreeSet<NodeToken>,
    /// Nodes whose allocations do not fit into a message; logged once.
    too_large: BTreeSet<NodeToken>,
    hints: CountedHints,
}

/// An allocation in the exchange.
#[derive(Debug)]
struct Published {
    share: Share,
    message: ShareMessage,
}

/// Steps that the task takes for the allocator, in this order.
#[derive(Debug, Default)]
pub(super) struct Steps {
    /// Nodes to remove from the exchange: they have been silent for too long.
    pub(super) forget: Vec<NodeToken>,
    pub(super) publish: Option<Prepared>,
    /// The readable reports, by node.
    reports: Vec<(NodeToken, NodeMessage)>,
    /// Statements of upstreams that no earlier round has counted.
    pub(super) hints: Vec<PoolHint>,
}

/// A publication, and what is in the exchange once it has happened.
#[derive(Debug)]
pub(super) struct Prepared {
    pub(super) publication: Publication,
    published: BTreeMap<NodeToken, Published>,
}

impl Allocator {
    /// Another node holds the lease: what this one granted is not the last word any more.
    pub(super) fn reset(&mut self) {
        *self = Allocator::default();
    }

    /// Divides other limits from now on.
    pub(super) fn set_limits(&mut self, limits: &FleetLimits, settings: ShareSettings) {
        if let Some(shares) = &mut self.shares {
            shares.set_limits(limits.clone());
            shares.set_settings(settings);
        }
    }

    /// An operator says that this node has stopped.
    pub(super) fn forget(&mut self, node: NodeToken) {
        if let Some(shares) = &mut self.shares {
            shares.forget(node_id(node));
            self.forgotten.insert(node);
        }
    }

    /// Takes the reports and decides.
    pub(super) fn allocate(
        &mut self,
        now: Time,
        view: &AllocatorView,
        names: &mut Names,
        limits: &FleetLimits,
        settings: ShareSettings,
    ) -> Steps {
        let most_flows = TENANTS_SIZE / (TENANT_SIZE + names.longest_tenant());
        let settings = ShareSettings {
            most_flows,
            ..settings
        };
        let goes_on = view.grants.is_none() && self.numbers.contains(&view.number);
        let mut shares = match self.shares.take() {
            Some(shares) if goes_on => shares,
            _ => self.begin(now, view, names, limits, settings),
        };
        shares.set_settings(settings);
        let reports = self.take_reports(now, &mut shares, view, names);
        let uncounted = |(node, message): &(_, _)| self.hints.count(*node, message);
        let hints = reports.iter().flat_map(uncounted).collect();
        let mut steps = Steps {
            reports,
            hints,
            ..Steps::default()
        };
        // Nothing is published while it learns: the next allocator would not know that it has to
        // learn as well.
        if !shares.is_learning(now) {
            let round = shares.allocate(now);
            steps.forget = self.lost(view, &round);
            steps.publish = self.prepare(view, &round, names, &steps.reports);
        }
        self.shares = Some(shares);
        steps
    }

    /// Takes over, with what may be in force according to the durable grants.
    fn begin(
        &mut self,
        now: Time,
        view: &AllocatorView,
        names: &mut Names,
        limits: &FleetLimits,
        settings: ShareSettings,
    ) -> Shares {
        self.reset();
        let mut learns = view.emptied || view.grants.is_none();
        let mut grants: BTreeMap<NodeId, Vec<ShareMessage>> = BTreeMap::new();
        for grant in view.grants.iter().flatten() {
            match ShareMessage::decode(&grant.body) {
                Ok(message) => grants.entry(node_id(grant.node)).or_default().push(message),
                Err(error) => {
                    tracing::warn!(node = %grant.node, %error, "cannot read a grant of the fleet");
                    learns = true;
                }
            }
        }
        let bounds: BTreeMap<NodeId, Bound> = grants
            .into_iter()
            .map(|(node, grants)| (node, names.bound(&grants, limits)))
            .collect();
        tracing::info!(
            epoch = view.epoch,
            nodes = view.reports.len(),
            learns = learns || bounds.is_empty(),
            "this node allocates the limits of the fleet"
        );
        let before = view.epoch.saturating_sub(1);
        let mut shares = Shares::take_over(limits.clone(), settings, now, before, bounds);
        if learns {
            shares.learn(now);
        }
        self.numbers = [view.number; 2];
        shares
    }

    fn take_reports(
        &mut self,
        now: Time,
        shares: &mut Shares,
        view: &AllocatorView,
        names: &mut Names,
    ) -> Vec<(NodeToken, NodeMessage)> {
        let mut readable = Vec::with_capacity(view.reports.len());
        for report in &view.reports {
            let node = report.node;
            if self.forgotten.contains(&node) {
                continue;
            }
            match NodeMessage::decode(&report.body) {
                Ok(message) => {
                    shares.report(now, &names.number_report(node_id(node), &message));
                    readable.push((node, message));
                }
                Err(error) => {
                    if self.unreadable.insert(node) {
                        let name = &report.name;
                        tracing::warn!(name, %node, %error, "cannot read the report of a node");
                    }
                }
            }
        }
        let reporting: BTreeSet<NodeToken> = view.reports.iter().map(|one| one.node).collect();
        // A report that is gone was removed: its node left, was forgotten, or has another token. In
        // the last case, the report under the new token has been taken above.
        for gone in self.reporting.difference(&reporting) {
            shares.forget(node_id(*gone));
            self.published.remove(gone);
        }
        self.forgotten.retain(|node| reporting.contains(node));
        self.unreadable.retain(|node| reporting.contains(node));
        self.too_large.retain(|node| reporting.contains(node));
        self.hints.retain(|node| reporting.contains(node));
        self.reporting = reporting;
        readable
    }

    /// Nodes that the allocator no longer accounts for, because they have been silent for too long.
    fn lost(&mut self, view: &AllocatorView, round: &Round) -> Vec<NodeToken> {
        let reports = view.reports.iter().map(|report| report.node);
        let known = reports.chain(self.published.keys().copied());
        let lost: BTreeSet<NodeToken> = known
            .filter(|node| !round.bounds.contains_key(&node_id(*node)))
            .filter(|node| !self.unreadable.contains(node))
            .collect();
        for node in &lost {
            self.published.remove(node);
            self.forgotten.insert(*node);
        }
        lost.into_iter().collect()
    }

    fn prepare(
        &mut self,
        view: &AllocatorView,
        round: &Round,
        names: &Names,
        reports: &[(NodeToken, NodeMessage)],
    ) -> Option<Prepared> {
        let mut allocations = Vec::new();
        let mut published = BTreeMap::new();
        for (id, allocation) in &round.allocations {
            let node = node_token(*id);
            let message = names.name_allocation(allocation);
            let before = self.published.get(&node);
            let waits = reports.iter().any(|(reporter, report)| {
                let is_idle = report.demand.is_empty() && report.hints.is_empty();
                *reporter == node && !(is_idle && report.echo == message.stamp)
            });
            if before.is_some_and(|before| before.is_same(&message, waits)) {
                continue;
            }
            let same_share = before.is_some_and(|before| before.share == allocation.share);
            let body = Bytes::from(message.encode());
            // The others must not wait for this one. It keeps its share, which is accounted for.
            if body.len() > MAX_BODY {
                if self.too_large.insert(node) {
                    tracing::warn!(
                        %node,
                        size = body.len(),
                        limit = MAX_BODY,
                        "the allocation of a node is too large to be sent: it keeps its share; \
                         configure fewer tenants or pools with limits of their own"
                    );
                }
                continue;
            }
            allocations.push(Allocated {
                node,
                body,
                raised: !same_share && (round.raised || self.in_doubt),
            });
            let share = allocation.share.clone();
            published.insert(node, Published { share, message });
        }
        let stamp = Stamp::new(view.epoch, view.number + 1);
        (!allocations.is_empty()).then_some(Prepared {
            publication: Publication { stamp, allocations },
            published,
        })
    }

    /// The publication has happened.
    pub(super) fn published(&mut self, prepared: Prepared) {
        self.numbers = [prepared.publication.stamp.number; 2];
        self.published.extend(prepared.published);
        self.in_doubt = false;
    }

    /// The publication may or may not have happened.
    pub(super) fn not_published(&mut self, stamp: Stamp) {
        self.numbers[1] = stamp.number;
        self.in_doubt = true;
        if let Some(shares) = &mut self.shares {
            shares.not_published();
        }
    }
}

impl Published {
    /// Whether a message says nothing that its node needs. An acknowledgement alone is needed only
    /// by a node that waits for one.
    fn is_same(&self, message: &ShareMessage, waits: bool) -> bool {
        let unseen = |message: &ShareMessage| ShareMessage {
            seen: 0,
            ..message.clone()
        };
        match waits {
            true => self.message == *message,
            false => unseen(&self.message) == unseen(message),
        }
    }
}
