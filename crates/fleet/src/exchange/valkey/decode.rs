//! Answers of the scripts. Every function returns `None` for an answer of another shape.

use std::time::Duration;

use bytes::Bytes;
use redis::{FromRedisValue, Value, from_redis_value};

use crate::exchange::facts::{Fact, Facts, remaining};
use crate::exchange::lease::Lease;
use crate::exchange::types::{Allocation, NodeReport, RaisedGrant, Stamp};
use crate::node::NodeToken;

/// Reports with their counters.
pub(super) type Reports = Vec<(NodeReport, i64)>;

/// The lease as the server has it.
#[derive(Clone, Copy)]
pub(super) struct FoundLease {
    pub(super) lease: Lease,
    pub(super) epoch: u64,
    pub(super) number: u64,
    pub(super) emptied: bool,
}

/// The answer to a tick.
pub(super) struct Tick {
    /// The lease before the tick.
    pub(super) found: Option<FoundLease>,
    /// The lease after it, if this node holds it.
    pub(super) held: Option<FoundLease>,
    pub(super) allocation: Option<Allocation>,
    pub(super) version: String,
    pub(super) facts: Option<Facts>,
    pub(super) reports: Reports,
    pub(super) grants: Option<Vec<RaisedGrant>>,
}

/// Reads the answer to a tick; `Some(None)` if the node was forgotten.
pub(super) fn tick(answer: Value) -> Option<Option<Tick>> {
    let items = items(answer)?;
    if items.len() == 1 {
        return Some(None);
    }
    let [
        _,
        found,
        held,
        allocation,
        version,
        facts,
        reports,
        grants,
        clock,
    ] = <[Value; 9]>::try_from(items).ok()?;
    let clock = text::<String>(clock)?.parse().ok()?;
    Some(Some(Tick {
        found: optional(found, lease)?,
        held: optional(held, lease)?,
        allocation: optional(allocation, |value| {
            let [epoch, number, body] = array(value)?;
            Some(Allocation {
                stamp: stamp(epoch, number)?,
                body: bytes(body)?,
            })
        })?,
        version: text(version)?,
        facts: optional(facts, |value| read_facts(value, clock))?,
        reports: optional(reports, read_reports)?.unwrap_or_default(),
        grants: optional(grants, |value| each(value, grant))?,
    }))
}

pub(super) fn status(answer: Value) -> Option<(Option<FoundLease>, Reports)> {
    let [found, reports] = array(answer)?;
    Some((optional(found, lease)?, read_reports(reports)?))
}

fn lease(value: Value) -> Option<FoundLease> {
    let [holder, epoch, beat, number, _clock, emptied] = array(value)?;
    let holder: String = text(holder)?;
    let stamp = stamp(epoch, number)?;
    Some(FoundLease {
        lease: Lease {
            holder: match holder.as_str() {
                "" => None,
                token => Some(token.parse().ok()?),
            },
            beat: text::<String>(beat)?.parse().ok()?,
        },
        epoch: stamp.epoch,
        number: stamp.number,
        emptied: text::<String>(emptied)? == "1",
    })
}

fn read_facts(value: Value, clock: i64) -> Option<Facts> {
    let found = each(value, |value| fact(value, clock))?;
    let mut facts: Vec<Fact> = found.into_iter().flatten().collect();
    facts.sort_by(|a, b| a.key.cmp(&b.key));
    Some(Facts { facts })
}

/// Reads a fact; `Some(None)` if it has expired.
fn fact(value: Value, clock: i64) -> Option<Option<Fact>> {
    let [key, body, expires, lasts] = array(value)?;
    let (expires, lasts): (String, String) = (text(expires)?, text(lasts)?);
    let remaining = if expires.is_empty() {
        None
    } else {
        match remaining(expires.parse().ok()?, lasts.parse().ok()?, clock) {
            None => return Some(None),
            left => left,
        }
    };
    Some(Some(Fact {
        key: text(key)?,
        body: bytes(body)?,
        remaining,
    }))
}

fn read_reports(value: Value) -> Option<Reports> {
    each(value, |value| {
        let [node, counter, epoch, number, name, body] = array(value)?;
        let report = NodeReport {
            node: token(node)?,
            name: text(name)?,
            echoed: stamp(epoch, number)?,
            body: bytes(body)?,
            silent: Duration::ZERO,
        };
        Some((report, text::<String>(counter)?.parse().ok()?))
    })
}

fn grant(value: Value) -> Option<RaisedGrant> {
    let [node, epoch, number, body] = array(value)?;
    Some(RaisedGrant {
        node: token(node)?,
        stamp: stamp(epoch, number)?,
        body: bytes(body)?,
    })
}

fn items(value: Value) -> Option<Vec<Value>> {
    match value {
        Value::Array(items) => Some(items),
        _ => None,
    }
}

fn array<const N: usize>(value: Value) -> Option<[Value; N]> {
    items(value)?.try_into().ok()
}

fn each<T>(value: Value, read: impl Fn(Value) -> Option<T>) -> Option<Vec<T>> {
    items(value)?.into_iter().map(read).collect()
}

/// Lua's `false` arrives as nil.
fn optional<T>(value: Value, read: impl Fn(Value) -> Option<T>) -> Option<Option<T>> {
    match value {
        Value::Nil => Some(None),
        value => read(value).map(Some),
    }
}

fn text<T: FromRedisValue>(value: Value) -> Option<T> {
    from_redis_value(value).ok()
}

fn bytes(value: Value) -> Option<Bytes> {
    text::<Vec<u8>>(value).map(Bytes::from)
}

fn token(value: Value) -> Option<NodeToken> {
    text::<String>(value)?.parse().ok()
}

fn stamp(epoch: Value, number: Value) -> Option<Stamp> {
    Some(Stamp {
        epoch: text::<String>(epoch)?.parse().ok()?,
        number: text::<String>(number)?.parse().ok()?,
    })
}
