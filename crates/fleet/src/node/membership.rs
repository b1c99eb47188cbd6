//! The right to act under one token.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use super::timing::Timing;
use super::token::NodeToken;
use crate::clock::BootInstant;
use crate::error::{Error, Result};
use crate::postgres::DatabaseIdentity;

/// Why a node got a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum JoinCause {
    /// It started.
    Started,
    /// It was removed, by an operator or by a node that considered it lost.
    Fenced,
    /// The database has another history: a promoted standby or a restored backup. Everything that
    /// was read from it may have changed.
    DatabaseChanged,
}

/// The actions that a node may take, by the age of its last successful heartbeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Liveness {
    /// Everything.
    Live,
    /// Finish calls in flight, and start no call that others can see.
    Stop,
    /// Nothing: calls in flight are aborted.
    Abort,
}

/// The right to act under one token, until heartbeats fail or the token is replaced.
///
/// Clones share the state. Check it before every call that others can see, and race calls in flight
/// against [`aborted`](Membership::aborted).
#[derive(Clone, Debug)]
pub struct Membership {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    token: NodeToken,
    cause: JoinCause,
    identity: DatabaseIdentity,
    timing: Timing,
    /// When the last successful heartbeat was sent.
    sent: AtomicU64,
    ended: AtomicBool,
}

impl Membership {
    pub(super) fn new(
        token: NodeToken,
        cause: JoinCause,
        identity: DatabaseIdentity,
        timing: Timing,
        sent: BootInstant,
    ) -> Membership {
        Membership {
            inner: Arc::new(Inner {
                token,
                cause,
                identity,
                timing,
                sent: AtomicU64::new(sent.as_nanos()),
                ended: AtomicBool::new(false),
            }),
        }
    }

    /// The fencing token.
    #[must_use]
    pub fn token(&self) -> NodeToken {
        self.inner.token
    }

    /// Why the node got this token.
    #[must_use]
    pub fn cause(&self) -> JoinCause {
        self.inner.cause
    }

    /// The database that the node is registered in.
    #[must_use]
    pub fn identity(&self) -> &DatabaseIdentity {
        &self.inner.identity
    }

    /// Returns what the node may do now.
    #[must_use]
    pub fn liveness(&self) -> Liveness {
        self.liveness_at(BootInstant::now())
    }

    /// Permits a call that others can see.
    ///
    /// # Errors
    /// [`Error::Fenced`] when the last successful heartbeat is too old or the token was replaced.
    pub fn check(&self) -> Result<()> {
        match self.liveness() {
            Liveness::Live => Ok(()),
            Liveness::Stop | Liveness::Abort => Err(Error::Fenced),
        }
    }

    /// Waits until calls in flight must be aborted.
    pub async fn aborted(&self) {
        while self.liveness() != Liveness::Abort {
            let age = BootInstant::now().since(self.sent());
            let left = self.inner.timing.abort_after.saturating_sub(age);
            // The runtime's clock stands still while the machine is suspended, so it is not
            // trusted for long. A token that is replaced is noticed as soon.
            let nap = left.clamp(Duration::from_millis(1), self.longest_nap());
            tokio::time::sleep(nap).await;
        }
    }

    fn longest_nap(&self) -> Duration {
        let timing = &self.inner.timing;
        (timing.lost_after - timing.abort_after) / 5
    }

    fn liveness_at(&self, now: BootInstant) -> Liveness {
        let age = now.since(self.sent());
        let timing = &self.inner.timing;
        if self.inner.ended.load(Ordering::Acquire) || age >= timing.abort_after {
            Liveness::Abort
        } else if age >= timing.stop_after {
            Liveness::Stop
        } else {
            Liveness::Live
        }
    }

    pub(super) fn sent(&self) -> BootInstant {
        BootInstant::from_nanos(self.inner.sent.load(Ordering::Acquire))
    }

    /// Records a successful heartbeat by the time at which it was sent.
    pub(super) fn renew(&self, sent: BootInstant) {
        self.inner.sent.fetch_max(sent.as_nanos(), Ordering::AcqRel);
    }

    /// Ends the membership for good.
    pub(super) fn end(&self) {
        self.inner.ended.store(true, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn membership(sent: BootInstant) -> Membership {
        let identity = DatabaseIdentity {
            system: "1".to_owned(),
            timeline: "00000001".to_owned(),
        };
        let token = NodeToken::random();
        Membership::new(token, JoinCause::Started, identity, Timing::default(), sent)
    }

    #[test]
    fn a_node_stops_at_20_s_and_aborts_at_25_s_after_sending() {
        let sent = BootInstant::now();
        let node = membership(sent);
        let at = |seconds| node.liveness_at(sent + seconds * SECOND);
        assert_eq!(at(19), Liveness::Live);
        assert_eq!(at(20), Liveness::Stop);
        assert_eq!(at(24), Liveness::Stop);
        assert_eq!(at(25), Liveness::Abort);
    }

    #[test]
    fn a_late_answer_counts_from_its_sending() {
        let sent = BootInstant::now();
        let node = membership(sent);
        // The heartbeat was sent at 7 s. When its answer arrived makes no difference.
        node.renew(sent + 7 * SECOND);
        assert_eq!(node.liveness_at(sent + 26 * SECOND), Liveness::Live);
        assert_eq!(node.liveness_at(sent + 27 * SECOND), Liveness::Stop);
        // An older one changes nothing.
        node.renew(sent + 2 * SECOND);
        assert_eq!(node.liveness_at(sent + 26 * SECOND), Liveness::Live);
    }

    #[test]
    fn a_replaced_token_is_of_no_use() {
        let node = membership(BootInstant::now());
        assert!(node.check().is_ok());
        node.end();
        assert!(matches!(node.check(), Err(Error::Fenced)));
        assert_eq!(node.liveness(), Liveness::Abort);
    }

    #[test]
    fn intervals_must_be_ordered() {
        assert!(Timing::default().check().is_ok());
        assert!(Timing::scaled(0.01).check().is_ok());
        let late = Timing {
            abort_after: Duration::from_secs(31),
            ..Timing::default()
        };
        assert!(late.check().is_err());
    }
}
