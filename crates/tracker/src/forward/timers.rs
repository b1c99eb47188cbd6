//! The times at which torrents are due at forwarders.
//!
//! A torrent is announced again when its forwarders are due, not when one of its clients happens to
//! announce. Each swarm has at most one entry here and remembers its time. Torrents that could not
//! be announced because a forwarder was unavailable are kept apart and looked at again when a
//! forwarder is back.

use crate::clock::Seconds;
use crate::swarms::Swarm;
use headworks_tracker_wire::InfoHash;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use tokio::sync::Notify;

/// The number of random seconds of which the one with the fewest announces is chosen: even two
/// balance far better than one (Mitzenmacher 1996, "The power of two choices").
const CANDIDATES: usize = 4;
/// The most torrents that are kept for when a forwarder is back. Others wait until they are due.
const MAX_AWAITING: usize = 100_000;

/// The due times of all torrents.
#[derive(Default)]
pub(crate) struct DueTimers {
    inner: Mutex<Inner>,
    changed: Notify,
}

#[derive(Default)]
struct Inner {
    by_time: BTreeSet<(Seconds, InfoHash)>,
    /// The number of announces that are due in each second. Those of peers that have left count
    /// until then.
    planned: BTreeMap<Seconds, u32>,
    awaiting: HashSet<InfoHash>,
    /// The torrents to look at now.
    woken: Vec<InfoHash>,
    /// Whether the last batch was not all of them.
    more: bool,
}

/// Torrents to announce.
#[derive(Default)]
pub(super) struct Batch {
    /// Those that are due, with the time of their entry.
    pub(super) due: Vec<(Seconds, InfoHash)>,
    /// Those to look at without an entry.
    pub(super) woken: Vec<InfoHash>,
}

impl DueTimers {
    /// Sets the torrent's timer to `at`, unless it is set to an earlier time. The caller holds the
    /// lock of the swarm's shard.
    pub(super) fn arm(&self, hash: &InfoHash, swarm: &mut Swarm, at: Seconds) {
        if swarm.local_peers() == 0 || (swarm.timer != 0 && swarm.timer <= at) {
            return;
        }
        let before = std::mem::replace(&mut swarm.timer, at);
        let mut inner = self.inner.lock();
        let earliest = inner.by_time.first().map(|(at, _)| *at);
        if before != 0 {
            inner.by_time.remove(&(before, *hash));
        }
        inner.by_time.insert((at, *hash));
        if earliest.is_none_or(|earliest| at < earliest) {
            self.changed.notify_one();
        }
    }

    /// Removes the torrent's timer. The caller holds the lock of the swarm's shard.
    pub(super) fn disarm(&self, hash: &InfoHash, swarm: &mut Swarm) {
        if swarm.timer != 0 {
            let at = std::mem::take(&mut swarm.timer);
            self.inner.lock().by_time.remove(&(at, *hash));
        }
    }

    /// Returns the time of an announce that is due after `seconds`: never early, and up to a tenth
    /// late. Announces of many torrents that began together are thus spread evenly.
    pub(super) fn plan(&self, now: Seconds, seconds: Seconds) -> Seconds {
        // One more, because the present second may be nearly over.
        let earliest = now.saturating_add(seconds).saturating_add(1);
        // A little less than a tenth, because the request itself comes later.
        let latest = earliest.saturating_add(seconds / 11);
        let mut inner = self.inner.lock();
        let candidates = (0..CANDIDATES).map(|_| fastrand::u32(earliest..=latest));
        let planned = |at: &Seconds| inner.planned.get(at).copied().unwrap_or(0);
        let at = candidates.min_by_key(planned).unwrap_or(earliest);
        *inner.planned.entry(at).or_default() += 1;
        at
    }

    /// Remembers a torrent for when a forwarder is back.
    pub(super) fn wait_for_forwarder(&self, hash: &InfoHash) {
        let mut inner = self.inner.lock();
        if inner.awaiting.len() < MAX_AWAITING {
            inner.awaiting.insert(*hash);
        }
    }

    /// Looks at one torrent that waits for a forwarder: enough to find out whether it responds.
    pub(super) fn wake_one(&self) {
        let mut inner = self.inner.lock();
        if let Some(hash) = inner.awaiting.iter().next().copied() {
            inner.awaiting.remove(&hash);
            inner.woken.push(hash);
            self.changed.notify_one();
        }
    }

    /// Looks at every torrent that waits for a forwarder.
    pub(super) fn wake_all(&self) {
        let mut inner = self.inner.lock();
        let Inner {
            awaiting, woken, ..
        } = &mut *inner;
        woken.extend(awaiting.drain());
        if !woken.is_empty() {
            self.changed.notify_one();
        }
    }

    /// Looks at a torrent now.
    pub(super) fn wake(&self, hash: &InfoHash) {
        self.inner.lock().woken.push(*hash);
        self.changed.notify_one();
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.inner.lock().by_time.len()
    }

    /// Returns the time of the first entry.
    pub(super) fn next(&self) -> Option<Seconds> {
        self.inner.lock().by_time.first().map(|(at, _)| *at)
    }

    /// Waits until there is an earlier entry or a torrent to look at.
    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Whether the last batch was not all of the torrents to announce.
    pub(super) fn has_more(&self) -> bool {
        self.inner.lock().more
    }

    /// Removes and returns at most `limit` of the entries up to `now` and of the torrents to look
    /// at without one.
    pub(super) fn take(&self, now: Seconds, limit: usize) -> Batch {
        let mut batch = Batch::default();
        let mut inner = self.inner.lock();
        inner.planned = inner.planned.split_off(&now);
        while batch.due.len() < limit
            && let Some(first) = inner.by_time.pop_first()
        {
            if first.0 > now {
                inner.by_time.insert(first);
                break;
            }
            batch.due.push(first);
        }
        let left = limit - batch.due.len();
        let first = inner.woken.len().saturating_sub(left);
        batch.woken = inner.woken.split_off(first);
        let due = inner.by_time.first();
        inner.more = due.is_some_and(|(at, _)| *at <= now) || !inner.woken.is_empty();
        batch
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn announces_that_began_together_are_spread_evenly() {
        let (timers, mut per_second) = (DueTimers::default(), BTreeMap::<Seconds, u32>::new());
        const ALL: u32 = 50_000;
        for _ in 0..ALL {
            *per_second.entry(timers.plan(100, 1800)).or_default() += 1;
        }
        let (first, last) = (
            *per_second.keys().min().unwrap(),
            *per_second.keys().max().unwrap(),
        );
        assert!(first >= 1901 && last <= 1900 + 180, "{first} to {last}");
        let mean = ALL / (last - first + 1);
        assert!(last - first >= 160, "{first} to {last}");
        let most = *per_second.values().max().unwrap();
        assert!(
            most <= mean + mean / 4,
            "{most} in a second, {mean} on average"
        );
        timers.take(1950, 1);
        assert_eq!(timers.inner.lock().planned.keys().min(), Some(&1950));
    }

    #[test]
    fn torrents_are_taken_in_batches() {
        let timers = DueTimers::default();
        let hash = |number: u8| InfoHash([number; 20]);
        timers.inner.lock().by_time =
            BTreeSet::from([(5, hash(1)), (5, hash(2)), (6, hash(3)), (9, hash(4))]);
        for number in 5..=7 {
            timers.wake(&hash(number));
        }
        let mut sizes = Vec::new();
        let mut all = HashSet::new();
        loop {
            let Batch { due, woken } = timers.take(6, 2);
            sizes.push((due.len(), woken.len()));
            all.extend(due.into_iter().map(|(_, hash)| hash).chain(woken));
            if !timers.has_more() {
                break;
            }
        }
        assert_eq!(sizes, [(2, 0), (1, 1), (0, 2)]);
        assert_eq!(all, [1, 2, 3, 5, 6, 7].map(hash).into());
        assert_eq!(timers.next(), Some(9));
    }
}
