//! The explanation of a torrent: the origin of each peer, and for each forwarder its last announce,
//! its due time and the reason why it is skipped.

use crate::active_config::ActiveConfig;
use crate::announce::AnnounceHandler;
use crate::clock::Seconds;
use crate::forwarders::{ForwarderId, ForwarderState, Status};
use crate::swarms::{AnnounceRecord, AnnouncedPeer, ForwarderSchedule, Peer, Swarm};
use headworks_service::config::format_duration;
use headworks_service::panel::{Explanation, Fact};
use headworks_tracker_wire::{InfoHash, compact};
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::time::Instant;

/// The most local peers and the most cached peers listed.
const MAX_PEERS: usize = 200;

/// Explains a torrent; `None` if it has no swarm and no list names it.
pub(crate) fn explain(announces: &AnnounceHandler, hash: &InfoHash) -> Option<Explanation> {
    let (state, active) = (&announces.state, announces.state.active());
    let explainer = Explainer {
        announces,
        active: &active,
        now: state.clock.now(),
    };
    let (denied, private) = (
        active.access.denies_torrent(hash),
        active.access.is_private(hash),
    );
    let explain = |swarm: &Swarm| explainer.swarm(swarm, private);
    let explained = state.swarms.read(hash, explain);
    if explained.is_none() && !denied && !private {
        return None;
    }
    let (mut summary, mut facts) = explained.unwrap_or_else(|| ("no peers".into(), Vec::new()));
    if denied {
        summary += "; not served: an access list denies it";
    }
    if private {
        let text = "off: `never_forward_file` names this torrent";
        facts.insert(0, fact("forwarding", text.into()));
    }
    Some(Explanation {
        subject: hash.to_string(),
        summary,
        facts,
    })
}

fn fact(name: impl Into<String>, value: String) -> Fact {
    let name = name.into();
    Fact { name, value }
}

struct Explainer<'a> {
    announces: &'a AnnounceHandler,
    active: &'a ActiveConfig,
    now: Seconds,
}

impl Explainer<'_> {
    fn swarm(&self, swarm: &Swarm, private: bool) -> (String, Vec<Fact>) {
        let empty = AnnounceRecord::default();
        let record = swarm.record.as_deref().unwrap_or(&empty);
        let counts = swarm.counts(self.announces.state.count_by);
        let summary = format!(
            "{} local peers, {} from forwarders; {} forwards pending",
            swarm.local_peers(),
            record.len(),
            record.pending()
        );
        let mut facts = vec![
            fact("complete", counts.complete.to_string()),
            fact("incomplete", counts.incomplete.to_string()),
            fact("downloaded", counts.downloaded.to_string()),
        ];
        if !private {
            let due = match swarm.due {
                due if due > self.now => format!("in {}", span(due - self.now)),
                _ => "at the next announce".into(),
            };
            facts.push(fact("next selection of forwarders", due));
        }
        for (id, forwarder) in self.active.listed_forwarders() {
            let name = format!("forwarder {}", forwarder.name);
            let retry = record.retry_at(id);
            let text = self.forwarder(forwarder, record.schedule(id), retry);
            facts.push(fact(name, text));
        }
        self.local_peers(swarm, record, &mut facts);
        self.cached_peers(record, &mut facts);
        (summary, facts)
    }

    fn local_peers(&self, swarm: &Swarm, record: &AnnounceRecord, facts: &mut Vec<Fact>) {
        let v4 = swarm.v4.iter();
        let v4 = v4.map(|(at, peer)| (compact::unpack4(&at), peer));
        let v6 = swarm.v6.iter();
        let v6 = v6.map(|(at, peer)| (compact::unpack6(&at), peer));
        for (address, peer) in v4.chain(v6).take(MAX_PEERS) {
            facts.push(self.local_peer(address, &peer, record));
        }
        let left = swarm.local_peers().saturating_sub(MAX_PEERS);
        if left > 0 {
            facts.push(fact("more local peers", left.to_string()));
        }
    }

    fn local_peer(&self, address: SocketAddr, peer: &Peer, record: &AnnounceRecord) -> Fact {
        let kind = if peer.seeder { "seeder" } else { "leecher" };
        let forwarders = record.peer(&peer.id).into_iter();
        let forwarders = forwarders.flat_map(AnnouncedPeer::announced_to);
        let names: Vec<&str> = forwarders.filter_map(|id| self.name(id)).collect();
        let mut text = format!(
            "{kind}, last announce {} ago",
            self.since(peer.last_announce)
        );
        if !names.is_empty() {
            text += &format!("; announced to {}", names.join(", "));
        }
        fact(format!("peer {address}"), text)
    }

    fn cached_peers(&self, record: &AnnounceRecord, facts: &mut Vec<Fact>) {
        let v4 = record.v4.iter();
        let v4 = v4.map(|(at, id, last)| (compact::unpack4(&at), id, last));
        let v6 = record.v6.iter();
        let v6 = v6.map(|(at, id, last)| (compact::unpack6(&at), id, last));
        for (address, id, last_seen) in v4.chain(v6).take(MAX_PEERS) {
            let by = self.name(id).unwrap_or("a forwarder no longer listed");
            let text = format!(
                "first reported by {by}, last seen {} ago",
                self.since(last_seen)
            );
            facts.push(fact(format!("peer {address}"), text));
        }
        let left = record.len().saturating_sub(MAX_PEERS);
        if left > 0 {
            facts.push(fact("more peers from forwarders", left.to_string()));
        }
    }

    /// Describes the last announce to a forwarder and the reason why it is skipped now.
    fn forwarder(
        &self,
        forwarder: &ForwarderState,
        schedule: ForwarderSchedule,
        retry: Option<Seconds>,
    ) -> String {
        let mut text = match schedule.last {
            0 => "never asked".to_owned(),
            last => format!(
                "asked {} ago, {} new peers",
                self.since(last),
                schedule.contributed
            ),
        };
        let last_error = forwarder.last_error.lock().clone();
        match forwarder.status() {
            Status::Active if retry.is_some_and(|at| at > self.now) => {
                let at = retry.unwrap_or_default();
                text += &format!("; asked to wait: next retry in {}", span(at - self.now));
            }
            Status::Active if schedule.due > self.now => {
                text += &format!("; due in {}", span(schedule.due - self.now));
            }
            Status::Active => text += "; due",
            Status::Suspended => {
                let left = self.suspended_for(forwarder).unwrap_or_default();
                text += &format!("; skipped: suspended for {}", show(left));
            }
            Status::Probation => {
                text += "; on probation: one request at a time";
                match schedule.due.saturating_sub(self.now) {
                    0 => text += ", due",
                    left => text += &format!(", due in {}", span(left)),
                }
            }
            Status::Disabled if forwarder.declined.load(Ordering::Relaxed) => {
                text += "; skipped: disabled until a reload, because it declined";
            }
            Status::Disabled => {
                text += "; skipped: disabled";
                let probe = *forwarder.next_probe.lock();
                if let Some(probe) = probe {
                    let left = probe.saturating_duration_since(Instant::now());
                    text += &format!(", next probe in {}", show(left));
                }
            }
            Status::Retired => text += "; skipped: no longer listed",
        }
        if let Some(error) = last_error {
            text += &format!("; last error: {error}");
        }
        text
    }

    fn suspended_for(&self, forwarder: &ForwarderState) -> Option<Duration> {
        let until = (*forwarder.suspended_until.lock())?;
        Some(until.since(self.announces.forwarding.pool().now()))
    }

    fn name(&self, id: ForwarderId) -> Option<&str> {
        let forwarder = self.active.forwarders.get(id.index())?;
        Some(&forwarder.name)
    }

    fn since(&self, then: Seconds) -> String {
        span(self.now.saturating_sub(then))
    }
}

fn span(seconds: Seconds) -> String {
    show(Duration::from_secs(seconds.into()))
}

/// Formats a duration in whole seconds.
fn show(duration: Duration) -> String {
    format_duration(Duration::from_secs(duration.as_secs()))
}
