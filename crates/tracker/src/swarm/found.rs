//! What forwarders said of a torrent: the peers they found, when they may be asked again, and whom
//! they were told of.

use super::{Draw, Packed, Seconds, ip_number};
use foldhash::quality::RandomState;
use hashbrown::HashMap;
use headworks_tracker_wire::PeerId;

/// What is known of a torrent through forwarders.
#[derive(Debug, Default)]
pub(crate) struct Known {
    pub(crate) v4: Found<6>,
    pub(crate) v6: Found<18>,
    /// By forwarder.
    asked: Vec<Asked>,
    /// Peers that forwarders were told of: those must hear when they leave.
    told: HashMap<PeerId, Forwarders, RandomState>,
    /// Forwards on their way.
    flying: u32,
    /// Whether any was ever answered.
    answered: bool,
}

/// What one forwarder was asked for this torrent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Asked {
    /// When it may be asked again.
    pub(crate) due: Seconds,
    /// When it was asked last; 0 for never.
    pub(crate) last: Seconds,
    /// Peers that it was the first to name.
    pub(crate) contributed: u32,
}

/// Longer than any forward takes with all its attempts: one that was lost does not hold its torrent
/// back for ever.
const FLIGHT: Seconds = 3600;

impl Known {
    /// Peers that forwarders found.
    pub(crate) fn len(&self) -> usize {
        self.v4.addresses.len() + self.v6.addresses.len()
    }

    /// Whether nothing is on its way and nothing was found.
    pub(super) fn is_idle(&self) -> bool {
        self.flying == 0 && self.len() == 0
    }

    /// Whether a forwarder was ever asked.
    pub(crate) fn was_asked(&self) -> bool {
        self.asked.iter().any(|asked| asked.last != 0)
    }

    /// Whether the first forwards are still on their way.
    pub(crate) fn is_waiting(&self) -> bool {
        self.flying > 0 && !self.answered
    }

    pub(crate) fn asked(&self, forwarder: u16) -> Asked {
        let asked = self.asked.get(usize::from(forwarder));
        asked.copied().unwrap_or_default()
    }

    fn asked_mut(&mut self, forwarder: u16) -> &mut Asked {
        let place = usize::from(forwarder);
        if self.asked.len() <= place {
            self.asked.resize(place + 1, Asked::default());
        }
        &mut self.asked[place]
    }

    /// So many forwarders may be asked.
    pub(crate) fn make_room(&mut self, forwarders: usize) {
        let more = forwarders.saturating_sub(self.asked.len());
        self.asked.reserve_exact(more);
    }

    /// Every forwarder that was asked. What is on its way now may be asked for again after a
    /// restart.
    pub(crate) fn all_asked(&self) -> impl Iterator<Item = (u16, Asked)> + '_ {
        let all = self.asked.iter().enumerate();
        all.filter(|(_, asked)| asked.last != 0)
            .map(|(number, asked)| {
                let flying = asked.due == asked.last + FLIGHT;
                let due = if flying { 0 } else { asked.due };
                (number as u16, Asked { due, ..*asked })
            })
    }

    /// Every peer that a forwarder was told of.
    pub(crate) fn all_told(&self) -> impl Iterator<Item = (PeerId, u16)> + '_ {
        let all = self.told.iter();
        all.flat_map(|(peer, told)| told.iter().map(|forwarder| (*peer, forwarder)))
    }

    /// What was asked before a restart.
    pub(crate) fn remember(&mut self, forwarder: u16, asked: Asked) {
        self.answered = true;
        *self.asked_mut(forwarder) = asked;
    }

    /// Somebody is about to choose whom to ask.
    pub(crate) fn expect(&mut self) {
        self.flying += 1;
    }

    /// It is about to be chosen.
    pub(crate) fn expected(&mut self) {
        self.flying = self.flying.saturating_sub(1);
    }

    /// A forward is on its way.
    /// Returns until when the forwarder is not asked again if nothing more is heard of it.
    pub(crate) fn depart(&mut self, now: Seconds, forwarder: u16) -> Seconds {
        self.flying += 1;
        let asked = self.asked_mut(forwarder);
        (asked.last, asked.due) = (now, now + FLIGHT);
        asked.due
    }

    /// A forward ended, and its forwarder may be asked again at `due`.
    pub(crate) fn arrive(&mut self, forwarder: u16, due: Seconds, answered: bool) {
        self.flying = self.flying.saturating_sub(1);
        self.answered |= answered;
        self.asked_mut(forwarder).due = due;
    }

    /// A forward never began: it is as if it had not been asked for.
    pub(crate) fn call_off(&mut self, forwarder: u16, before: Asked) {
        self.flying = self.flying.saturating_sub(1);
        *self.asked_mut(forwarder) = before;
    }

    /// When the first of `forwarders` may be asked.
    pub(crate) fn earliest(&self, forwarders: usize) -> Seconds {
        if self.asked.len() < forwarders {
            return 0;
        }
        self.asked.iter().map(|asked| asked.due).min().unwrap_or(0)
    }

    /// A forwarder is about to be told of a peer. Says whether that is new.
    pub(crate) fn tell(&mut self, peer: PeerId, forwarder: u16) -> bool {
        self.told.entry(peer).or_default().insert(forwarder)
    }

    /// A forwarder is not told of a peer after all; `false` if somebody knows already that it was.
    pub(crate) fn take_back(&mut self, peer: PeerId, forwarder: u16) -> bool {
        let told = self.told.get_mut(&peer);
        told.is_some_and(|told| told.remove(forwarder))
    }

    /// Whom the peer's leaving must be told.
    pub(crate) fn untell(&mut self, peer: PeerId) -> Vec<u16> {
        let told = self.told.remove(&peer);
        told.map(|told| told.iter().collect()).unwrap_or_default()
    }

    pub(super) fn forget(&mut self, at: Packed) -> bool {
        match at {
            Packed::V4(at) => self.v4.forget(&at),
            Packed::V6(at) => self.v6.forget(&at),
        }
    }

    pub(super) fn find(&mut self, now: Seconds, at: Packed, forwarder: u16, most: usize) -> bool {
        let room = self.len() < most;
        let new = match at {
            Packed::V4(at) => self.v4.find(now, at, forwarder, room),
            Packed::V6(at) => self.v6.find(now, at, forwarder, room),
        };
        if new {
            self.asked_mut(forwarder).contributed += 1;
        }
        new
    }

    pub(super) fn purge(&mut self, before: Seconds, mut gone: impl FnMut(u128)) {
        self.v4.purge(before, |at| gone(ip_number(&at)));
        self.v6.purge(before, |at| gone(ip_number(&at)));
    }

    /// How many forwards are on their way.
    pub(crate) fn flying(&self) -> u32 {
        self.flying
    }

    /// The forwarders that were told of a peer.
    pub(crate) fn told(&self, peer: &PeerId) -> Vec<u16> {
        let told = self.told.get(peer);
        told.map(|told| told.iter().collect()).unwrap_or_default()
    }

    pub(super) fn ips(&self) -> impl Iterator<Item = u128> + '_ {
        let v4 = self.v4.addresses.iter().map(ip_number);
        v4.chain(self.v6.addresses.iter().map(ip_number))
    }
}

/// Found peers of one family, sorted by address.
#[derive(Debug)]
pub(crate) struct Found<const N: usize> {
    addresses: Vec<[u8; N]>,
    sources: Vec<Source>,
}

/// Who named a peer first, and when somebody last did.
#[derive(Clone, Copy, Debug)]
struct Source {
    forwarder: u16,
    seen: Seconds,
}

impl<const N: usize> Default for Found<N> {
    fn default() -> Self {
        Found {
            addresses: Vec::new(),
            sources: Vec::new(),
        }
    }
}

impl<const N: usize> Found<N> {
    /// Every found peer, with the forwarder that named it first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = ([u8; N], u16, Seconds)> + '_ {
        let all = self.addresses.iter().zip(&self.sources);
        all.map(|(at, source)| (*at, source.forwarder, source.seen))
    }

    fn find(&mut self, now: Seconds, at: [u8; N], forwarder: u16, room: bool) -> bool {
        match self.addresses.binary_search(&at) {
            Ok(place) => {
                self.sources[place].seen = now;
                false
            }
            Err(place) if room => {
                self.addresses.insert(place, at);
                let seen = now;
                self.sources.insert(place, Source { forwarder, seen });
                true
            }
            Err(_) => false,
        }
    }

    fn forget(&mut self, at: &[u8; N]) -> bool {
        let place = self.addresses.binary_search(at);
        if let Ok(place) = place {
            self.addresses.remove(place);
            self.sources.remove(place);
        }
        place.is_ok()
    }

    fn purge(&mut self, before: Seconds, mut gone: impl FnMut([u8; N])) {
        let mut place = 0;
        while place < self.addresses.len() {
            if self.sources[place].seen >= before {
                place += 1;
                continue;
            }
            gone(self.addresses.remove(place));
            self.sources.remove(place);
        }
    }

    /// Appends addresses to `out`, `want` of them at most.
    pub(super) fn draw(&self, want: usize, draw: &Draw, out: &mut Vec<u8>) {
        let all = self.addresses.len();
        if all == 0 || want == 0 {
            return;
        }
        let begin = if all > want {
            draw.random as usize % all
        } else {
            0
        };
        let (wrapped, first) = self.addresses.split_at(begin);
        let first = &first[..first.len().min(want)];
        out.extend_from_slice(first.as_flattened());
        let rest = &wrapped[..wrapped.len().min(want - first.len())];
        out.extend_from_slice(rest.as_flattened());
    }
}

/// A set of forwarders, a bit for each.
#[derive(Debug, Default)]
struct Forwarders(Vec<u64>);

impl Forwarders {
    /// Says whether it is new.
    fn insert(&mut self, forwarder: u16) -> bool {
        let (word, bit) = (usize::from(forwarder / 64), 1 << (forwarder % 64));
        if self.0.len() <= word {
            self.0.resize(word + 1, 0);
        }
        let new = self.0[word] & bit == 0;
        self.0[word] |= bit;
        new
    }

    /// Says whether it was there.
    fn remove(&mut self, forwarder: u16) -> bool {
        let bit = 1 << (forwarder % 64);
        let Some(word) = self.0.get_mut(usize::from(forwarder / 64)) else {
            return false;
        };
        let was = *word & bit != 0;
        *word &= !bit;
        was
    }

    fn iter(&self) -> impl Iterator<Item = u16> + '_ {
        let all = 0..self.0.len() as u16 * 64;
        all.filter(|number| self.0[usize::from(number / 64)] >> (number % 64) & 1 == 1)
    }
}
