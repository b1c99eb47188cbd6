//! Explains in words how a request was treated.

use std::time::Duration;

use headworks_core::Cost;
use headworks_service::panel::{Explanation, Fact};
use jiff::Timestamp;

use crate::gates::{WaitingRequest, reached_limits};
use crate::history::{HistoryEntry, Stage};
use crate::shared::Shared;

/// Explanation of the request with this id.
pub(super) fn explain(shared: &Shared, id: &str) -> Option<Explanation> {
    let entry = shared.history.find(id)?;
    Some(Explanation {
        subject: id.to_owned(),
        summary: summary(&entry),
        facts: facts(shared, &entry),
    })
}

fn millis(time: Option<Duration>) -> String {
    time.map_or("unknown".to_owned(), |time| {
        format!("{:.1} ms", time.as_secs_f64() * 1000.0)
    })
}

fn summary(entry: &HistoryEntry) -> String {
    let waited = match (&entry.held_by, entry.waited) {
        (Some(held), Some(_)) => format!("waited {} because {held}", millis(entry.waited)),
        (Some(held), None) => format!("waited because {held}"),
        (None, _) => "did not wait".to_owned(),
    };
    let then = match entry.stage {
        Stage::Waiting => "and is still queued".to_owned(),
        Stage::Running => "and is running".to_owned(),
        Stage::Done => format!("and was answered with {}", entry.status.unwrap_or(0)),
        Stage::Refused => format!("and was rejected ({})", entry.reason),
        Stage::Left => format!("and ended early ({})", entry.reason),
        Stage::Failed => format!("and got no complete response ({})", entry.reason),
    };
    format!("it {waited}, {then}")
}

/// The limits that block a request now, if it is queued.
fn blocked_now(shared: &Shared, entry: &HistoryEntry) -> Option<String> {
    if entry.stage != Stage::Waiting || entry.position == 0 {
        return None;
    }
    let request = WaitingRequest {
        tenant: &entry.tenant,
        pools: &entry.pools,
        cost: Cost(entry.estimate),
    };
    let reached = reached_limits(shared, request);
    Some(match reached.is_empty() {
        true => "no limit: other requests are ahead of it".to_owned(),
        false => reached.join(" and "),
    })
}

/// Place of a queued request among those of its class, by arrival.
fn position_now(shared: &Shared, entry: &HistoryEntry) -> usize {
    let mut position = 1;
    shared.history.since(Timestamp::MIN, |other| {
        let waits = other.stage == Stage::Waiting && other.position > 0;
        position += usize::from(waits && other.class == entry.class && other.number < entry.number);
    });
    position
}

fn facts(shared: &Shared, entry: &HistoryEntry) -> Vec<Fact> {
    let mut facts = Vec::new();
    let mut add = |name: &str, value: String| {
        facts.push(Fact {
            name: name.to_owned(),
            value,
        });
    };
    add("arrived", entry.arrived.to_string());
    add("tenant", entry.tenant.to_string());
    add("class", entry.class.to_string());
    add("model", entry.model.clone());
    add("position on arrival", entry.position.to_string());
    add("waited", millis(entry.waited));
    if let Some(held) = &entry.held_by {
        add("blocked on arrival by", held.clone());
        add("wait expected on arrival", millis(entry.expected_wait));
    }
    if let Some(blocked) = blocked_now(shared, entry) {
        add("blocked now by", blocked);
        add("position now", position_now(shared, entry).to_string());
        let passed = Timestamp::now().duration_since(entry.arrived);
        let passed = Duration::try_from(passed).unwrap_or_default();
        let left = entry.expected_wait.map(|wait| wait.saturating_sub(passed));
        add("expected to be granted in", millis(left));
    }
    if entry.aged {
        add(
            "aged",
            "granted early because it had waited too long".to_owned(),
        );
    }
    add("upstreams tried", entry.upstreams.join(", "));
    add("estimated tokens", entry.estimate.to_string());
    let tokens = entry
        .tokens
        .map_or("unknown".to_owned(), |tokens| tokens.to_string());
    add("actual tokens", tokens);
    add("response time", millis(entry.took));
    add("reason", entry.reason.to_owned());
    facts
}
