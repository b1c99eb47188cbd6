//! The runtime state of a forwarder: its address, its status and its counters.

use super::host::Host;
use super::latency::Latency;
use super::list::Forwarder;
use super::rejections::Rejections;
use super::score::Score;
use super::secrets::{redact, repeats_secret};
use crate::address_scope::AddressScope;
use crate::counters::Count;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use headworks_core::{Disabled, TargetId, TargetState, Time};
use headworks_tracker_wire::percent_decode;
use http::{HeaderValue, Uri};
use parking_lot::Mutex;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::time::Duration;
use tokio::time::Instant;

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
    /// Whether only public lists name it, so that it may have public addresses only.
    pub(crate) published: bool,
    /// The `Authorization` header, from the user and password in the URI.
    pub(crate) authorization: Option<HeaderValue>,
    status: AtomicU8,
    /// The end of a suspension, in the pool's time.
    pub(crate) suspended_until: Mutex<Option<Time>>,
    /// The time of the next probe, if the forwarder is disabled.
    pub(crate) next_probe: Mutex<Option<Instant>>,
    /// The error of the last request; empty after a success.
    pub(crate) last_error: Mutex<Option<String>>,
    /// Whether the forwarder answered `retry in: never`. It is not probed then.
    pub(crate) declined: AtomicBool,
    /// The `tracker id` that the forwarder wants back with every announce.
    pub(crate) tracker_id: Mutex<Option<Vec<u8>>>,
    pub(crate) counters: ForwarderCounters,
    pub(crate) score: Score,
    pub(crate) latency: Latency,
    pub(crate) rejections: Rejections,
    responsiveness: Mutex<Responsiveness>,
    /// Whether the forwarder has responded since the start or since it was last suspended for
    /// silence.
    responds: AtomicBool,
    /// Whether a forward is on its way to find out.
    probed: AtomicBool,
    /// The address of a UDP forwarder that responded last.
    pub(crate) responding_address: Mutex<Option<SocketAddr>>,
    /// The address that the last response came from, unless that was a proxy.
    pub(crate) last_address: Mutex<Option<IpAddr>>,
}

/// The part of a forwarder that tells it from others. A listed forwarder with the same address
/// keeps its id and its state.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ForwarderAddress {
    name: String,
    uri: Uri,
    authorization: Option<HeaderValue>,
    ip: Option<IpAddr>,
    host: Option<String>,
    published: bool,
}

impl ForwarderAddress {
    /// Returns the address of a listed forwarder; `None` if its URI is invalid.
    pub(crate) fn new(forwarder: &Forwarder, name: &str) -> Option<ForwarderAddress> {
        let uri = forwarder.parsed()?;
        Some(ForwarderAddress {
            name: name.to_owned(),
            authorization: authorization(&uri),
            uri: without_user(&uri)?,
            ip: forwarder.ip,
            host: forwarder.host.clone(),
            published: forwarder.published,
        })
    }
}

/// Returns a URI without the user and password before its host.
pub(crate) fn without_user(uri: &Uri) -> Option<Uri> {
    let mut parts = uri.clone().into_parts();
    let authority = parts.authority?;
    let host_and_port = authority.as_str().rsplit('@').next()?;
    parts.authority = Some(host_and_port.parse().ok()?);
    Uri::from_parts(parts).ok()
}

/// Returns the header for the user and password in a URI.
pub(crate) fn authorization(uri: &Uri) -> Option<HeaderValue> {
    let (user, _) = uri.authority()?.as_str().rsplit_once('@')?;
    let mut plain = vec![0; user.len()];
    // A plus sign stands for itself before the host, unlike in a query.
    let user = user.replace('+', "%2B");
    let length = percent_decode(user.as_bytes(), &mut plain)?;
    let encoded = BASE64_STANDARD.encode(&plain[..length]);
    let mut header = HeaderValue::try_from(format!("Basic {encoded}")).ok()?;
    header.set_sensitive(true);
    Some(header)
}

/// The longest suspension of a silent forwarder.
const MAX_SUSPENSION: Duration = Duration::from_secs(3600);

/// The recent responses and silences of a forwarder.
#[derive(Debug, Default)]
struct Responsiveness {
    last_response: Option<Instant>,
    /// Requests without a response since the last one with a response.
    silences: u32,
    /// Suspensions for silence since the last response.
    suspensions: u32,
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
            uri: without_user(&forwarder.parsed()?)?,
            authorization: authorization(&forwarder.parsed()?),
            ip: forwarder.ip,
            host: forwarder.host.clone(),
            published: forwarder.published,
            status: AtomicU8::new(0),
            suspended_until: Mutex::default(),
            next_probe: Mutex::default(),
            last_error: Mutex::default(),
            declined: AtomicBool::default(),
            tracker_id: Mutex::default(),
            counters: ForwarderCounters::default(),
            score: Score::default(),
            latency: Latency::default(),
            rejections: Rejections::default(),
            responsiveness: Mutex::default(),
            responds: AtomicBool::default(),
            probed: AtomicBool::default(),
            responding_address: Mutex::default(),
            last_address: Mutex::default(),
        })
    }

    /// Returns the part that tells it from other forwarders.
    pub(crate) fn address(&self) -> ForwarderAddress {
        ForwarderAddress {
            name: self.name.clone(),
            uri: self.uri.clone(),
            authorization: self.authorization.clone(),
            ip: self.ip,
            host: self.host.clone(),
            published: self.published,
        }
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

    /// Whether the forwarder is not known to respond. It is then asked for one torrent at a time.
    pub(crate) fn needs_probe(&self) -> bool {
        !self.responds.load(Ordering::Relaxed) || self.status() == Status::Probation
    }

    /// Whether a forward is on its way to find out.
    pub(crate) fn is_probed(&self) -> bool {
        self.probed.load(Ordering::Relaxed)
    }

    /// Begins a probe. Returns `false` if there is one already.
    pub(crate) fn try_begin_probe(&self) -> bool {
        !self.probed.swap(true, Ordering::Relaxed)
    }

    pub(crate) fn end_probe(&self) {
        self.probed.store(false, Ordering::Relaxed);
    }

    /// Returns the time of the last response.
    pub(crate) fn last_response(&self) -> Option<Instant> {
        self.responsiveness.lock().last_response
    }

    /// Records a response. Returns whether the forwarder was not known to respond.
    pub(crate) fn record_response(&self) -> bool {
        *self.responsiveness.lock() = Responsiveness {
            last_response: Some(Instant::now()),
            ..Responsiveness::default()
        };
        !self.responds.swap(true, Ordering::Relaxed)
    }

    /// Records a request without a response. Returns the time for which the forwarder is to be
    /// suspended, which doubles each time: at once if it is not known to respond, or else after
    /// `threshold` silences in a row.
    pub(crate) fn record_silence(&self, threshold: u32, suspend: Duration) -> Option<Duration> {
        let probed = self.needs_probe();
        let mut state = self.responsiveness.lock();
        state.silences += 1;
        if !probed && state.silences < threshold {
            return None;
        }
        let pause = suspend.saturating_mul(1 << state.suspensions.min(16));
        state.suspensions += 1;
        self.responds.store(false, Ordering::Relaxed);
        Some(pause.min(MAX_SUSPENSION.max(suspend)))
    }

    /// Takes back what silences did to the forwarder, because our own network was down.
    pub(crate) fn forgive(&self) {
        let mut state = self.responsiveness.lock();
        (state.silences, state.suspensions) = (0, 0);
        let responded = state.last_response.is_some();
        self.responds.store(responded, Ordering::Relaxed);
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

    /// Returns the host of its URI, in the form that all ways to write it share.
    pub(crate) fn host(&self) -> String {
        Host::parse(self.uri.host().unwrap_or_default()).to_string()
    }

    /// Returns the scope of its address: of the one that responded last, or else as far as its URI
    /// tells.
    pub(crate) fn scope(&self) -> AddressScope {
        let host = || Host::parse(self.uri.host().unwrap_or_default()).scope();
        self.last_address.lock().map_or_else(host, AddressScope::of)
    }

    /// Returns a text that forwarders of one owner often share.
    pub(crate) fn network(&self) -> String {
        Host::parse(self.uri.host().unwrap_or_default()).network()
    }

    /// Returns a text that the forwarder sent, fit to be shown: without its secrets.
    pub(crate) fn redact(&self, text: &str) -> String {
        redact(&self.uri, self.authorization.as_ref(), text)
    }

    /// Whether a redirect carries a part of the URI that may be a passkey.
    pub(crate) fn is_secret_in(&self, redirect: &Uri) -> bool {
        repeats_secret(&self.uri, self.authorization.as_ref(), redirect)
    }

    pub(crate) fn is_udp(&self) -> bool {
        self.uri.scheme_str() == Some("udp")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_silent_forwarder_is_suspended_with_growing_pauses() {
        let forwarder = ForwarderState::new(&Forwarder::at("udp://a.example:1"), "a").unwrap();
        let minutes = |minutes: u64| Some(Duration::from_secs(minutes * 60));
        let silence = || forwarder.record_silence(3, Duration::from_secs(300));
        assert_eq!(silence(), minutes(5), "it has never responded");
        assert_eq!(silence(), minutes(10));
        assert_eq!(silence(), minutes(20));
        for _ in 0..40 {
            silence();
        }
        assert_eq!(silence(), minutes(60), "never longer");
        assert!(forwarder.record_response() && !forwarder.needs_probe());
        assert_eq!(
            (silence(), silence()),
            (None, None),
            "a response may get lost"
        );
        assert_eq!(silence(), minutes(5), "three in a row");
        assert!(forwarder.needs_probe());
        forwarder.forgive();
        assert!(!forwarder.needs_probe() && silence().is_none());
    }

    #[test]
    fn user_and_password_are_sent_as_a_header() {
        let at = |uri| ForwarderState::new(&Forwarder::at(uri), "a").unwrap();
        let state = at("http://me:p%40ss+word@a.example:81/announce");
        assert_eq!(state.uri, "http://a.example:81/announce");
        let header = state.authorization.unwrap();
        assert_eq!(header, "Basic bWU6cEBzcyt3b3Jk", "me:p@ss+word");
        assert!(at("http://a.example/").authorization.is_none());
    }

    #[test]
    fn one_probe_is_on_its_way_at_a_time() {
        let forwarder = ForwarderState::new(&Forwarder::at("udp://a.example:1"), "a").unwrap();
        assert!(forwarder.needs_probe() && forwarder.try_begin_probe());
        assert!(!forwarder.try_begin_probe() && forwarder.is_probed());
        forwarder.end_probe();
        assert!(forwarder.try_begin_probe());
    }
}
