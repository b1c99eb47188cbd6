//! Peers of one family, packed: addresses side by side, as they are sent.
//!
//! Seeders stand before leechers, so that both are counted by one number and an answer for a seeder
//! copies leechers only.

use super::Seconds;
use foldhash::quality::RandomState;
use hashbrown::HashTable;
use headworks_tracker_wire::PeerId;
use std::hash::BuildHasher;
use std::sync::LazyLock;

/// Above so many peers a table finds them; below, looking at each is faster.
const SCAN: usize = 24;

/// A place that no peer has.
const NOWHERE: u32 = u32::MAX;

/// Clients choose their addresses as far as they can: the table's hash has a seed.
static SEED: LazyLock<RandomState> = LazyLock::new(RandomState::default);

/// Peers of one family.
#[derive(Debug)]
pub(crate) struct Peers<const N: usize> {
    addresses: Vec<[u8; N]>,
    records: Vec<Record>,
    seeders: u32,
    places: Option<Box<HashTable<u32>>>,
}

/// What is kept beside an address.
#[derive(Clone, Copy, Debug)]
struct Record {
    id: PeerId,
    heard: Seconds,
}

/// What a draw is for, and what it is drawn with.
pub(crate) struct Draw {
    /// How many at most.
    pub(crate) want: usize,
    /// Who asks: never part of the answer.
    pub(crate) id: PeerId,
    /// Whether it has everything, and seeders are of no use to it.
    pub(crate) seeder: bool,
    /// A random number: where the copy begins.
    pub(crate) random: u32,
}

impl Draw {
    /// Whether a name is the client's own. Zeros are nobody's name: testers and simple clients all
    /// have it.
    fn is_own(&self, id: &PeerId) -> bool {
        *id == self.id && self.id != PeerId::default()
    }
}

/// What hearing of a peer changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    Same,
    New,
    /// It was a leecher and is a seeder now, or the other way round.
    Side,
}

impl<const N: usize> Default for Peers<N> {
    fn default() -> Self {
        Peers {
            addresses: Vec::new(),
            records: Vec::new(),
            seeders: 0,
            places: None,
        }
    }
}

impl<const N: usize> Peers<N> {
    pub(crate) fn len(&self) -> usize {
        self.addresses.len()
    }

    pub(crate) fn seeders(&self) -> usize {
        self.seeders as usize
    }

    pub(crate) fn has(&self, at: &[u8; N]) -> bool {
        self.place(at).is_some()
    }

    /// Every peer: its address, name, whether it is a seeder, and when it was heard of.
    pub(crate) fn iter(&self) -> impl Iterator<Item = ([u8; N], PeerId, bool, Seconds)> + '_ {
        let all = self.addresses.iter().zip(&self.records).enumerate();
        all.map(|(place, (at, record))| (*at, record.id, place < self.seeders(), record.heard))
    }

    pub(crate) fn hear(&mut self, at: [u8; N], id: PeerId, seeder: bool, now: Seconds) -> Change {
        let record = Record { id, heard: now };
        let Some(place) = self.place(&at) else {
            self.push(at, record);
            if seeder {
                self.promote(self.len() - 1);
            }
            return Change::New;
        };
        self.records[place] = record;
        match (place < self.seeders(), seeder) {
            (false, true) => self.promote(place),
            (true, false) => {
                self.demote(place);
            }
            _ => return Change::Same,
        }
        Change::Side
    }

    /// Forgets a peer, and says whether it was a seeder.
    pub(crate) fn leave(&mut self, at: &[u8; N]) -> Option<bool> {
        let place = self.place(at)?;
        let seeder = place < self.seeders();
        self.remove(place);
        Some(seeder)
    }

    /// Forgets whoever was not heard of since `before`.
    pub(crate) fn purge(&mut self, before: Seconds, mut gone: impl FnMut([u8; N], PeerId, bool)) {
        let mut place = 0;
        while place < self.len() {
            let Record { id, heard } = self.records[place];
            if heard >= before {
                place += 1;
                continue;
            }
            gone(self.addresses[place], id, place < self.seeders());
            self.remove(place);
        }
        if self.addresses.capacity() > 4 * self.len().max(4) {
            self.addresses.shrink_to_fit();
            self.records.shrink_to_fit();
        }
    }

    /// Appends addresses to `out` and says how many.
    pub(crate) fn draw(&self, draw: &Draw, me: Option<&[u8; N]>, out: &mut Vec<u8>) -> usize {
        let first = if draw.seeder { self.seeders() } else { 0 };
        let (addresses, records) = (&self.addresses[first..], &self.records[first..]);
        let all = addresses.len();
        if all == 0 || draw.want == 0 {
            return 0;
        }
        let begin = if all > draw.want {
            draw.random as usize % all
        } else {
            0
        };
        // Almost always the client itself is not among them, or only once: what is between is
        // copied as it is.
        let before = out.len();
        let mut left = draw.want;
        for range in [begin..all, 0..begin] {
            let mut from = range.start;
            while left > 0 && from < range.end {
                let most = from + left.min(range.end - from);
                let own = (from..most).find(|place| {
                    Some(&addresses[*place]) == me || draw.is_own(&records[*place].id)
                });
                let end = own.unwrap_or(most);
                out.extend_from_slice(addresses[from..end].as_flattened());
                left -= end - from;
                from = end + usize::from(own.is_some());
            }
        }
        (out.len() - before) / N
    }

    /// The name of the peer at an address.
    pub(crate) fn id(&self, at: &[u8; N]) -> Option<PeerId> {
        self.place(at).map(|place| self.records[place].id)
    }

    fn place(&self, at: &[u8; N]) -> Option<usize> {
        match &self.places {
            None => self.addresses.iter().position(|other| other == at),
            Some(places) => places
                .find(SEED.hash_one(at), |place| {
                    self.addresses[*place as usize] == *at
                })
                .map(|place| *place as usize),
        }
    }

    fn push(&mut self, at: [u8; N], record: Record) {
        if self.addresses.is_empty() {
            // Most swarms have one peer: they should not pay for four.
            self.addresses.reserve_exact(1);
            self.records.reserve_exact(1);
        }
        self.addresses.push(at);
        self.records.push(record);
        let (len, addresses) = (self.len(), &self.addresses);
        let hash = |place: &u32| SEED.hash_one(addresses[*place as usize]);
        match &mut self.places {
            Some(places) => {
                places.insert_unique(SEED.hash_one(at), (len - 1) as u32, hash);
            }
            None if len > SCAN => {
                let mut places = HashTable::with_capacity(2 * len);
                for (place, at) in addresses.iter().enumerate() {
                    places.insert_unique(SEED.hash_one(at), place as u32, hash);
                }
                self.places = Some(Box::new(places));
            }
            None => {}
        }
    }

    /// Makes the leecher at `place` a seeder.
    fn promote(&mut self, place: usize) {
        self.swap(place, self.seeders());
        self.seeders += 1;
    }

    /// Makes the seeder at `place` a leecher, and says where it is then.
    fn demote(&mut self, place: usize) -> usize {
        self.seeders -= 1;
        self.swap(place, self.seeders());
        self.seeders()
    }

    fn remove(&mut self, place: usize) {
        let place = if place < self.seeders() {
            self.demote(place)
        } else {
            place
        };
        let last = self.len() - 1;
        self.swap(place, last);
        if let Some(places) = &mut self.places {
            let hash = SEED.hash_one(self.addresses[last]);
            if let Ok(entry) = places.find_entry(hash, |place| *place as usize == last) {
                entry.remove();
            }
            if last < SCAN / 2 {
                self.places = None;
            }
        }
        self.addresses.pop();
        self.records.pop();
    }

    fn swap(&mut self, one: usize, other: usize) {
        if one == other {
            return;
        }
        if let Some(places) = &mut self.places {
            let (first, second) = (one as u32, other as u32);
            let hashes = [one, other].map(|place| SEED.hash_one(self.addresses[place]));
            // By way of a place that nobody has: with equal hashes, two would claim one place in
            // between.
            let moves = [
                (0, first, NOWHERE),
                (1, second, first),
                (0, NOWHERE, second),
            ];
            for (which, from, to) in moves {
                if let Some(place) = places.find_mut(hashes[which], |place| *place == from) {
                    *place = to;
                }
            }
        }
        self.addresses.swap(one, other);
        self.records.swap(one, other);
    }
}
