//! Requests that are in flight to forwarders, so that `stopped` never overtakes an announce.

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
    requests: u32,
    stopped: Option<ForwardJob>,
}

fn key(job: &ForwardJob) -> Key {
    (job.announce.info_hash, job.forwarder, job.announce.peer_id)
}

impl InFlight {
    /// Registers a request.
    pub(super) fn begin(self: &Arc<Self>, job: &ForwardJob) -> InFlightGuard {
        let key = key(job);
        self.0.lock().entry(key).or_default().requests += 1;
        InFlightGuard {
            in_flight: self.clone(),
            key,
            finished: false,
        }
    }

    /// Defers `stopped` until the request in flight for its peer ends. Returns `false` if there is
    /// no such request.
    pub(super) fn defer(&self, stopped: &ForwardJob) -> bool {
        let mut entries = self.0.lock();
        let entry = entries.get_mut(&key(stopped));
        entry.map(|entry| entry.stopped = Some(*stopped)).is_some()
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
