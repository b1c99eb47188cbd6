//! The torrents that a forwarder rejected.
//!
//! A forwarder may reject one torrent only, or the filter in front of it one client's peer id. No
//! client must be able to take a forwarder from all others with an announce that it rejects.

use crate::client_counts::network;
use headworks_tracker_wire::InfoHash;
use parking_lot::Mutex;
use std::collections::HashSet;
use std::net::IpAddr;
use std::time::Duration;
use tokio::time::Instant;

/// The time for which an answer about any torrent proves that a forwarder does not reject all.
const RECENT: Duration = Duration::from_secs(3600);
/// The numbers of torrents and of clients from which rejections are about the tracker itself.
const MIN_TORRENTS: usize = 3;
const MIN_CLIENTS: usize = 2;
/// The most rejections remembered.
const MAX_REJECTED: usize = 16;

/// The torrents that a forwarder rejected since it last answered.
#[derive(Debug, Default)]
pub(crate) struct Rejections(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    /// The time of the last answer.
    answered: Option<Instant>,
    /// The rejected torrents, with the network of the client, oldest first.
    rejected: Vec<(InfoHash, u64)>,
}

impl Rejections {
    /// Records an answer about any torrent.
    pub(crate) fn record_answer(&self) {
        let mut inner = self.0.lock();
        inner.answered = Some(Instant::now());
        inner.rejected.clear();
    }

    /// Whether the forwarder ever answered.
    pub(crate) fn has_answered(&self) -> bool {
        self.0.lock().answered.is_some()
    }

    /// Records a rejection. Returns whether the forwarder rejects the tracker, as opposed to the
    /// torrent or its client.
    pub(crate) fn record(&self, torrent: &InfoHash, client: IpAddr) -> bool {
        let mut inner = self.0.lock();
        if inner.answered.is_some_and(|at| at.elapsed() < RECENT) {
            return false;
        }
        let rejected = (*torrent, network(client));
        if !inner.rejected.contains(&rejected) {
            if inner.rejected.len() >= MAX_REJECTED {
                inner.rejected.remove(0);
            }
            inner.rejected.push(rejected);
        }
        let torrents: HashSet<_> = inner.rejected.iter().map(|(torrent, _)| torrent).collect();
        let clients: HashSet<_> = inner.rejected.iter().map(|(_, client)| client).collect();
        torrents.len() >= MIN_TORRENTS && clients.len() >= MIN_CLIENTS
    }
}
