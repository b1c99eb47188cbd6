//! A worker pool whose size the core's scaler decides.

use headworks_core::{Scale, Scaler, Time};

#[derive(Debug)]
pub(super) struct Workers {
    scaler: Scaler,
    count: usize,
    busy: usize,
    most: usize,
}

impl Workers {
    pub(super) fn new(base: usize, max: usize) -> Self {
        Workers {
            scaler: Scaler::new(base, max),
            count: base,
            busy: 0,
            most: base,
        }
    }

    pub(super) fn scale(&mut self, now: Time, fill: u32) {
        loop {
            let idle = self.count - self.busy;
            match self.scaler.decide(now, fill, self.count, idle) {
                Scale::Up => self.count += 1,
                Scale::Down => self.count -= 1,
                Scale::Hold => break,
            }
        }
        self.most = self.most.max(self.count);
    }

    pub(super) fn has_idle(&self) -> bool {
        self.busy < self.count
    }

    pub(super) fn begin(&mut self) {
        self.busy += 1;
    }

    pub(super) fn end(&mut self) {
        self.busy -= 1;
    }

    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// The largest number of workers so far.
    pub(super) fn most(&self) -> usize {
        self.most
    }

    pub(super) fn wake_at(&self) -> Option<Time> {
        self.scaler.wake_at()
    }
}
