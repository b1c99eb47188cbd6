//! The runtime state of a forwarder: its address, its status and its counters.

use super::latency::Latency;
use super::list::Forwarder;
use super::score::Score;
use crate::counters::Count;
use headworks_core::{Disabled, TargetId, TargetState, Time};
use http::Uri;
use parking_lot::Mutex;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::time::Duration;

/// The id of a forwarder. It stays the same until the process ends, even if a reload removes the
/// forwarder from the list and a later one adds it again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ForwarderId(pub(crate) u16);

impl ForwarderId {
    /// Converts an index into the active configuration's forwarders, of which there are never more
    /// than `u16::MAX`.
    pub(crate) fn from_index(index: usize) -> ForwarderId {
        ForwarderId(index as u16)
    }

    pub(crate) fn index(self) -> usize {
        usize::from(self.0)
    }

    /// Returns the forwarder's target in the pool.
    pub(crate) fn target(self) -> TargetId {
        TargetId::new(u32::from(self.0))
    }
}

/// The runtime state of one forwarder. Reloads keep it as long as the forwarder stays the same.
pub(crate) struct ForwarderState {
    pub(crate) name: String,
    /// The address for requests. It may hold a passkey and is never shown.
    pub(crate) uri: Uri,
    pub(crate) ip: Option<IpAddr>,
    pub(crate) host: Option<String>,
    status: AtomicU8,
    /// The end of a suspension, in the pool's time.
    pub(crate) suspended_until: Mutex<Option<Time>>,
    /// The error of the last request; empty after a success.
    pub(crate) last_error: Mutex<Option<String>>,
    /// Whether the forwarder answered `retry in: never`. It is not probed then.
    pub(crate) declined: AtomicBool,
    /// The `tracker id` that the forwarder wants back with every announce.
    pub(crate) tracker_id: Mutex<Option<Vec<u8>>>,
    pub(crate) counters: ForwarderCounters,
    pub(crate) score: Score,
    pub(crate) latency: Latency,
    /// The address of a UDP forwarder that responded last.
    pub(crate) responding_address: Mutex<Option<SocketAddr>>,
}

/// Counters of one forwarder.
#[derive(Debug, Default)]
pub(crate) struct ForwarderCounters {
    /// Requests sent, including retries and events.
    pub(crate) requests: Count,
    /// Responses received.
    pub(crate) answers: Count,
    /// Requests that failed.
    pub(crate) failures: Count,
    /// Peers that this forwarder was the first to report.
    pub(crate) contributed: Count,
    /// The total time of all responses, in microseconds.
    pub(crate) micros: Count,
    /// The interval of the last response.
    pub(crate) interval: Mutex<Option<Duration>>,
}

/// The status of a forwarder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Status {
    Active = 0,
    Suspended = 1,
    Probation = 2,
    Disabled = 3,
    /// No longer listed.
    Retired = 4,
}

impl Status {
    /// The statuses of a listed forwarder.
    pub(crate) const LISTED: [Status; 4] = [
        Status::Active,
        Status::Suspended,
        Status::Probation,
        Status::Disabled,
    ];

    /// Returns the name in metrics, statistics and the console.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Status::Active => "active",
            Status::Suspended => "suspended",
            Status::Probation => "probation",
            Status::Disabled => "disabled",
            Status::Retired => "retired",
        }
    }
}

impl ForwarderState {
    /// Creates the state of a listed forwarder; `None` if its URI is invalid.
    pub(crate) fn new(forwarder: &Forwarder, name: &str) -> Option<ForwarderState> {
        forwarder.check().ok()?;
        Some(ForwarderState {
            name: name.to_owned(),
            uri: forwarder.parsed()?,
            ip: forwarder.ip,
            host: forwarder.host.clone(),
            status: AtomicU8::new(0),
            suspended_until: Mutex::default(),
            last_error: Mutex::default(),
            declined: AtomicBool::default(),
            tracker_id: Mutex::default(),
            counters: ForwarderCounters::default(),
            score: Score::default(),
            latency: Latency::default(),
            responding_address: Mutex::default(),
        })
    }

    /// Whether this is the state of a forwarder that is listed under that name.
    pub(crate) fn matches(&self, forwarder: &Forwarder, name: &str) -> bool {
        let same_uri = forwarder.parsed().is_some_and(|uri| uri == self.uri);
        same_uri && self.name == name && self.ip == forwarder.ip && self.host == forwarder.host
    }

    pub(crate) fn status(&self) -> Status {
        let number = usize::from(self.status.load(Ordering::Relaxed));
        Status::LISTED
            .get(number)
            .copied()
            .unwrap_or(Status::Retired)
    }

    /// Whether announces may be forwarded to it now.
    pub(crate) fn is_usable(&self) -> bool {
        matches!(self.status(), Status::Active | Status::Probation)
    }

    /// Mirrors the state that the pool gave its target, so that reading it needs no pool lock.
    pub(crate) fn set_status(&self, state: TargetState) {
        let (status, until) = match state {
            TargetState::Active => (Status::Active, None),
            TargetState::Suspended { until } => (Status::Suspended, Some(until)),
            TargetState::Probation => (Status::Probation, None),
            TargetState::Disabled {
                reason: Disabled::Configured,
            } => (Status::Retired, None),
            TargetState::Disabled { .. } => (Status::Disabled, None),
        };
        self.status.store(status as u8, Ordering::Relaxed);
        *self.suspended_until.lock() = until;
    }

    pub(crate) fn is_udp(&self) -> bool {
        self.uri.scheme_str() == Some("udp")
    }
}
