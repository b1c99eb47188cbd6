//! A node's share, and everything about its fleet that the rest of the gateway uses.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use headworks_core::shares::{
    Allocation, FleetLimits, NodeId, NodeShare, Observed, OnLoss, RECLAIM_AFTER, Report,
    ShareSettings, Stamp,
};
use headworks_core::{Config, Time};
use headworks_fleet::{BootInstant, NodeToken, Secrets};
use headworks_pool::Permits;
use parking_lot::Mutex;

use super::config::{FleetConfig, OnLossName};
use super::outbox::Outbox;
use super::status::FleetStatus;

/// A connection counts as lost when no exchange has succeeded for this long.
const CONNECTED_FOR: Duration = Duration::from_secs(2);

/// The part of a fleet that this process is.
pub(crate) struct Fleet {
    pub(crate) config: Arc<FleetConfig>,
    pub(crate) name: String,
    pub(crate) secrets: Secrets,
    pub(crate) clock: BootClock,
    state: Mutex<State>,
    pub(crate) outbox: Outbox,
    /// The fleet as it was described last.
    pub(crate) status: Mutex<Option<FleetStatus>>,
    pub(crate) counts: Counts,
}

struct State {
    share: NodeShare,
    limits: FleetLimits,
    /// Increases whenever `limits` changes.
    generation: u64,
    request_timeout: Duration,
    fingerprint: u64,
    /// The fleet has removed this node: it has nothing until it has joined anew.
    fenced: bool,
    /// Set once it leaves: it grants nothing any more.
    leaves: bool,
    /// When the last exchange that succeeded was sent.
    sent: Option<Time>,
    /// The time rules in force, by the allocator's clock, once it has named them.
    rules: Option<Arc<Vec<String>>>,
}

/// Numbers for metrics.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) exchanges: AtomicU64,
    pub(crate) failures: AtomicU64,
    pub(crate) publications: AtomicU64,
    pub(crate) allocates: AtomicBool,
}

/// The time on CLOCK_BOOTTIME, which goes on while the machine is suspended: a node that slept must
/// find its share expired.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BootClock(BootInstant);

impl BootClock {
    fn new() -> BootClock {
        BootClock(BootInstant::now())
    }

    pub(crate) fn now(self) -> Time {
        self.at(BootInstant::now())
    }

    pub(crate) fn at(self, instant: BootInstant) -> Time {
        Time::ZERO + instant.since(self.0)
    }
}

/// The allocator's name for a node.
pub(crate) fn node_id(token: NodeToken) -> NodeId {
    NodeId(u128::from_be_bytes(*token.as_bytes()))
}

/// The token of a node that an allocator names.
pub(crate) fn node_token(id: NodeId) -> NodeToken {
    NodeToken::from_bytes(id.0.to_be_bytes())
}

impl Fleet {
    /// A node that has not joined yet: it has nothing.
    pub(crate) fn new(config: Arc<FleetConfig>, secrets: Secrets, scheduler: &Config) -> Fleet {
        let limits = FleetLimits::from(scheduler);
        let on_loss = on_loss(&config, Duration::ZERO);
        let share = NodeShare::new(NodeId::default(), limits.clone(), on_loss);
        Fleet {
            name: config.node_name(),
            config,
            secrets,
            clock: BootClock::new(),
            state: Mutex::new(State {
                share,
                limits,
                generation: 0,
                request_timeout: Duration::ZERO,
                fingerprint: 0,
                fenced: false,
                leaves: false,
                sent: None,
                rules: None,
            }),
            outbox: Outbox::default(),
            status: Mutex::new(None),
            counts: Counts::default(),
        }
    }

    /// Shares the limits of another configuration. Called before the scheduler has it: a limit that
    /// it did not have before would otherwise be granted whole until the next allocation.
    pub(crate) fn set_limits(&self, scheduler: &Config, permits: &Permits) {
        let mut state = self.state.lock();
        let limits = FleetLimits::from(scheduler);
        if state.limits != limits {
            state.share.set_limits(limits.clone());
            state.limits = limits;
            state.generation += 1;
        }
        state.apply(self.clock, permits);
    }

    /// Takes what else of the configuration matters to the fleet.
    pub(crate) fn set_gateway(&self, request_timeout: Duration, fingerprint: u64) {
        let fingerprint = self.config.fingerprint(fingerprint);
        let mut state = self.state.lock();
        (state.request_timeout, state.fingerprint) = (request_timeout, fingerprint);
        state.generation += 1;
    }

    /// The limits that the allocator divides, if they changed since `generation`.
    pub(crate) fn limits_since(&self, generation: Option<u64>) -> Option<(u64, FleetLimits)> {
        let state = self.state.lock();
        let changed = generation != Some(state.generation);
        changed.then(|| (state.generation, state.limits.clone()))
    }

    pub(crate) fn share_settings(&self) -> ShareSettings {
        let timeout = self.state.lock().request_timeout;
        ShareSettings {
            on_loss: on_loss(&self.config, timeout),
            forget_after: self.config.forget_after,
            // As long as a call can take, and as long once more: see `on_loss`.
            leave_after: RECLAIM_AFTER + timeout * 2,
            ..ShareSettings::default()
        }
    }

    pub(crate) fn fingerprint(&self) -> u64 {
        self.state.lock().fingerprint
    }

    /// Begins as a new node, which has nothing.
    pub(crate) fn join(&self, token: NodeToken, permits: &Permits) {
        let mut state = self.state.lock();
        let on_loss = on_loss(&self.config, state.request_timeout);
        state.share = NodeShare::new(node_id(token), state.limits.clone(), on_loss);
        (state.fenced, state.sent) = (false, None);
        state.apply(self.clock, permits);
    }

    /// Goes on under another token with the share that it has: nobody has taken it.
    pub(crate) fn rejoin(&self, token: NodeToken, permits: &Permits) {
        let mut state = self.state.lock();
        state.share.rejoin(node_id(token));
        state.fenced = false;
        state.apply(self.clock, permits);
    }

    /// Grants nothing until it has joined anew: others may have its share.
    pub(crate) fn fence(&self, permits: &Permits) {
        let mut state = self.state.lock();
        state.fenced = true;
        state.apply(self.clock, permits);
    }

    pub(crate) fn report(&self, observed: &Observed) -> Report {
        let mut state = self.state.lock();
        match state.leaves {
            true => state.share.leave(observed),
            false => state.share.report(self.clock.now(), observed),
        }
    }

    /// An exchange succeeded that was sent at `sent`. Returns the stamp of the share in force.
    pub(crate) fn receive(
        &self,
        sent: BootInstant,
        allocation: Option<&Allocation>,
        permits: &Permits,
    ) -> Stamp {
        let mut state = self.state.lock();
        let (now, sent) = (self.clock.now(), self.clock.at(sent));
        state.sent = state.sent.max(Some(sent));
        if state.share.expire(now) {
            // Its buckets have filled while nothing was granted, and must be empty when the next
            // share begins.
            state.apply(self.clock, permits);
        }
        // The limits end with the deadline, which moves with every exchange.
        if state.share.receive(now, sent, allocation) || state.share.deadline().is_some() {
            state.apply(self.clock, permits);
        }
        state.share.stamp()
    }

    /// When the node stops by itself, if no exchange succeeds until then.
    pub(crate) fn deadline(&self) -> Option<Time> {
        self.state.lock().share.deadline()
    }

    /// Stops granting if the deadline has come.
    pub(crate) fn expire(&self, permits: &Permits) -> bool {
        let mut state = self.state.lock();
        let expired = state.share.expire(self.clock.now());
        if expired {
            state.apply(self.clock, permits);
            tracing::warn!(
                "cut off from the fleet: no request is granted until an exchange succeeds \
                 (`fleet.on_loss` is \"closed\")"
            );
        }
        expired
    }

    /// Begins to leave: nothing is granted from now on, before anybody is told that the share is
    /// free.
    pub(crate) fn leave(&self, permits: &Permits) {
        let mut state = self.state.lock();
        state.leaves = true;
        state.apply(self.clock, permits);
    }

    /// Whether requests can be granted here.
    pub(crate) fn is_ready(&self) -> bool {
        let state = self.state.lock();
        state.share.has_share() && !state.fenced && !state.leaves
    }

    /// The time rules in force, by the allocator's clock, once it has named them.
    pub(crate) fn rules(&self) -> Option<Arc<Vec<String>>> {
        self.state.lock().rules.clone()
    }

    /// Takes the time rules in force. Returns whether they are others.
    pub(crate) fn set_rules(&self, rules: Vec<String>) -> bool {
        let mut state = self.state.lock();
        let differs = state.rules.as_ref().is_none_or(|known| **known != rules);
        state.rules = Some(Arc::new(rules));
        differs
    }

    /// The time since the last exchange that succeeded was sent; `None` before the first one.
    pub(crate) fn age(&self) -> Option<Duration> {
        let sent = self.state.lock().sent?;
        Some(self.clock.now().since(sent))
    }

    pub(crate) fn is_connected(&self) -> bool {
        self.age().is_some_and(|age| age < CONNECTED_FOR)
    }

    pub(crate) fn allocates(&self) -> bool {
        self.counts.allocates.load(Ordering::Relaxed)
    }
}

impl State {
    /// Has the scheduler use the share in force.
    fn apply(&self, clock: BootClock, permits: &Permits) {
        // Read first: a process that is stopped in between ends its limits too early, never too
        // late.
        let now = permits.now();
        let mut limits = match self.fenced || self.leaves {
            false => self.share.local_limits(),
            true => {
                let nothing = NodeShare::new(self.share.id(), self.limits.clone(), OnLoss::Keep);
                nothing.local_limits()
            }
        };
        let left = limits.until.map(|until| until.since(clock.now()));
        limits.until = left.map(|left| now + left);
        permits.set_limits(limits);
    }
}

/// A call may take as long once more after its client has left, because the rest of its response is
/// read.
fn on_loss(config: &FleetConfig, request_timeout: Duration) -> OnLoss {
    match config.on_loss {
        OnLossName::Keep => OnLoss::Keep,
        OnLossName::Closed => OnLoss::Closed {
            request_timeout: Some(request_timeout * 2),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headworks_core::shares::{GateId, GateShare, STOP_AFTER, Share};
    use headworks_core::{Job, Limits};

    fn joined(on_loss: OnLossName) -> (Fleet, Permits) {
        let limits = Limits {
            concurrent: Some(5),
            ..Limits::default()
        };
        let scheduler = Config {
            limits,
            ..Config::default()
        };
        let permits = Permits::new(scheduler.clone()).expect("it is valid");
        let config = FleetConfig {
            on_loss,
            ..FleetConfig::default()
        };
        let secrets = Secrets::from_variables(|_| None);
        let fleet = Fleet::new(Arc::new(config), secrets, &scheduler);
        fleet.join(NodeToken::random(), &permits);
        assert!(
            permits.try_acquire(Job::new(())).is_err(),
            "it has no share yet"
        );
        let mut share = Share::default();
        let gate = GateShare {
            concurrent: Some(5),
            ..GateShare::default()
        };
        share.gates.insert(GateId::All, gate);
        let allocation = Allocation {
            stamp: Stamp {
                epoch: 1,
                number: 1,
            },
            share,
            ..Allocation::default()
        };
        fleet.receive(BootInstant::now(), Some(&allocation), &permits);
        drop(permits.try_acquire(Job::new(())).expect("it has a share"));
        (fleet, permits)
    }

    #[tokio::test]
    async fn a_node_that_leaves_grants_nothing_before_it_says_so() {
        let (fleet, permits) = joined(OnLossName::Keep);
        fleet.leave(&permits);
        assert!(permits.try_acquire(Job::new(())).is_err());
        let report = fleet.report(&permits.observe());
        assert!(
            report.leaves && report.in_force.gates.is_empty(),
            "{report:?}"
        );
    }

    /// Nobody has to look at the clock for that but the scheduler.
    #[tokio::test]
    async fn the_limits_in_force_end_with_the_deadline() {
        let (fleet, permits) = joined(OnLossName::Closed);
        let deadline = fleet.deadline().expect("it is closed");
        // Nothing calls `expire`.
        while let Ok(permit) = permits.try_acquire(Job::new(())) {
            drop(permit);
            tokio::time::sleep(Duration::from_millis(10)).await;
            assert!(fleet.clock.now() < deadline + STOP_AFTER, "it never ends");
        }
        // The clock of the permits is read first when the limits are applied, so they end a moment
        // earlier; on a busy machine that moment is longer.
        let early = deadline.since(fleet.clock.now());
        assert!(early < STOP_AFTER / 2, "it ended {early:?} too early");
    }
}
