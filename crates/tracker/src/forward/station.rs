//! A forwarder at work: where it is, how it is, and what it has done.

use super::worth::Worth;
use crate::counters::Count;
use crate::forwarders::Forwarder;
use headworks_core::{Disabled, TargetState, Time};
use http::Uri;
use parking_lot::Mutex;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

/// A forwarder.
pub(crate) struct Station {
    pub(crate) name: String,
    /// May hold a passkey: for asking, never for showing.
    pub(crate) uri: Uri,
    pub(crate) ip: Option<IpAddr>,
    pub(crate) host: Option<String>,
    status: AtomicU8,
    /// When a suspension ends, in the pool's time.
    pub(crate) until: Mutex<Option<Time>>,
    /// The last thing that went wrong, in words.
    pub(crate) trouble: Mutex<Option<String>>,
    /// Whether it said that it never wants to be asked again.
    pub(crate) never: std::sync::atomic::AtomicBool,
    /// What it wants to be sent back with every announce.
    pub(crate) tracker_id: Mutex<Option<Vec<u8>>>,
    pub(crate) numbers: Numbers,
    pub(crate) worth: Worth,
}

/// What a forwarder has done.
#[derive(Debug, Default)]
pub(crate) struct Numbers {
    /// Requests that went out, attempts and events included.
    pub(crate) requests: Count,
    /// Answers with peers.
    pub(crate) answers: Count,
    /// Requests that failed.
    pub(crate) failures: Count,
    /// Peers that it was the first to name.
    pub(crate) contributed: Count,
    /// All answers' time, in microseconds.
    pub(crate) micros: Count,
    /// The interval of its last answer.
    pub(crate) interval: Mutex<Option<Duration>>,
}

/// How a forwarder is.
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
    /// What a listed forwarder can be.
    pub(crate) const LISTED: [Status; 4] = [
        Status::Active,
        Status::Suspended,
        Status::Probation,
        Status::Disabled,
    ];

    pub(crate) fn word(self) -> &'static str {
        match self {
            Status::Active => "active",
            Status::Suspended => "suspended",
            Status::Probation => "probation",
            Status::Disabled => "disabled",
            Status::Retired => "retired",
        }
    }
}

impl Station {
    /// The forwarder as it is listed; nothing if its address makes no sense.
    pub(crate) fn new(forwarder: &Forwarder, name: &str) -> Option<Station> {
        forwarder.check().ok()?;
        Some(Station {
            name: name.to_owned(),
            uri: forwarder.parsed()?,
            ip: forwarder.ip,
            host: forwarder.host.clone(),
            status: AtomicU8::new(0),
            until: Mutex::default(),
            trouble: Mutex::default(),
            never: Default::default(),
            tracker_id: Mutex::default(),
            numbers: Numbers::default(),
            worth: Worth::default(),
        })
    }

    /// Whether this is the forwarder as it is listed, under that name.
    pub(crate) fn is(&self, forwarder: &Forwarder, name: &str) -> bool {
        let at = forwarder.parsed().is_some_and(|uri| uri == self.uri);
        at && self.name == name && self.ip == forwarder.ip && self.host == forwarder.host
    }

    pub(crate) fn status(&self) -> Status {
        let number = usize::from(self.status.load(Ordering::Relaxed));
        Status::LISTED
            .get(number)
            .copied()
            .unwrap_or(Status::Retired)
    }

    /// Whether it may be asked.
    pub(crate) fn is_usable(&self) -> bool {
        matches!(self.status(), Status::Active | Status::Probation)
    }

    /// The pool changed its state.
    pub(crate) fn follow(&self, state: TargetState) {
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
        *self.until.lock() = until;
    }

    pub(crate) fn is_udp(&self) -> bool {
        self.uri.scheme_str() == Some("udp")
    }
}
