//! Requests that are in flight to forwarders, so that neither `stopped` overtakes an announce nor
//! an announce the `stopped` before it.

use super::job::ForwardJob;
use crate::forwarders::ForwarderId;
use headworks_tracker_wire::{InfoHash, PeerId};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;

/// Torrent, forwarder and peer.
type Key = (InfoHash, ForwarderId, PeerId);

/// Requests in flight, each with the `stopped` that must follow it.
#[derive(Default)]
pub(super) struct InFlight(Mutex<HashMap<Key, Entry>>);

#[derive(Default)]
struct Entry {
    /// Announces and `completed` in flight.
    requests: u32,
    /// Whether `stopped` is in flight. Nothing else is, then.
    stopping: bool,
    stopped: Option<ForwardJob>,
}

fn key(job: &ForwardJob) -> Key {
    (job.announce.info_hash, job.forwarder, job.announce.peer_id)
}

impl InFlight {
    /// Registers a request other than `stopped`; `None` while `stopped` is in flight for its peer.
    pub(super) fn begin(self: &Arc<Self>, job: &ForwardJob) -> Option<InFlightGuard> {
        let key = key(job);
        let mut entries = self.0.lock();
        let entry = entries.entry(key).or_default();
        if entry.stopping {
            return None;
        }
        entry.requests += 1;
        Some(InFlightGuard {
            in_flight: self.clone(),
            key,
            finished: false,
        })
    }

    /// Registers `stopped`. Returns `None` if it is deferred until the requests in flight for its
    /// peer end, or if another `stopped` of the peer is in flight.
    pub(super) fn begin_stop(self: &Arc<Self>, stopped: &ForwardJob) -> Option<StopGuard> {
        let key = key(stopped);
        let mut entries = self.0.lock();
        let entry = entries.entry(key).or_default();
        if entry.requests > 0 {
            entry.stopped = Some(*stopped);
            return None;
        }
        if entry.stopping {
            return None;
        }
        entry.stopping = true;
        Some(StopGuard {
            in_flight: self.clone(),
            key,
        })
    }
}

/// A registered `stopped`. Dropping it removes the registration.
pub(super) struct StopGuard {
    in_flight: Arc<InFlight>,
    key: Key,
}

impl Drop for StopGuard {
    fn drop(&mut self) {
        self.in_flight.0.lock().remove(&self.key);
    }
}

/// A registered request. Dropping it removes the registration, also when the request is cancelled.
pub(super) struct InFlightGuard {
    in_flight: Arc<InFlight>,
    key: Key,
    finished: bool,
}

impl InFlightGuard {
    /// Ends the request. Returns the deferred `stopped` that must follow it.
    pub(super) fn finish(mut self) -> Option<ForwardJob> {
        self.finished = true;
        self.end()
    }

    fn end(&self) -> Option<ForwardJob> {
        let mut entries = self.in_flight.0.lock();
        let entry = entries.get_mut(&self.key)?;
        entry.requests -= 1;
        if entry.requests > 0 {
            return None;
        }
        entries.remove(&self.key)?.stopped
    }
}

impl Drop for InFlightGuard {
    fn drop(&mut self) {
        if !self.finished {
            self.end();
        }
    }
}
