//! A time series with a bounded number of slots. When it is full, pairs of slots are merged, so
//! that a run of any length has a series of the same size.

use super::histogram::Histogram;
use headworks_core::Time;
use std::time::Duration;

/// Maximum number of slots.
const MAX_SLOTS: usize = 480;

/// Number of slots for a run of known length.
const WANTED: u64 = 240;

/// Drop reasons: the refusal reasons of the core, then these.
pub(crate) const DROPS: usize = headworks_core::Reason::ALL.len() + 3;
pub(crate) const SHED: usize = DROPS - 3;
pub(crate) const EXPIRED: usize = DROPS - 2;
pub(crate) const FAILED: usize = DROPS - 1;

/// The name of a drop reason.
pub(crate) fn drop_name(drop: usize) -> &'static str {
    match drop {
        SHED => "shed",
        EXPIRED => "expired in the queue",
        FAILED => "failed",
        reason => headworks_core::Reason::ALL[reason].name(),
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct ClassSlot {
    pub(crate) offered: u32,
    pub(crate) granted: u32,
    pub(crate) cost: u64,
    pub(crate) waits: Histogram,
    /// Jobs waiting at the end of the slot.
    pub(crate) depth: u64,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Slot {
    pub(crate) classes: Vec<ClassSlot>,
    pub(crate) drops: [u32; DROPS],
    pub(crate) gauges: Gauges,
}

/// Gauges at the end of a slot.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Gauges {
    pub(crate) running: u64,
    pub(crate) delayed: u64,
    pub(crate) workers: u64,
    /// Finished nodes of the leader and the follower.
    pub(crate) nodes: [u64; 2],
}

#[derive(Debug)]
pub(crate) struct Series {
    pub(crate) width: Duration,
    pub(crate) slots: Vec<Slot>,
    classes: usize,
    end: Time,
}

impl Series {
    /// A series for a run of that length, or of unknown length.
    pub(crate) fn new(classes: usize, length: Option<Duration>) -> Self {
        let width = length.map_or(Duration::from_millis(10), |length| {
            Duration::from_nanos((length.as_nanos() as u64).div_ceil(WANTED).max(1))
        });
        let mut series = Series {
            width,
            slots: Vec::new(),
            classes,
            end: Time::ZERO,
        };
        series.open();
        series
    }

    fn open(&mut self) {
        if self.slots.len() == MAX_SLOTS {
            self.halve();
        }
        self.slots.push(Slot {
            classes: vec![ClassSlot::default(); self.classes],
            ..Slot::default()
        });
        self.end = Time::ZERO + self.width * self.slots.len() as u32;
    }

    /// The open slot.
    #[inline]
    pub(crate) fn slot(&mut self) -> &mut Slot {
        self.slots.last_mut().expect("one is always open")
    }

    /// Whether `now` is past the open slot.
    #[inline]
    pub(crate) fn is_over(&self, now: Time) -> bool {
        now >= self.end
    }

    /// Advances to the slot of `now`. Nothing changed since the last call, so all slots in between
    /// have the same gauges.
    pub(crate) fn advance(&mut self, now: Time, gauges: Gauges, depths: &[u64]) {
        while self.is_over(now) {
            self.close(gauges, depths);
            self.open();
        }
    }

    pub(crate) fn close(&mut self, gauges: Gauges, depths: &[u64]) {
        let slot = self.slot();
        slot.gauges = gauges;
        for (class, depth) in slot.classes.iter_mut().zip(depths) {
            class.depth = *depth;
        }
    }

    fn halve(&mut self) {
        let slots = std::mem::take(&mut self.slots);
        let mut slots = slots.into_iter();
        while let Some(mut first) = slots.next() {
            if let Some(second) = slots.next() {
                for (class, more) in first.classes.iter_mut().zip(&second.classes) {
                    class.offered += more.offered;
                    class.granted += more.granted;
                    class.cost += more.cost;
                    class.waits.add(&more.waits);
                    class.depth = more.depth;
                }
                for (drops, more) in first.drops.iter_mut().zip(second.drops) {
                    *drops += more;
                }
                first.gauges = second.gauges;
            }
            self.slots.push(first);
        }
        self.width *= 2;
    }
}
