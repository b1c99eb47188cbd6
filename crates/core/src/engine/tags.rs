//! Virtual time: what fair shares are measured in.

use crate::ahead::fetch;
use crate::id::{Class, Cost};
use std::cmp::Ordering;

/// Virtual time: cost over weight, scaled so that a cost of 1 over the largest weight is not lost.
pub(super) type Tag = u128;

/// A weight, kept as what a cost of 1 moves a tag by: multiplying is cheaper than dividing.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace(u64);

impl Pace {
    pub(super) fn of(weight: u32) -> Self {
        Pace((1 << 48) / u64::from(weight.max(1)))
    }

    /// How far a charge moves a tag. A job that costs nothing still takes a turn.
    #[inline]
    pub(super) fn span(self, cost: Cost) -> Tag {
        Tag::from(cost.0.max(1)) * Tag::from(self.0)
    }
}

/// What a queue or class that waits was charged too much and could not get back by its tag, because the clock had
/// passed the place where the tag belonged.
///
/// Without it, estimates that are too high cost a backlogged class part of its share whenever several jobs run at
/// once. It pays for later grants, is never more than what is charged for the jobs in flight, and is forfeited
/// when nothing waits any more: idle or parked earns nothing.
#[derive(Debug, Default)]
pub(super) struct Owed {
    credit: Tag,
    /// The cost charged for the jobs in flight.
    in_flight: u64,
    /// The most that was in flight at once since something waits.
    most: u64,
}

impl Owed {
    /// A job of that cost was leased.
    #[inline]
    pub(super) fn enter(&mut self, cost: Cost) {
        self.in_flight = self.in_flight.saturating_add(cost.0);
        self.most = self.most.max(self.in_flight);
    }

    /// A job that was leased at that cost is back.
    #[inline]
    pub(super) fn leave(&mut self, cost: Cost) {
        self.in_flight = self.in_flight.saturating_sub(cost.0);
    }

    /// What is left of a charge after the credit has paid for what it can.
    #[inline]
    pub(super) fn pay(&mut self, charge: Tag) -> Tag {
        if self.credit == 0 {
            return charge;
        }
        let paid = charge.min(self.credit);
        self.credit -= paid;
        charge - paid
    }

    /// Nothing waits any more.
    #[inline]
    pub(super) fn forfeit(&mut self) {
        self.credit = 0;
        self.most = self.in_flight;
    }

    /// Where a tag belongs after a correction. Never behind the clock: what that takes away from one who waits is owed.
    /// One that the clock had passed already was idle or parked, and is owed nothing.
    pub(super) fn correct(
        &mut self,
        tag: Tag,
        clock: Tag,
        (charged, actual): (Cost, Cost),
        pace: Pace,
        waits: bool,
    ) -> Tag {
        let (less, more) = (pace.span(charged), pace.span(actual));
        if more >= less {
            return (tag + self.pay(more - less)).max(clock);
        }
        let surplus = less - more;
        if waits && tag >= clock {
            let lost = surplus.saturating_sub(tag - clock);
            self.credit = (self.credit + lost).min(pace.span(Cost(self.most)));
        }
        tag.saturating_sub(surplus).max(clock)
    }
}

/// The tags of flows in classes in which they have no queue.
#[derive(Debug)]
pub(super) struct Resting {
    tags: Vec<Tag>,
    classes: usize,
}

impl Resting {
    pub(super) fn new(classes: usize) -> Self {
        Resting {
            tags: Vec::new(),
            classes,
        }
    }

    #[inline]
    pub(super) fn tag(&mut self, flow: u32, class: Class) -> &mut Tag {
        &mut self.tags[flow as usize * self.classes + class.index()]
    }

    /// Has a tag brought near.
    #[inline]
    pub(super) fn fetch(&self, flow: u32, class: Class) {
        let at = flow as usize * self.classes + class.index();
        if let Some(tag) = self.tags.get(at) {
            fetch(tag);
        }
    }

    /// A flow that has never had a tag.
    pub(super) fn begin(&mut self, flow: u32) {
        let (from, to) = (
            flow as usize * self.classes,
            (flow as usize + 1) * self.classes,
        );
        if self.tags.len() < to {
            self.tags.resize(to, 0);
        }
        self.tags[from..to].fill(0);
    }

    /// Makes room for more classes.
    pub(super) fn widen(&mut self, classes: usize) {
        let mut wider = Vec::with_capacity(self.tags.len() / self.classes * classes);
        for tags in self.tags.chunks(self.classes) {
            wider.extend_from_slice(tags);
            wider.resize(wider.len() + classes - self.classes, 0);
        }
        (self.tags, self.classes) = (wider, classes);
    }
}

/// The order of lanes and queues inside a class: the tag, then the age of the head. The tag is kept in halves, which
/// makes a heap of ranks a third smaller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rank {
    tag: [u64; 2],
    pub(super) seq: u64,
}

impl Rank {
    #[inline]
    pub(super) fn new(tag: Tag, seq: u64) -> Self {
        let tag = [(tag >> 64) as u64, tag as u64];
        Rank { tag, seq }
    }

    #[inline]
    pub(super) fn tag(self) -> Tag {
        Tag::from(self.tag[0]) << 64 | Tag::from(self.tag[1])
    }
}

impl Ord for Rank {
    #[inline]
    fn cmp(&self, other: &Self) -> Ordering {
        (self.tag().cmp(&other.tag())).then(self.seq.cmp(&other.seq))
    }
}

impl PartialOrd for Rank {
    #[inline]
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }

    /// As one number of three words: without a branch, which matters in a heap of thousands.
    #[inline]
    fn lt(&self, other: &Self) -> bool {
        let (_, less) = self.seq.borrowing_sub(other.seq, false);
        let (_, less) = self.tag[1].borrowing_sub(other.tag[1], less);
        self.tag[0].borrowing_sub(other.tag[0], less).1
    }

    #[inline]
    fn le(&self, other: &Self) -> bool {
        !other.lt(self)
    }
}
