//! The parts of a core's state and how they hang together.
//!
//! A *lane* is (class, flow, target set): a FIFO of jobs, linked through the jobs themselves. A *queue* is
//! (class, flow): it has the fair-share tag, and orders its open lanes by the age of their heads. A *class*
//! orders its queues by tag. A *bay* is a target set: lanes whose targets are all shut are parked there.
//!
//! What there may be ten thousands of is a line or two of the cache, and begins where the processor fetches: with many flows or
//! targets nearly every look is a miss. Pairs of lines begin at a multiple of 128 bytes, because they are fetched together.

use super::tags::{Owed, Pace, Rank, Tag};
use crate::config::ClassConfig;
use crate::forecast::Forecast;
use crate::gate::Gate;
use crate::heap::{Heap, NOWHERE, SmallHeap};
use crate::id::{Class, Cost, Flow, Key, TargetSet};
use crate::job::Job;
use crate::stats::ClassStats;
use crate::table::Slot;
use crate::time::Time;
use crate::wheel::TimerId;
use smallvec::SmallVec;

/// The index of nothing.
pub(super) const NIL: u32 = u32::MAX;

/// A live job: with a small payload, two lines of the cache, in this order. The first has what its lane and a grant ask for.
#[derive(Debug)]
#[repr(C, align(64))]
pub(super) struct Entry<P> {
    /// Tells this job from all others that had the same slot; 0 for one that has ended.
    pub(super) serial: u64,
    /// Its place in the order of arrival; a retry gets a new one.
    pub(super) seq: u64,
    pub(super) cost: Cost,
    /// Since when it was ready to run, counted from the first time; the end of time if it never was.
    pub(super) since: Time,
    pub(super) state: State,
    pub(super) lane: u32,
    pub(super) lane_prev: u32,
    pub(super) lane_next: u32,
    pub(super) flow: u32,
    pub(super) used: u32,
    pub(super) class: Class,
    /// Charged already, before it was sent elsewhere.
    pub(super) prepaid: bool,
    pub(super) cancelled: bool,
    pub(super) probing: bool,
    /// Means nothing unless it is `keyed`.
    pub(super) key: Key,
    /// The end of time if it does not.
    pub(super) expire_at: Time,
    pub(super) targets: TargetSet,
    pub(super) bay: u32,
    pub(super) attempts: u32,
    pub(super) timer: TimerId,
    pub(super) keyed: bool,
    /// Whether it has a delay key, and whether it holds it. The key is in [`Later`].
    pub(super) has_delay_key: bool,
    pub(super) holds_delay_key: bool,
    pub(super) payload: Option<P>,
}

const _: () = assert!(std::mem::size_of::<Entry<u64>>() == 128);

/// What only a job that is delayed, or would share a delay with others, needs: apart, so that the others are smaller.
#[derive(Clone, Copy, Debug)]
pub(super) struct Later {
    /// When it is due, if it is delayed.
    pub(super) due: Time,
    /// Means nothing unless its entry says that there is one.
    pub(super) delay_key: Key,
}

impl Default for Later {
    fn default() -> Self {
        Later {
            due: Time::MAX,
            delay_key: Key(0),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Delayed,
    Waiting,
    Running { target: u32 },
}

impl<P> Slot for Entry<P> {
    #[inline]
    fn is_live(&self) -> bool {
        self.serial != 0
    }

    #[inline]
    fn end(&mut self) {
        self.serial = 0;
    }
}

impl<P> Entry<P> {
    /// What lies where no job has been yet.
    pub(super) fn vacant() -> Self {
        Entry {
            serial: 0,
            state: State::Delayed,
            payload: None,
            class: Class(0),
            flow: NIL,
            cost: Cost(0),
            targets: TargetSet::default(),
            bay: NIL,
            key: Key(0),
            keyed: false,
            has_delay_key: false,
            holds_delay_key: false,
            expire_at: Time::MAX,
            seq: 0,
            since: Time::MAX,
            attempts: 0,
            used: 0,
            prepaid: false,
            cancelled: false,
            probing: false,
            timer: TimerId::NONE,
            lane: NIL,
            lane_prev: NIL,
            lane_next: NIL,
        }
    }

    pub(super) fn key(&self) -> Option<Key> {
        self.keyed.then_some(self.key)
    }

    /// The job that this was.
    pub(super) fn take_job(&mut self, flow: Flow, later: Later) -> Job<P> {
        Job {
            class: self.class,
            flow,
            cost: self.cost,
            targets: self.targets,
            key: self.key(),
            delay_key: self.has_delay_key.then_some(later.delay_key),
            start_at: (self.state == State::Delayed).then_some(later.due),
            expire_at: (self.expire_at < Time::MAX).then_some(self.expire_at),
            booking: None,
            attempts: Some(self.attempts),
            payload: self
                .payload
                .take()
                .expect("only a leased job is without its payload"),
        }
    }
}

/// Half a cache line. Where it stands in heaps and lists is kept apart (`lane_at`, [`Spot`]): every change of order moves several.
#[derive(Debug)]
#[repr(align(32))]
pub(super) struct Lane {
    pub(super) queue: u32,
    pub(super) bay: u32,
    /// The one target of its bay; `NIL` if there are several.
    pub(super) alone: u32,
    pub(super) head: u32,
    pub(super) tail: u32,
    pub(super) len: u32,
    pub(super) place: Place,
}

impl Slot for Lane {
    fn is_live(&self) -> bool {
        self.queue != NIL
    }

    /// Nobody is to take it for the lane of a queue that has its number.
    fn end(&mut self) {
        self.queue = NIL;
    }
}

/// Where a lane stands in what few ask for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spot {
    /// Its position in its class's heap of ages.
    pub(super) age_at: u32,
    /// Its position in its bay's list.
    pub(super) bay_at: u32,
    /// The next lane of its queue.
    pub(super) sibling: u32,
}

/// Where a lane stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// It has no jobs.
    Empty,
    /// In its queue's heap.
    Open,
    /// Parked in its bay, its tag not ahead of its class's clock.
    Behind,
    /// Parked in its bay, its tag ahead of its class's clock.
    Ahead,
    /// Out of every heap: this target's cost bucket is saved for its head.
    Saving(u32),
}

/// Two cache lines, in this order: an arrival at its only lane asks for nothing in the second.
#[derive(Debug)]
#[repr(C, align(128))]
pub(super) struct Queue {
    pub(super) tag: Tag,
    /// Lanes that are not parked, by the age of their heads.
    pub(super) open: SmallHeap<u64>,
    /// `NIL` for one that was forgotten.
    pub(super) flow: u32,
    pub(super) waiting: u32,
    /// Its position among its class's holders.
    pub(super) held_at: u32,
    pub(super) class: Class,
    /// The newest of its lanes; the others follow.
    pub(super) lanes: u32,
    pub(super) lane_count: u32,
    pub(super) owed: Owed,
}

impl Slot for Queue {
    fn is_live(&self) -> bool {
        self.flow != NIL
    }

    fn end(&mut self) {
        self.flow = NIL;
    }
}

impl Queue {
    /// Nobody's yet.
    pub(super) fn new() -> Self {
        Queue {
            class: Class(0),
            flow: NIL,
            tag: 0,
            open: SmallHeap::default(),
            waiting: 0,
            held_at: NOWHERE,
            lanes: NIL,
            lane_count: 0,
            owed: Owed::default(),
        }
    }
}

/// Two lines of the cache, in this order.
#[derive(Debug)]
#[repr(C, align(128))]
pub(super) struct FlowState {
    pub(super) id: Flow,
    /// By class; `NIL` where it has none.
    pub(super) queues: SmallVec<[u32; 10]>,
    pub(super) waiting: u32,
    /// 0 for one that was forgotten.
    pub(super) weight: u32,
    pub(super) gate: Gate,
    pub(super) pace: Pace,
    pub(super) delayed: u32,
    /// Its position among the holders, with a shared bound.
    pub(super) held_at: u32,
    /// Its gate is shut, and its queues are out of their classes' heaps.
    pub(super) parked: bool,
    pub(super) timer: TimerId,
}

impl Slot for FlowState {
    fn is_live(&self) -> bool {
        self.weight != 0
    }

    fn end(&mut self) {
        self.weight = 0;
    }
}

#[derive(Debug)]
pub(super) struct ClassState {
    pub(super) config: ClassConfig,
    pub(super) pace: Pace,
    pub(super) owed: Owed,
    /// The virtual time of its flows.
    pub(super) clock: Tag,
    /// Queues with an open lane, whose flow is not parked.
    pub(super) ready: Heap<Rank>,
    /// Bays that may have opened and have parked lanes of this class, by a rank that no lane of it precedes.
    pub(super) bays: Heap<Rank>,
    /// Lanes by the age of their heads; kept only when the class has aging.
    pub(super) ages: Heap<(Time, u64)>,
    pub(super) waiting: u64,
    pub(super) holders: Holders,
    pub(super) forecast: Forecast,
    pub(super) stats: ClassStats,
}

impl ClassState {
    pub(super) fn new(config: ClassConfig, bookings: usize) -> Self {
        ClassState {
            config,
            pace: Pace::of(config.weight),
            owed: Owed::default(),
            clock: 0,
            ready: Heap::default(),
            bays: Heap::default(),
            ages: Heap::default(),
            waiting: 0,
            holders: Holders::default(),
            forecast: Forecast::new(bookings),
            stats: ClassStats::default(),
        }
    }
}

/// Who holds the places of a bound, most first.
///
/// Only who sheds needs to know, so the heap is made when it is first needed and kept while the bound is at least half
/// taken. A key may be too small, never too large: it is moved up with every place taken, and down only when it comes to
/// the top.
#[derive(Debug, Default)]
pub(super) struct Holders {
    pub(super) most: Heap<u64>,
    /// Whether the heap is kept.
    pub(super) kept: bool,
    /// Weights of all who hold a place.
    pub(super) weights: u64,
}

impl Holders {
    /// Somebody took a place.
    #[inline]
    pub(super) fn took(
        &mut self,
        id: u32,
        at: u32,
        held: u64,
        weight: u32,
        place: impl FnMut(u32, u32),
    ) {
        if !self.kept {
            return;
        }
        let key = holding(held, weight);
        if at == NOWHERE {
            self.most.push(key, id, place);
        } else if key < self.most.key(at) {
            self.most.rekey(at, key, place);
        }
    }

    /// Somebody will not come back.
    pub(super) fn forget(&mut self, at: u32, place: impl FnMut(u32, u32)) {
        if at != NOWHERE {
            self.most.remove(at, place);
        }
    }
}

/// The key of a holder: the more places for its weight, the smaller.
#[inline]
pub(super) fn holding(places: u64, weight: u32) -> u64 {
    u64::MAX - (places << 20) / u64::from(weight)
}

#[derive(Debug)]
pub(super) struct Bay {
    /// In order, each once.
    pub(super) targets: SmallVec<[u32; 2]>,
    /// Every lane of this target set.
    pub(super) lanes: Vec<u32>,
    /// Queues whose only lane is one of these, and which are nobody's: they wait for the next who needs one.
    pub(super) spare: Vec<u32>,
    /// By class; empty until a lane parks.
    pub(super) parked: Vec<Parked>,
    /// The classes that have parked lanes.
    pub(super) parked_classes: u64,
    /// Whether it is in the heaps of those classes.
    pub(super) open: bool,
    /// Since when at least one of its targets is usable; time before that does not count as waiting for aging.
    pub(super) usable_since: Time,
}

/// The parked lanes of one bay and class.
///
/// A lane that was parked earns no credit: behind the class's clock all are equal and the oldest head goes first;
/// ahead of it, the tag decides.
#[derive(Debug)]
pub(super) struct Parked {
    pub(super) behind: Heap<u64>,
    pub(super) ahead: Heap<Rank>,
    /// The bay's position in the class's heap of bays.
    pub(super) at: u32,
}

impl Default for Parked {
    fn default() -> Self {
        Parked {
            behind: Heap::default(),
            ahead: Heap::default(),
            at: NOWHERE,
        }
    }
}

/// What a timer is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Timer {
    /// A job is due, or expires.
    Job(u32),
    /// A target's gate opens.
    Target(u32),
    /// A flow's gate opens.
    Flow(u32),
}
