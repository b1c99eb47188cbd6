//! How many different addresses a swarm has, kept as peers come and go.

use foldhash::quality::RandomState;
use hashbrown::HashMap;

/// Which total a peer counts in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Complete,
    Incomplete,
}

impl Side {
    pub(super) fn of(seeder: bool) -> Side {
        if seeder {
            Side::Complete
        } else {
            Side::Incomplete
        }
    }
}

/// Above so many addresses a table finds them.
const SCAN: usize = 16;

/// Addresses, with the peers that each has on either side. An address with both counts as complete,
/// once.
#[derive(Debug, Default)]
pub(super) struct Tally {
    complete: u32,
    incomplete: u32,
    few: Vec<(u128, Peers)>,
    many: Option<Box<HashMap<u128, Peers, RandomState>>>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Peers {
    complete: u32,
    incomplete: u32,
}

impl Peers {
    fn side(&mut self, side: Side) -> &mut u32 {
        match side {
            Side::Complete => &mut self.complete,
            Side::Incomplete => &mut self.incomplete,
        }
    }

    /// What the address counts: (complete, incomplete).
    fn counts(self) -> (u32, u32) {
        match (self.complete, self.incomplete) {
            (0, 0) => (0, 0),
            (0, _) => (0, 1),
            _ => (1, 0),
        }
    }
}

impl Tally {
    pub(super) fn totals(&self) -> (usize, usize) {
        (self.complete as usize, self.incomplete as usize)
    }

    pub(super) fn add(&mut self, ip: u128, side: Side) {
        self.change(ip, |peers| *peers.side(side) += 1);
    }

    pub(super) fn remove(&mut self, ip: u128, side: Side) {
        self.change(ip, |peers| {
            let count = peers.side(side);
            *count = count.saturating_sub(1);
        });
    }

    fn change(&mut self, ip: u128, change: impl FnOnce(&mut Peers)) {
        let peers = self.entry(ip);
        let before = peers.counts();
        change(peers);
        let after = peers.counts();
        self.complete = self.complete + after.0 - before.0;
        self.incomplete = self.incomplete + after.1 - before.1;
        if after == (0, 0) {
            self.forget(ip);
        }
    }

    fn entry(&mut self, ip: u128) -> &mut Peers {
        if self.many.is_none() && self.few.len() >= SCAN {
            self.many = Some(Box::new(self.few.drain(..).collect()));
            self.few = Vec::new();
        }
        match &mut self.many {
            Some(many) => many.entry(ip).or_default(),
            None => {
                let place = self.few.iter().position(|(other, _)| *other == ip);
                let place = place.unwrap_or_else(|| {
                    if self.few.is_empty() {
                        self.few.reserve_exact(1);
                    }
                    self.few.push((ip, Peers::default()));
                    self.few.len() - 1
                });
                &mut self.few[place].1
            }
        }
    }

    fn forget(&mut self, ip: u128) {
        match &mut self.many {
            Some(many) => {
                many.remove(&ip);
                if many.is_empty() {
                    self.many = None;
                }
            }
            None => self.few.retain(|(other, _)| *other != ip),
        }
    }
}
