//! Reports and allocations as bytes, for the limit exchange.
//!
//! Flows are numbers that differ between processes, and so are targets. The messages therefore name
//! tenants and capacity pools; [`Names`](super::names::Names) translates. The first byte is the
//! version. Bytes after the known fields are ignored, so that a later program can add fields.

mod bytes;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use headworks_core::shares::{GateShare, Load, OnLoss, RateShare, Stamp};

use bytes::{Reader, Writer};

/// The version of the format.
const VERSION: u8 = 1;

/// Largest amount that is accepted, in millionths. The sum over a fleet must fit into 64 bits.
const MAX_AMOUNT: u64 = 100_000_000_000_000_000;

/// Largest part of a stamp that is accepted: an allocator continues after it.
const MAX_STAMP: u64 = 1 << 53;

/// A gate, by name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Gate {
    All,
    Tenant(Arc<str>),
    Pool(Arc<str>),
}

/// A share of the fleet's limits.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct NamedShare {
    pub(crate) gates: Vec<(Gate, GateShare)>,
    /// The part, in billionths, of the limits of every tenant that is not named.
    pub(crate) other_tenants: u64,
}

/// The demand of one tenant in one class for one set of pools.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct NamedDemand {
    pub(crate) class: u8,
    /// `None` for all tenants of the class that the report does not name.
    pub(crate) tenant: Option<Arc<str>>,
    pub(crate) pools: Vec<Arc<str>>,
    pub(crate) tenants: u32,
    pub(crate) waiting: Load,
    pub(crate) granted: Load,
    pub(crate) running: f64,
}

/// The limits of one pool as its upstreams stated them since the last report.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PoolHint {
    pub(crate) pool: Arc<str>,
    pub(crate) overloaded: bool,
    pub(crate) rps: Option<f64>,
    pub(crate) tokens_per_sec: Option<f64>,
}

/// A node's report.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct NodeMessage {
    pub(crate) number: u64,
    pub(crate) echo: Stamp,
    pub(crate) in_force: NamedShare,
    pub(crate) demand: Vec<NamedDemand>,
    pub(crate) complete: bool,
    pub(crate) succeeds: Option<u128>,
    pub(crate) leaves: bool,
    /// Of the limits and weights in the configuration.
    pub(crate) fingerprint: u64,
    pub(crate) ready: bool,
    pub(crate) program: Arc<str>,
    pub(crate) hints: Vec<PoolHint>,
    /// The number of the first report that has these hints.
    pub(crate) hints_since: u64,
    pub(crate) on_loss: OnLoss,
}

/// The allocation of one node.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ShareMessage {
    pub(crate) stamp: Stamp,
    pub(crate) seen: u64,
    pub(crate) share: NamedShare,
    pub(crate) class_weights: Vec<(u8, f64)>,
    pub(crate) tenant_weights: Vec<(Arc<str>, f64)>,
}

/// Why a message cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum WireError {
    #[error("it has version {0} of the format, and this program knows version {VERSION}")]
    Version(u8),
    #[error("it is malformed")]
    Malformed,
}

impl NodeMessage {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Writer::default();
        out.byte(VERSION);
        out.number(self.number);
        write_stamp(&mut out, self.echo);
        write_share(&mut out, &self.in_force);
        out.number(self.demand.len() as u64);
        for demand in &self.demand {
            write_demand(&mut out, demand);
        }
        out.byte(u8::from(self.complete));
        out.byte(u8::from(self.succeeds.is_some()));
        if let Some(former) = self.succeeds {
            out.bytes(&former.to_be_bytes());
        }
        out.byte(u8::from(self.leaves));
        out.bytes(&self.fingerprint.to_le_bytes());
        out.byte(u8::from(self.ready));
        out.name(&self.program);
        out.number(self.hints.len() as u64);
        for hint in &self.hints {
            out.name(&hint.pool);
            out.byte(u8::from(hint.overloaded));
            for stated in [hint.rps, hint.tokens_per_sec] {
                out.byte(u8::from(stated.is_some()));
                if let Some(stated) = stated {
                    out.fraction(stated);
                }
            }
        }
        out.number(self.hints_since);
        write_on_loss(&mut out, self.on_loss);
        out.out
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<NodeMessage, WireError> {
        let mut read = begin(bytes)?;
        read_report(&mut read).ok_or(WireError::Malformed)
    }
}

impl ShareMessage {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Writer::default();
        out.byte(VERSION);
        write_stamp(&mut out, self.stamp);
        out.number(self.seen);
        write_share(&mut out, &self.share);
        out.number(self.class_weights.len() as u64);
        for (class, weight) in &self.class_weights {
            out.byte(*class);
            out.fraction(*weight);
        }
        out.number(self.tenant_weights.len() as u64);
        for (tenant, weight) in &self.tenant_weights {
            out.name(tenant);
            out.fraction(*weight);
        }
        out.out
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<ShareMessage, WireError> {
        let mut read = begin(bytes)?;
        read_allocation(&mut read).ok_or(WireError::Malformed)
    }
}

fn begin(bytes: &[u8]) -> Result<Reader<'_>, WireError> {
    let mut read = Reader::new(bytes);
    match read.byte() {
        Some(VERSION) => Ok(read),
        Some(version) => Err(WireError::Version(version)),
        None => Err(WireError::Malformed),
    }
}

fn read_report(read: &mut Reader<'_>) -> Option<NodeMessage> {
    Some(NodeMessage {
        number: read.number()?,
        echo: read_stamp(read)?,
        in_force: read_share(read)?,
        demand: read.list(read_demand)?,
        complete: read.flag()?,
        succeeds: match read.flag()? {
            true => Some(u128::from_be_bytes(read.bytes()?)),
            false => None,
        },
        leaves: read.flag()?,
        fingerprint: u64::from_le_bytes(read.bytes()?),
        ready: read.flag()?,
        program: read.name()?,
        hints: read.list(read_hint)?,
        hints_since: read.number()?,
        on_loss: read_on_loss(read)?,
    })
}

fn read_allocation(read: &mut Reader<'_>) -> Option<ShareMessage> {
    Some(ShareMessage {
        stamp: read_stamp(read)?,
        seen: read.number()?,
        share: read_share(read)?,
        class_weights: read.list(|read| Some((read.byte()?, read.fraction()?)))?,
        tenant_weights: read.list(|read| Some((read.name()?, read.fraction()?)))?,
    })
}

fn write_on_loss(out: &mut Writer<'_>, on_loss: OnLoss) {
    match on_loss {
        OnLoss::Keep => out.byte(0),
        OnLoss::Closed {
            request_timeout: None,
        } => out.byte(1),
        OnLoss::Closed {
            request_timeout: Some(timeout),
        } => {
            out.byte(2);
            let millis = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
            out.number(millis);
        }
    }
}

fn read_on_loss(read: &mut Reader<'_>) -> Option<OnLoss> {
    let request_timeout = match read.byte()? {
        0 => return Some(OnLoss::Keep),
        1 => None,
        2 => Some(Duration::from_millis(read.number()?)),
        _ => return None,
    };
    Some(OnLoss::Closed { request_timeout })
}

fn write_stamp(out: &mut Writer<'_>, stamp: Stamp) {
    out.number(stamp.epoch);
    out.number(stamp.number);
}

fn read_stamp(read: &mut Reader<'_>) -> Option<Stamp> {
    let stamp = Stamp {
        epoch: read.number()?,
        number: read.number()?,
    };
    (stamp.epoch.max(stamp.number) < MAX_STAMP).then_some(stamp)
}

fn write_share<'a>(out: &mut Writer<'a>, share: &'a NamedShare) {
    out.number(share.other_tenants);
    out.number(share.gates.len() as u64);
    for (gate, share) in &share.gates {
        let kind = match gate {
            Gate::All => 0,
            Gate::Tenant(_) => 1,
            Gate::Pool(_) => 2,
        };
        let flags = [
            share.requests.is_some(),
            share.cost.is_some(),
            share.concurrent.is_some(),
        ];
        let flags = (4..)
            .zip(flags)
            .map(|(bit, is_set)| u8::from(is_set) << bit);
        out.byte(kind | flags.sum::<u8>());
        if let Gate::Tenant(name) | Gate::Pool(name) = gate {
            out.name(name);
        }
        for rate in [share.requests, share.cost].into_iter().flatten() {
            out.number(rate.rate);
            out.number(rate.burst);
        }
        if let Some(slots) = share.concurrent {
            out.number(slots.into());
        }
    }
}

fn read_share(read: &mut Reader<'_>) -> Option<NamedShare> {
    Some(NamedShare {
        other_tenants: read.number()?,
        gates: read.list(read_gate)?,
    })
}

fn read_gate(read: &mut Reader<'_>) -> Option<(Gate, GateShare)> {
    let byte = read.byte()?;
    let gate = match byte & 0x8f {
        0 => Gate::All,
        1 => Gate::Tenant(read.name()?),
        2 => Gate::Pool(read.name()?),
        _ => return None,
    };
    let mut share = GateShare::default();
    if byte & 0x10 != 0 {
        share.requests = Some(read_rate(read)?);
    }
    if byte & 0x20 != 0 {
        share.cost = Some(read_rate(read)?);
    }
    if byte & 0x40 != 0 {
        share.concurrent = Some(read.small()?);
    }
    Some((gate, share))
}

fn read_rate(read: &mut Reader<'_>) -> Option<RateShare> {
    let share = RateShare {
        rate: read.number()?,
        burst: read.number()?,
    };
    (share.rate.max(share.burst) <= MAX_AMOUNT).then_some(share)
}

fn write_demand<'a>(out: &mut Writer<'a>, demand: &'a NamedDemand) {
    out.byte(demand.class);
    out.byte(u8::from(demand.tenant.is_some()));
    if let Some(tenant) = &demand.tenant {
        out.name(tenant);
    }
    out.number(demand.pools.len() as u64);
    for pool in &demand.pools {
        out.name(pool);
    }
    out.number(demand.tenants.into());
    let Load { requests, cost } = demand.waiting;
    let granted = demand.granted;
    for value in [
        requests,
        cost,
        granted.requests,
        granted.cost,
        demand.running,
    ] {
        out.fraction(value);
    }
}

fn read_demand(read: &mut Reader<'_>) -> Option<NamedDemand> {
    let load = |read: &mut Reader<'_>| {
        Some(Load {
            requests: read.fraction()?,
            cost: read.fraction()?,
        })
    };
    Some(NamedDemand {
        class: read.byte()?,
        tenant: match read.flag()? {
            true => Some(read.name()?),
            false => None,
        },
        pools: read.list(Reader::name)?,
        tenants: read.small()?,
        waiting: load(read)?,
        granted: load(read)?,
        running: read.fraction()?,
    })
}

fn read_hint(read: &mut Reader<'_>) -> Option<PoolHint> {
    let stated = |read: &mut Reader<'_>| {
        Some(match read.flag()? {
            true => Some(read.fraction()?),
            false => None,
        })
    };
    Some(PoolHint {
        pool: read.name()?,
        overloaded: read.flag()?,
        rps: stated(read)?,
        tokens_per_sec: stated(read)?,
    })
}
