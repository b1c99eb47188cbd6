//! Why a torrent is as it is: where each peer came from, which forwarder was asked when and is due
//! when, and why one was not.

use crate::forward::{Station, Status};
use crate::plan::Plan;
use crate::plane::Plane;
use crate::swarm::{Asked, Known, Seconds, Swarm};
use headworks_service::config::show_duration;
use headworks_service::panel::{Explanation, Fact};
use headworks_tracker_wire::{InfoHash, PeerId, compact};
use std::net::SocketAddr;
use std::time::Duration;

/// Peers of each origin that are named, at most.
const PEERS: usize = 200;

/// What is known of a torrent; nothing if nobody announced it and no list names it.
pub(crate) fn explain(plane: &Plane, hash: &InfoHash) -> Option<Explanation> {
    let (shared, plan) = (&plane.shared, plane.shared.plan());
    let look = Look {
        plane,
        plan: &plan,
        now: shared.clock.now(),
    };
    let (denied, private) = (
        plan.access.refuses_torrent(hash),
        plan.access.is_private(hash),
    );
    let told = shared.swarms.look(hash, |swarm| look.swarm(swarm, private));
    if told.is_none() && !denied && !private {
        return None;
    }
    let (mut summary, mut facts) = told.unwrap_or_else(|| ("nobody is in it".into(), Vec::new()));
    if denied {
        summary += "; a list keeps it from being served";
    }
    if private {
        let text = "no forwarder is asked: `never_forward_file` names it";
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

struct Look<'a> {
    plane: &'a Plane,
    plan: &'a Plan,
    now: Seconds,
}

impl Look<'_> {
    fn swarm(&self, swarm: &Swarm, private: bool) -> (String, Vec<Fact>) {
        let nothing = Known::default();
        let known = swarm.known.as_deref().unwrap_or(&nothing);
        let counts = swarm.counts(self.plane.shared.count_by);
        let summary = format!(
            "{} local peers, {} from forwarders; {} forwards on their way",
            swarm.local_peers(),
            known.len(),
            known.flying()
        );
        let mut facts = vec![
            fact("complete", counts.complete.to_string()),
            fact("incomplete", counts.incomplete.to_string()),
            fact("downloaded", counts.downloaded.to_string()),
        ];
        if !private {
            let due = match swarm.due {
                due if due > self.now => format!("in {}", span(due - self.now)),
                _ => "with the next announce".into(),
            };
            facts.push(fact("forwarders are looked at again", due));
        }
        for (number, station) in self.plan.forwarders() {
            let name = format!("forwarder {}", station.name);
            facts.push(fact(name, self.forwarder(station, known.asked(number))));
        }
        self.local(swarm, known, &mut facts);
        self.found(known, &mut facts);
        (summary, facts)
    }

    fn local(&self, swarm: &Swarm, known: &Known, facts: &mut Vec<Fact>) {
        let v4 = swarm.v4.iter();
        let v4 = v4.map(|(at, id, seeder, heard)| (compact::unpack4(&at), id, seeder, heard));
        let v6 = swarm.v6.iter();
        let v6 = v6.map(|(at, id, seeder, heard)| (compact::unpack6(&at), id, seeder, heard));
        for (at, id, seeder, heard) in v4.chain(v6).take(PEERS) {
            facts.push(self.peer(at, &id, seeder, heard, known));
        }
        let left = swarm.local_peers().saturating_sub(PEERS);
        if left > 0 {
            facts.push(fact("more local peers", left.to_string()));
        }
    }

    fn peer(
        &self,
        at: SocketAddr,
        id: &PeerId,
        seeder: bool,
        heard: Seconds,
        known: &Known,
    ) -> Fact {
        let kind = if seeder { "seeder" } else { "leecher" };
        let told = known.told(id).into_iter();
        let told: Vec<&str> = told.filter_map(|number| self.name(number)).collect();
        let mut text = format!("{kind} that announced itself {} ago", self.ago(heard));
        if !told.is_empty() {
            text += &format!("; told to {}", told.join(", "));
        }
        fact(format!("peer {at}"), text)
    }

    fn found(&self, known: &Known, facts: &mut Vec<Fact>) {
        let v4 = known.v4.iter();
        let v4 = v4.map(|(at, number, seen)| (compact::unpack4(&at), number, seen));
        let v6 = known.v6.iter();
        let v6 = v6.map(|(at, number, seen)| (compact::unpack6(&at), number, seen));
        for (at, number, seen) in v4.chain(v6).take(PEERS) {
            let by = self.name(number).unwrap_or("a forwarder no longer listed");
            let text = format!("first named by {by}, last seen {} ago", self.ago(seen));
            facts.push(fact(format!("peer {at}"), text));
        }
        let left = known.len().saturating_sub(PEERS);
        if left > 0 {
            facts.push(fact("more peers from forwarders", left.to_string()));
        }
    }

    /// What was asked of a forwarder, and why it is not asked now.
    fn forwarder(&self, station: &Station, asked: Asked) -> String {
        let mut text = match asked.last {
            0 => "never asked".to_owned(),
            last => format!(
                "asked {} ago, {} new peers",
                self.ago(last),
                asked.contributed
            ),
        };
        let trouble = station.trouble.lock().clone();
        match station.status() {
            Status::Active if asked.due > self.now => {
                text += &format!("; due in {}", span(asked.due - self.now));
            }
            Status::Active => text += "; may be asked",
            Status::Suspended => {
                let left = self.suspended_for(station).unwrap_or_default();
                text += &format!("; skipped: suspended for {}", show(left));
            }
            Status::Probation => text += "; on probation: one at a time is tried",
            Status::Disabled => text += "; skipped: disabled",
            Status::Retired => text += "; skipped: no longer listed",
        }
        if let Some(trouble) = trouble {
            text += &format!("; last trouble: {trouble}");
        }
        text
    }

    fn suspended_for(&self, station: &Station) -> Option<Duration> {
        let until = (*station.until.lock())?;
        Some(until.since(self.plane.forwarding.pool().now()))
    }

    fn name(&self, number: u16) -> Option<&str> {
        let station = self.plan.stations.get(usize::from(number))?;
        Some(&station.name)
    }

    fn ago(&self, then: Seconds) -> String {
        span(self.now.saturating_sub(then))
    }
}

fn span(seconds: Seconds) -> String {
    show(Duration::from_secs(seconds.into()))
}

/// Whole seconds are enough.
fn show(duration: Duration) -> String {
    show_duration(Duration::from_secs(duration.as_secs()))
}
