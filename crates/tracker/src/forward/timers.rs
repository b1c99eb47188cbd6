//! The times at which torrents are due at forwarders.
//!
//! A torrent is announced again when its forwarders are due, not when one of its clients happens to
//! announce. Each swarm has at most one valid entry here; it remembers the entry's time, and an
//! entry with another time is ignored. Torrents that could not be announced because a forwarder was
//! unavailable are kept apart and looked at again when a forwarder is back.

use crate::clock::Seconds;
use crate::swarms::Swarm;
use headworks_tracker_wire::InfoHash;
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashSet};
use tokio::sync::Notify;

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
    by_time: BTreeMap<Seconds, Vec<InfoHash>>,
    awaiting: HashSet<InfoHash>,
    /// The torrents to look at now, with the time of their entry if they come from there.
    woken: Vec<InfoHash>,
}

impl DueTimers {
    /// Sets the torrent's timer to `at`, unless it is set to an earlier time. The caller holds the
    /// lock of the swarm's shard.
    pub(super) fn arm(&self, hash: &InfoHash, swarm: &mut Swarm, at: Seconds) {
        if swarm.local_peers() == 0 || (swarm.timer != 0 && swarm.timer <= at) {
            return;
        }
        swarm.timer = at;
        let mut inner = self.inner.lock();
        let earliest = inner.by_time.first_key_value().map(|(at, _)| *at);
        inner.by_time.entry(at).or_default().push(*hash);
        if earliest.is_none_or(|earliest| at < earliest) {
            self.changed.notify_one();
        }
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

    /// Returns the time of the first entry.
    pub(super) fn next(&self) -> Option<Seconds> {
        let inner = self.inner.lock();
        inner.by_time.first_key_value().map(|(at, _)| *at)
    }

    /// Waits until there is an earlier entry or a torrent to look at.
    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Removes and returns the entries up to `now`, and the torrents to look at without one.
    pub(super) fn take(&self, now: Seconds) -> (Vec<(Seconds, InfoHash)>, Vec<InfoHash>) {
        let mut inner = self.inner.lock();
        let later = inner.by_time.split_off(&now.saturating_add(1));
        let due = std::mem::replace(&mut inner.by_time, later);
        let due = due.into_iter();
        let due = due.flat_map(|(at, hashes)| hashes.into_iter().map(move |hash| (at, hash)));
        (due.collect(), std::mem::take(&mut inner.woken))
    }
}
