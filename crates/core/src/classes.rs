//! Domains, the classes of each, and the flow queues of each class: all three are fair queues.
//!
//! A flow queue is (domain, class, flow). It orders its open lanes by the age of their heads, and
//! takes part in its section's fair queue with its own account. Domains and classes are few: the
//! engine ranks those that have a lane to serve when it selects, and no order of them is kept.
//! Strict and fifo order are ranks of another kind.
//!
//! Domains compete for nothing but what the limits on everything allow. There the policy's order of
//! classes holds first; then the domain goes that has had least for the weights of the jobs it
//! serves.

use crate::aging::Aging;
use crate::config::{ClassConfig, Config, Policy};
use crate::fair_queue::{Account, IdleTags, InverseWeight, Rank, VirtualClock, VirtualTime};
use crate::forecast::Forecast;
use crate::heap::{Heap, Positions};
use crate::id::{Class, Cost, Domain, Flow, FlowId, LaneId, QueueId, Section};
use crate::lanes::LaneKey;
use crate::occupancy::{Burden, Holder, Occupancy};
use crate::stats::ClassStats;
use crate::table::{Id, Table};
use foldhash::fast::FixedState;
use smallvec::SmallVec;
use std::ops::{Index, IndexMut};

/// The jobs of one flow in one section.
#[derive(Debug)]
pub(crate) struct FlowQueue {
    flow: FlowId,
    /// Its jobs that wait.
    holder: Holder,
    account: Account,
    /// Lanes that are not blocked, by the order of arrival of their heads.
    open: Heap<u64, LaneId>,
    lanes: SmallVec<[LaneId; 2]>,
}

impl FlowQueue {
    pub(crate) fn lanes(&self) -> &[LaneId] {
        &self.lanes
    }
}

/// One class of a domain.
#[derive(Debug)]
pub(crate) struct ClassState {
    pub(crate) section: Section,
    pub(crate) config: ClassConfig,
    account: Account,
    clock: VirtualClock,
    /// The queues that have an open lane and whose flow is not blocked.
    ready: Heap<Rank, QueueId>,
    positions: Positions,
    queues: Table<QueueId, FlowQueue>,
    idle: IdleTags,
    /// The places of the class, by flow queue.
    occupancy: Occupancy<QueueId>,
    /// Kept only if the class has aging.
    pub(crate) aging: Option<Aging>,
    pub(crate) forecast: Forecast,
}

impl ClassState {
    /// Jobs waiting.
    #[inline]
    pub(crate) fn waiting(&self) -> u64 {
        self.occupancy.taken()
    }

    pub(crate) fn queue(&self, queue: QueueId) -> &FlowQueue {
        &self.queues[queue]
    }

    /// The first lane of the flow queue that is served next.
    #[inline]
    pub(crate) fn first_lane(&self) -> Option<(Rank, LaneId)> {
        let (rank, queue) = self.ready.first()?;
        let (_, lane) = self.queues[queue].open.first()?;
        Some((rank, lane))
    }

    /// The number of arrival of the job at the head of that lane.
    #[inline]
    pub(crate) fn oldest_ready(&self) -> Option<u64> {
        self.ready.first().map(|(rank, _)| rank.tie)
    }

    /// The rank of a lane of that queue whose head arrived as number `seq`.
    #[inline]
    pub(crate) fn rank(&self, policy: Policy, queue: QueueId, seq: u64) -> Rank {
        rank(policy, &self.clock, &self.queues[queue], seq)
    }

    #[inline]
    fn requeue(&mut self, policy: Policy, id: QueueId, blocked: bool) {
        let queue = &self.queues[id];
        let first = queue.open.first().filter(|_| !blocked);
        let rank = first.map(|(seq, _)| rank(policy, &self.clock, queue, seq));
        self.ready.update(&mut self.positions, rank, id);
    }

    /// Makes the queue of a flow: its weight for places, and that for service.
    pub(crate) fn add_queue(
        &mut self,
        flow: FlowId,
        name: Flow,
        weight: u32,
        service: InverseWeight,
    ) -> QueueId {
        let tag = self.idle.recall(name);
        self.queues.insert(FlowQueue {
            flow,
            holder: Holder::of(weight),
            account: Account::new(tag, service),
            open: Heap::default(),
            lanes: SmallVec::new(),
        })
    }

    /// Forgets a queue without jobs; what its flow had beyond its share is remembered under its
    /// name.
    pub(crate) fn remove_queue(&mut self, id: QueueId, name: Flow) -> FlowQueue {
        let queue = self.queues.remove(id);
        self.idle.remember(&self.clock, name, queue.account.tag());
        self.occupancy.forget(id);
        self.queues.shrink();
        queue
    }

    pub(crate) fn add_lane(&mut self, queue: QueueId, lane: LaneId) {
        self.queues[queue].lanes.push(lane);
    }

    /// Drops a lane without jobs.
    pub(crate) fn drop_lane(&mut self, queue: QueueId, lane: LaneId) {
        self.queues[queue].lanes.retain(|other| *other != lane);
    }

    /// The weights of all flows that have jobs waiting.
    pub(crate) fn weights(&self) -> u64 {
        self.occupancy.weights()
    }

    /// Whether a flow of that weight has fewer places of the class than its share of `places`.
    pub(crate) fn is_below_share(&self, held: u64, weight: u32, places: u64) -> bool {
        self.occupancy.is_below_share(held, weight, places)
    }

    /// The jobs that wait in a queue.
    pub(crate) fn waiting_in(&self, queue: QueueId) -> u64 {
        self.queues[queue].holder.held()
    }

    /// The queue that holds most of the class's places for its weight.
    pub(crate) fn largest_queue(&mut self) -> Option<(Burden, QueueId)> {
        self.occupancy.largest(&self.queues, |queue| queue.holder)
    }

    /// A job of the queue takes a place.
    #[inline]
    fn take_place(&mut self, queue: QueueId) {
        self.occupancy.take(queue, &mut self.queues[queue].holder);
    }

    /// A job of the queue gives its place up, one of `places` in all. Without a backlog, the queue
    /// and the class forfeit their credit.
    #[inline]
    fn give_place_up(&mut self, queue: QueueId, places: u64) {
        let FlowQueue {
            holder, account, ..
        } = &mut self.queues[queue];
        self.occupancy.give_up(holder, places);
        if holder.held() == 0 {
            account.forfeit_credit();
        }
        // The class as a whole has no backlog, and credit is for the backlogged.
        if self.waiting() == 0 {
            self.account.forfeit_credit();
        }
    }

    /// Applies new weights of flows: those for places, and those for service.
    pub(crate) fn reweigh(&mut self, weights: impl Fn(FlowId) -> (u32, InverseWeight)) {
        for (_, queue) in self.queues.iter_mut() {
            let (weight, service) = weights(queue.flow);
            self.clock.reweigh(&mut queue.account, service);
            self.occupancy.reweigh(&mut queue.holder, weight);
        }
    }

    /// Applies a new weight for service to one queue. Its rank is the caller's to renew.
    pub(crate) fn reweigh_queue(&mut self, queue: QueueId, service: InverseWeight) {
        self.clock.reweigh(&mut self.queues[queue].account, service);
    }

    /// The number of flows whose debt is remembered though they have no jobs.
    pub(crate) fn idle_debts(&self) -> usize {
        self.idle.len()
    }
}

#[inline]
fn rank(policy: Policy, clock: &VirtualClock, queue: &FlowQueue, seq: u64) -> Rank {
    match policy {
        Policy::Fifo => Rank {
            tag: VirtualTime::ZERO,
            tie: seq,
        },
        Policy::Strict | Policy::Wfq | Policy::Hybrid => clock.rank(&queue.account, seq),
    }
}

/// The classes of one domain.
#[derive(Debug)]
struct DomainState {
    id: Domain,
    /// Its account among the domains, without credit; the weight is that of the job at hand.
    account: Account,
    clock: VirtualClock,
    classes: Vec<ClassState>,
    /// Jobs waiting.
    waiting: u64,
}

impl DomainState {
    /// The class that the policy serves next, and the number of arrival of its candidate.
    #[inline]
    fn first(
        &self,
        policy: Policy,
        oldest: impl Fn(&ClassState) -> Option<u64>,
    ) -> Option<(Section, u64)> {
        let mut first: Option<(Rank, Section, u64)> = None;
        // Classes are few. Ranking each costs less than keeping an order of them that every arrival
        // and grant would change.
        for class in &self.classes {
            let Some(seq) = oldest(class) else { continue };
            let rank = self.rank_of(policy, class, seq);
            if first.is_none_or(|(least, ..)| rank < least) {
                first = Some((rank, class.section, seq));
            }
        }
        first.map(|(_, section, seq)| (section, seq))
    }

    #[inline]
    fn rank_of(&self, policy: Policy, state: &ClassState, seq: u64) -> Rank {
        let class = state.section.class;
        match fixed_rank(policy, class, seq) {
            Some(rank) => rank,
            None => self.clock.rank(&state.account, class.index() as u64),
        }
    }
}

/// The rank of a class that does not share by weight.
#[inline]
fn fixed_rank(policy: Policy, class: Class, seq: u64) -> Option<Rank> {
    let tag = VirtualTime::ZERO;
    let tie = match policy {
        Policy::Fifo => seq,
        Policy::Strict | Policy::Wfq | Policy::Hybrid if policy.shares(class) => return None,
        Policy::Strict | Policy::Wfq | Policy::Hybrid => class.index() as u64,
    };
    Some(Rank { tag, tie })
}

/// All classes.
#[derive(Debug)]
pub(crate) struct Classes {
    policy: Policy,
    has_aging: bool,
    count: usize,
    domains: Vec<DomainState>,
    /// Among the domains.
    clock: VirtualClock,
    /// Where open lanes stand in their queues.
    positions: Positions,
    /// By class, over all domains.
    stats: Vec<ClassStats>,
    hasher: FixedState,
}

impl Classes {
    pub(crate) fn new(policy: Policy, hasher: FixedState) -> Self {
        Classes {
            policy,
            has_aging: false,
            count: 0,
            domains: Vec::new(),
            clock: VirtualClock::default(),
            positions: Positions::default(),
            stats: Vec::new(),
            hasher,
        }
    }

    /// Applies new settings; there may be more classes and domains than before, never fewer.
    pub(crate) fn reconfigure(&mut self, config: &Config) {
        let configs = &config.classes;
        self.policy = config.policy;
        self.has_aging = configs.iter().any(|config| config.aging.is_some());
        self.count = configs.len();
        self.stats.resize_with(self.count, ClassStats::default);
        for index in self.domains.len()..config.domains() {
            self.domains.push(DomainState {
                id: Domain(index as u16),
                account: Account::new(VirtualTime::ZERO, InverseWeight::of(1)),
                clock: VirtualClock::default(),
                classes: Vec::new(),
                waiting: 0,
            });
        }
        for domain in &mut self.domains {
            let known = domain.classes.len();
            for (index, class) in configs.iter().enumerate().skip(known) {
                domain.classes.push(ClassState {
                    section: Section {
                        domain: domain.id,
                        class: Class::from_index(index),
                    },
                    config: *class,
                    account: Account::new(VirtualTime::ZERO, InverseWeight::of(class.weight)),
                    clock: VirtualClock::default(),
                    ready: Heap::default(),
                    positions: Positions::default(),
                    queues: Table::default(),
                    idle: IdleTags::new(self.hasher.clone()),
                    occupancy: Occupancy::default(),
                    aging: None,
                    forecast: Forecast::new(config.bookings),
                });
            }
            for (state, class) in domain.classes.iter_mut().zip(configs) {
                state.config = *class;
                state.forecast.set_most(config.bookings);
                state.aging = class.aging.map(|_| Aging::default());
            }
        }
    }

    /// Applies new weights of classes for service. Their order is not stored, so nothing has to be
    /// ranked anew.
    pub(crate) fn reweigh(&mut self, weight: impl Fn(Class) -> InverseWeight) {
        for domain in &mut self.domains {
            for state in &mut domain.classes {
                let weight = weight(state.section.class);
                domain.clock.reweigh(&mut state.account, weight);
            }
        }
    }

    /// How many classes there are.
    pub(crate) fn len(&self) -> usize {
        self.count
    }

    pub(crate) fn domains(&self) -> usize {
        self.domains.len()
    }

    /// Whether any class has aging.
    #[inline]
    pub(crate) fn has_aging(&self) -> bool {
        self.has_aging
    }

    /// The counters of a class, over all domains.
    pub(crate) fn stats(&self, class: Class) -> Option<&ClassStats> {
        self.stats.get(class.index())
    }

    /// The counters of all classes.
    pub(crate) fn all_stats(&self) -> impl Iterator<Item = (Class, &ClassStats)> {
        let stats = self.stats.iter().enumerate();
        stats.map(|(class, stats)| (Class::from_index(class), stats))
    }

    #[inline]
    pub(crate) fn stats_mut(&mut self, class: Class) -> &mut ClassStats {
        &mut self.stats[class.index()]
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &ClassState> {
        self.domains.iter().flat_map(|domain| &domain.classes)
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut ClassState> {
        let domains = self.domains.iter_mut();
        domains.flat_map(|domain| &mut domain.classes)
    }

    /// A class in every domain.
    pub(crate) fn everywhere_mut(&mut self, class: Class) -> impl Iterator<Item = &mut ClassState> {
        let domains = self.domains.iter_mut();
        domains.filter_map(move |domain| domain.classes.get_mut(class.index()))
    }

    /// A class in every domain.
    pub(crate) fn everywhere(&self, class: Class) -> impl Iterator<Item = &ClassState> {
        let domains = self.domains.iter();
        domains.filter_map(move |domain| domain.classes.get(class.index()))
    }

    /// The section that the policy serves next. `oldest` returns the arrival number of a section's
    /// candidate; a section without one takes no part.
    #[inline]
    pub(crate) fn first(&self, oldest: impl Fn(&ClassState) -> Option<u64>) -> Option<Section> {
        // Most cores have one domain, and then nothing is shared across domains.
        if let [only] = &self.domains[..] {
            return Some(only.first(self.policy, oldest)?.0);
        }
        let waiting = self.domains.iter().filter(|domain| domain.waiting > 0);
        let candidates = waiting.filter_map(|domain| {
            let (section, seq) = domain.first(self.policy, &oldest)?;
            Some((self.rank_across(domain, section.class, seq), section))
        });
        let first = candidates.min_by_key(|(rank, _)| *rank);
        first.map(|(_, section)| section)
    }

    /// The order of domains whose next jobs are of that class and age.
    fn rank_across(&self, domain: &DomainState, class: Class, seq: u64) -> (Rank, Rank) {
        let last = Rank {
            tag: VirtualTime::ZERO,
            tie: u64::MAX,
        };
        // The order of classes holds across domains first: an urgent job of one domain goes before
        // bulk work of another, whatever their shares.
        let fixed = fixed_rank(self.policy, class, seq);
        (fixed.unwrap_or(last), self.clock.rank(&domain.account, seq))
    }

    /// The rank of a class in its domain; its oldest candidate arrived as number `seq`.
    #[inline]
    pub(crate) fn rank_of(&self, section: Section, seq: u64) -> Rank {
        let domain = &self.domains[section.domain.index()];
        domain.rank_of(self.policy, &self[section], seq)
    }

    /// A job of a flow queue takes a place of its section.
    #[inline(always)]
    pub(crate) fn take_place(&mut self, section: Section, queue: QueueId) {
        let domain = &mut self.domains[section.domain.index()];
        domain.waiting += 1;
        domain.classes[section.class.index()].take_place(queue);
    }

    /// A job of a flow queue gives its place up, one of `places` in all.
    #[inline(always)]
    pub(crate) fn give_place_up(&mut self, section: Section, queue: QueueId, places: u64) {
        let domain = &mut self.domains[section.domain.index()];
        domain.waiting -= 1;
        domain.classes[section.class.index()].give_place_up(queue, places);
    }

    /// Adds a lane to the open ones of its queue or moves it there, `seq` being its head's, or
    /// takes it out. Puts the queue where it belongs.
    #[inline]
    pub(crate) fn set_open(
        &mut self,
        lane: LaneId,
        key: &LaneKey,
        seq: Option<u64>,
        blocked: bool,
    ) {
        let Section { domain, class } = key.section;
        let state = &mut self.domains[domain.index()].classes[class.index()];
        let open = &mut state.queues[key.queue].open;
        open.update(&mut self.positions, seq, lane);
        state.requeue(self.policy, key.queue, blocked);
    }

    /// Puts a queue where it belongs in its section after its tag changed, or whether its flow is
    /// `blocked`: then it takes no part.
    pub(crate) fn requeue(&mut self, section: Section, queue: QueueId, blocked: bool) {
        let policy = self.policy;
        self[section].requeue(policy, queue, blocked);
    }

    /// Charges a grant to a flow queue, its class and its domain.
    #[inline(always)]
    pub(crate) fn charge(&mut self, section: Section, queue: QueueId, cost: Cost, in_turn: bool) {
        let Section { domain, class } = section;
        let several = self.domains.len() > 1;
        let domain = &mut self.domains[domain.index()];
        let state = &mut domain.classes[class.index()];
        let account = &mut state.queues[queue].account;
        account.enter(cost);
        state.account.enter(cost);
        // Nothing is shared by weight, so no tag has to move.
        if self.policy.is_by_arrival() {
            return;
        }
        state.clock.charge(account, cost, in_turn);
        let shares = self.policy.shares(class);
        if shares {
            domain.clock.charge(&mut state.account, cost, in_turn);
        }
        if several {
            // A domain has no weight of its own: what it is charged counts for the jobs that it
            // serves, so that a domain with many heavy tenants is not held to the part of one with
            // few light ones.
            let weight = job_weight(shares, &state.account, account);
            domain.account.set_inverse_weight(weight);
            self.clock.charge(&mut domain.account, cost, in_turn);
        }
    }

    /// A granted job ended: its charge is corrected to the `actual` cost, if that is another one.
    /// `None` takes it back whole.
    #[inline(always)]
    pub(crate) fn settle(
        &mut self,
        section: Section,
        id: QueueId,
        charged: Cost,
        actual: Option<Cost>,
    ) {
        let Section { domain, class } = section;
        let several = self.domains.len() > 1;
        let domain = &mut self.domains[domain.index()];
        let state = &mut domain.classes[class.index()];
        let queue = &mut state.queues[id];
        if actual != Some(charged) && !self.policy.is_by_arrival() {
            // Credit is for members that wait: an idle one would come back with more than its
            // share.
            let backlogged = queue.holder.held() > 0;
            (state.clock).correct(&mut queue.account, charged, actual, backlogged);
            let shares = self.policy.shares(class);
            if shares {
                let backlogged = state.occupancy.taken() > 0;
                (domain.clock).correct(&mut state.account, charged, actual, backlogged);
            }
            if several {
                let weight = job_weight(shares, &state.account, &queue.account);
                domain.account.set_inverse_weight(weight);
                (self.clock).correct(&mut domain.account, charged, actual, false);
            }
        }
        queue.account.leave(charged);
        state.account.leave(charged);
    }
}

/// The weight of a flow's job among the domains: that of its flow, times that of its class where
/// classes share.
fn job_weight(shares: bool, class: &Account, flow: &Account) -> InverseWeight {
    if shares {
        class.inverse_weight().times(flow.inverse_weight())
    } else {
        flow.inverse_weight()
    }
}

impl Index<Section> for Classes {
    type Output = ClassState;

    #[inline]
    fn index(&self, section: Section) -> &ClassState {
        &self.domains[section.domain.index()].classes[section.class.index()]
    }
}

impl IndexMut<Section> for Classes {
    #[inline]
    fn index_mut(&mut self, section: Section) -> &mut ClassState {
        &mut self.domains[section.domain.index()].classes[section.class.index()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::TargetConfig;
    use crate::id::GroupId;
    use std::collections::BTreeMap;

    /// Classes of the weights 3 and 1 in each domain. Every section has one flow with an open lane;
    /// those of less urgent classes came first.
    struct World {
        classes: Classes,
        queues: BTreeMap<Section, (QueueId, LaneId)>,
    }

    impl World {
        fn new(policy: Policy, domains: u16) -> Self {
            let target = |domain| TargetConfig {
                domain: Domain(domain),
                ..TargetConfig::default()
            };
            let config = Config {
                policy,
                classes: vec![ClassConfig::weight(3), ClassConfig::weight(1)],
                targets: (0..domains).map(target).collect(),
                ..Config::default()
            };
            let mut classes = Classes::new(policy, FixedState::default());
            classes.reconfigure(&config);
            classes.reweigh(|class| InverseWeight::of(config.classes[class.index()].weight));
            let mut queues = BTreeMap::new();
            for class in [Class(1), Class(0)] {
                for domain in (0..domains).map(Domain) {
                    let (section, seq) = (Section { domain, class }, queues.len());
                    let (flow, lane) = (FlowId::from_index(0), LaneId::from_index(seq));
                    let weight = InverseWeight::of(1);
                    let queue = classes[section].add_queue(flow, Flow(7), 1, weight);
                    let key = LaneKey {
                        section,
                        flow,
                        queue,
                        group: GroupId::from_index(0),
                        sole_target: None,
                    };
                    classes.take_place(section, queue);
                    classes.set_open(lane, &key, Some(seq as u64), false);
                    queues.insert(section, (queue, lane));
                }
            }
            World { classes, queues }
        }

        /// Grants jobs of cost 1, as if each lane had many, and counts them by section.
        fn serve(&mut self, grants: u32) -> BTreeMap<Section, u32> {
            let mut served = BTreeMap::new();
            for _ in 0..grants {
                let section = self.classes.first(ClassState::oldest_ready);
                let section = section.expect("all have an open lane");
                let (queue, _) = self.queues[&section];
                self.classes.charge(section, queue, Cost(1), true);
                self.classes.requeue(section, queue, false);
                *served.entry(section).or_default() += 1;
            }
            served
        }
    }

    fn section(domain: u16, class: u8) -> Section {
        Section {
            domain: Domain(domain),
            class: Class(class),
        }
    }

    #[test]
    fn classes_share_by_weight_under_wfq() {
        let served = World::new(Policy::Wfq, 1).serve(400);
        let expected = BTreeMap::from([(section(0, 0), 300), (section(0, 1), 100)]);
        assert_eq!(served, expected);
    }

    #[test]
    fn class_0_goes_first_under_strict_and_hybrid() {
        for policy in [Policy::Strict, Policy::Hybrid] {
            let served = World::new(policy, 2).serve(40);
            assert!(
                served.keys().all(|section| section.class == Class(0)),
                "{policy:?}"
            );
            assert_eq!(served.len(), 2, "domains take turns: {policy:?}");
        }
    }

    #[test]
    fn the_oldest_goes_first_under_fifo_whatever_its_class() {
        let world = World::new(Policy::Fifo, 1);
        let first = world.classes.first(ClassState::oldest_ready);
        assert_eq!(first, Some(section(0, 1)));
    }

    #[test]
    fn domains_share_alike_what_the_limits_on_everything_allow() {
        let served = World::new(Policy::Wfq, 3).serve(600);
        for domain in 0..3 {
            let of_domain = served
                .iter()
                .filter(|(section, _)| section.domain == Domain(domain));
            let all: u32 = of_domain.map(|(_, served)| served).sum();
            assert!((195..=205).contains(&all), "domain {domain}: {all}");
        }
    }

    #[test]
    fn a_queue_of_a_blocked_flow_takes_no_part() {
        let mut world = World::new(Policy::Strict, 1);
        let (queue, lane) = world.queues[&section(0, 0)];
        world.classes.requeue(section(0, 0), queue, true);
        let first = |world: &World| world.classes.first(ClassState::oldest_ready);
        assert_eq!(first(&world), Some(section(0, 1)));
        world.classes.requeue(section(0, 0), queue, false);
        assert_eq!(first(&world), Some(section(0, 0)));
        let head = world.classes[section(0, 0)].first_lane();
        assert_eq!(head.map(|(_, lane)| lane), Some(lane));
    }

    #[test]
    fn a_forgotten_queue_leaves_its_debt_to_the_next_of_its_flow() {
        let mut world = World::new(Policy::Wfq, 1);
        let (one, (queue, _)) = (section(0, 1), world.queues[&section(0, 1)]);
        world.classes.charge(one, queue, Cost(9), true);
        world.classes.settle(one, queue, Cost(9), Some(Cost(9)));
        world.classes.give_place_up(one, queue, 10);
        let class = &mut world.classes[one];
        let before = class.rank(Policy::Wfq, queue, 1);
        class.remove_queue(queue, Flow(7));
        assert_eq!(class.idle_debts(), 1);
        let weight = InverseWeight::of(1);
        let again = class.add_queue(FlowId::from_index(0), Flow(7), 1, weight);
        assert_eq!(class.rank(Policy::Wfq, again, 1), before);
        let other = class.add_queue(FlowId::from_index(1), Flow(8), 1, weight);
        assert!(
            class.rank(Policy::Wfq, other, 1) < before,
            "it owes nothing"
        );
        assert_eq!(class.idle_debts(), 0);
    }

    #[test]
    fn an_excess_charge_is_given_back_to_the_flow_and_its_class() {
        let mut world = World::new(Policy::Wfq, 1);
        let (zero, (queue, _)) = (section(0, 0), world.queues[&section(0, 0)]);
        let rank = |world: &World| world.classes[zero].rank(Policy::Wfq, queue, 1);
        let before = (rank(&world), world.classes.rank_of(zero, 1));
        world.classes.charge(zero, queue, Cost(50), true);
        assert!(rank(&world) > before.0 && world.classes.rank_of(zero, 1) > before.1);
        world.classes.settle(zero, queue, Cost(50), None);
        assert_eq!((rank(&world), world.classes.rank_of(zero, 1)), before);
    }
}
