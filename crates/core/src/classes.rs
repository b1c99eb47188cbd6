//! Classes, and the flow queues inside each: both are fair queues.
//!
//! A flow queue is (class, flow). It orders its open lanes by the age of their heads, and takes
//! part in its class's fair queue with its own account. Classes are few: the engine ranks those
//! that have a lane to serve when it selects, and no order of them is kept. Strict and fifo order
//! are ranks of another kind.

use crate::aging::Aging;
use crate::config::{ClassConfig, Policy};
use crate::fair_queue::{Account, IdleTags, Rank, VirtualClock, VirtualTime};
use crate::forecast::Forecast;
use crate::heap::{Heap, Positions};
use crate::id::{Class, Cost, Flow, FlowId, LaneId, QueueId};
use crate::lanes::LaneKey;
use crate::occupancy::{Burden, Holder, Occupancy};
use crate::stats::ClassStats;
use crate::table::{Id, Table, indexed};
use foldhash::fast::FixedState;
use smallvec::SmallVec;

/// The jobs of one flow in one class.
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

/// One class.
#[derive(Debug)]
pub(crate) struct ClassState {
    pub(crate) id: Class,
    pub(crate) config: ClassConfig,
    account: Account,
    clock: VirtualClock,
    /// The queues that have an open lane and whose flow is not blocked.
    ready: Heap<Rank, QueueId>,
    positions: Positions,
    queues: Table<QueueId, FlowQueue>,
    idle: IdleTags,
    /// The places of the class, by flow queue.
    pub(crate) occupancy: Occupancy<QueueId>,
    /// Kept only if the class has aging.
    pub(crate) aging: Option<Aging>,
    pub(crate) forecast: Forecast,
    pub(crate) stats: ClassStats,
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

    pub(crate) fn add_queue(&mut self, flow: FlowId, name: Flow, weight: u32) -> QueueId {
        let tag = self.idle.recall(name);
        self.queues.insert(FlowQueue {
            flow,
            holder: Holder::of(weight),
            account: Account::new(tag, weight),
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
    pub(crate) fn take_place(&mut self, queue: QueueId) {
        self.occupancy.take(queue, &mut self.queues[queue].holder);
    }

    /// A job of the queue gives its place up, one of `places` in all. Without a backlog, the queue
    /// and the class forfeit their credit.
    #[inline]
    pub(crate) fn give_place_up(&mut self, queue: QueueId, places: u64) {
        let FlowQueue {
            holder, account, ..
        } = &mut self.queues[queue];
        self.occupancy.give_up(holder, places);
        if holder.held() == 0 {
            account.forfeit_credit();
        }
        if self.waiting() == 0 {
            self.account.forfeit_credit();
        }
    }

    /// Applies new weights of flows.
    pub(crate) fn reweigh(&mut self, weight: impl Fn(FlowId) -> u32) {
        for (_, queue) in self.queues.iter_mut() {
            let weight = weight(queue.flow);
            queue.account.set_weight(weight);
            self.occupancy.reweigh(&mut queue.holder, weight);
        }
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

/// All classes.
#[derive(Debug)]
pub(crate) struct Classes {
    policy: Policy,
    has_aging: bool,
    states: Vec<ClassState>,
    clock: VirtualClock,
    /// Where open lanes stand in their queues.
    positions: Positions,
    hasher: FixedState,
}

impl Classes {
    pub(crate) fn new(policy: Policy, hasher: FixedState) -> Self {
        Classes {
            policy,
            has_aging: false,
            states: Vec::new(),
            clock: VirtualClock::default(),
            positions: Positions::default(),
            hasher,
        }
    }

    /// Applies new settings; there may be more classes than before, never fewer.
    pub(crate) fn reconfigure(&mut self, policy: Policy, configs: &[ClassConfig], bookings: usize) {
        self.policy = policy;
        self.has_aging = configs.iter().any(|config| config.aging.is_some());
        for (index, config) in configs.iter().enumerate() {
            if index == self.states.len() {
                self.states.push(ClassState {
                    id: Class::from_index(index),
                    config: *config,
                    account: Account::new(VirtualTime::ZERO, config.weight),
                    clock: VirtualClock::default(),
                    ready: Heap::default(),
                    positions: Positions::default(),
                    queues: Table::default(),
                    idle: IdleTags::new(self.hasher.clone()),
                    occupancy: Occupancy::default(),
                    aging: None,
                    forecast: Forecast::new(bookings),
                    stats: ClassStats::default(),
                });
            }
            let state = &mut self.states[index];
            state.config = *config;
            state.account.set_weight(config.weight);
            state.forecast.set_most(bookings);
            state.aging = config.aging.map(|_| Aging::default());
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.states.len()
    }

    /// Whether any class has aging.
    #[inline]
    pub(crate) fn has_aging(&self) -> bool {
        self.has_aging
    }

    pub(crate) fn get(&self, class: Class) -> Option<&ClassState> {
        self.states.get(class.index())
    }

    pub(crate) fn get_mut(&mut self, class: Class) -> Option<&mut ClassState> {
        self.states.get_mut(class.index())
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &ClassState> {
        self.states.iter()
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut ClassState> {
        self.states.iter_mut()
    }

    /// The class that the policy serves next, among those that `oldest` names a candidate of by its
    /// number of arrival.
    #[inline]
    pub(crate) fn first(&self, oldest: impl Fn(&ClassState) -> Option<u64>) -> Option<Class> {
        let mut first: Option<(Rank, Class)> = None;
        for class in &self.states {
            let Some(seq) = oldest(class) else { continue };
            let rank = self.rank_of(class, seq);
            if first.is_none_or(|(least, _)| rank < least) {
                first = Some((rank, class.id));
            }
        }
        first.map(|(_, class)| class)
    }

    /// The rank of a class whose oldest candidate arrived as number `seq`.
    #[inline]
    pub(crate) fn rank_of(&self, class: &ClassState, seq: u64) -> Rank {
        let number = class.id.index() as u64;
        let tag = VirtualTime::ZERO;
        match self.policy {
            Policy::Fifo => Rank { tag, tie: seq },
            Policy::Strict | Policy::Wfq | Policy::Hybrid if !self.policy.shares(class.id) => {
                Rank { tag, tie: number }
            }
            Policy::Strict | Policy::Wfq | Policy::Hybrid => {
                self.clock.rank(&class.account, number)
            }
        }
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
        let state = &mut self.states[key.class.index()];
        let open = &mut state.queues[key.queue].open;
        open.update(&mut self.positions, seq, lane);
        state.requeue(self.policy, key.queue, blocked);
    }

    /// Puts a queue where it belongs in its class after its tag changed, or whether its flow is
    /// `blocked`: then it takes no part.
    pub(crate) fn requeue(&mut self, class: Class, queue: QueueId, blocked: bool) {
        self.states[class.index()].requeue(self.policy, queue, blocked);
    }

    /// Charges a grant to a flow queue and its class.
    #[inline(always)]
    pub(crate) fn charge(&mut self, class: Class, queue: QueueId, cost: Cost, in_turn: bool) {
        let state = &mut self.states[class.index()];
        let account = &mut state.queues[queue].account;
        account.enter(cost);
        state.account.enter(cost);
        if self.policy == Policy::Fifo {
            return;
        }
        state.clock.charge(account, cost, in_turn);
        if self.policy.shares(class) {
            self.clock.charge(&mut state.account, cost, in_turn);
        }
    }

    /// A granted job ended: its charge is corrected to the `actual` cost, if that is another one.
    /// `None` takes it back whole.
    #[inline(always)]
    pub(crate) fn settle(
        &mut self,
        class: Class,
        id: QueueId,
        charged: Cost,
        actual: Option<Cost>,
    ) {
        let state = &mut self.states[class.index()];
        let queue = &mut state.queues[id];
        if actual != Some(charged) && self.policy != Policy::Fifo {
            let backlogged = queue.holder.held() > 0;
            (state.clock).correct(&mut queue.account, charged, actual, backlogged);
            if self.policy.shares(class) {
                let backlogged = state.occupancy.taken() > 0;
                (self.clock).correct(&mut state.account, charged, actual, backlogged);
            }
        }
        queue.account.leave(charged);
        state.account.leave(charged);
    }
}

indexed!(Classes[class: Class] -> ClassState = states[class.index()]);
