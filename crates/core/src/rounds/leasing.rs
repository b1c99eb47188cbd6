//! Handing out the nodes of the current round, and taking back what became of them.
//!
//! A node is leased to one worker at a time and ends in exactly one of done and failed. Children
//! are declared in the call that ends their parent: declared later, the round below could already
//! have closed without them.

use super::{Discovered, Lease, LeaseId, Rounds, Settled, State};
use crate::Time;
use std::time::Duration;

impl<N: Clone> Rounds<N> {
    /// The node to work on now: a retry whose time has come, else the oldest that is ready.
    pub fn next(&mut self, now: Time) -> Option<Lease<N>> {
        self.see(now);
        if self.state != State::Running {
            return None;
        }
        let (id, attempt, node) = self.window.lease()?;
        Some(Lease {
            id,
            round: self.current.round,
            attempt,
            node,
        })
    }

    /// Ends a node well, and declares its children in the next round.
    pub fn finish(&mut self, now: Time, lease: LeaseId, discovered: Discovered<N>) -> Settled {
        self.see(now);
        if self.window.take(lease).is_none() {
            return Settled::Stale;
        }
        self.add_later(self.current.round + 1, discovered);
        self.current.ended += 1;
        Settled::Done {
            closed: self.close_if_ended(),
        }
    }

    /// Ends a node without success. The round goes on and closes without it.
    pub fn fail(&mut self, now: Time, lease: LeaseId) -> Settled {
        self.see(now);
        if self.window.take(lease).is_none() {
            return Settled::Stale;
        }
        self.end_failed()
    }

    /// Tries a node again in this round, not before `at`. If `at` lies beyond the node's retry
    /// budget, it fails now: waiting for it would only hold the round.
    ///
    /// ```
    /// use headworks_core::rounds::{Discovered, Rounds, Settled};
    /// use headworks_core::Time;
    ///
    /// let mut rounds = Rounds::default();
    /// rounds.seed(Time::ZERO, vec!["/"].into())?;
    /// let lease = rounds.next(Time::ZERO).expect("a node");
    /// let at = Time::from_secs(2);
    /// assert_eq!(rounds.retry(Time::ZERO, lease.id, at), Settled::Delayed(at));
    /// assert!(rounds.next(Time::from_secs(1)).is_none());
    /// assert_eq!(rounds.wake_at(), Some(at));
    ///
    /// let lease = rounds.next(at).expect("its second attempt");
    /// assert_eq!(lease.attempt, 2);
    /// let settled = rounds.finish(at, lease.id, Discovered::none());
    /// assert_eq!(settled, Settled::Done { closed: true });
    /// assert!(rounds.is_completed(), "the next round is empty");
    /// # Ok::<(), headworks_core::rounds::RoundsError>(())
    /// ```
    pub fn retry(&mut self, now: Time, lease: LeaseId, at: Time) -> Settled {
        self.see(now);
        let Some(mut held) = self.window.take(lease) else {
            return Settled::Stale;
        };
        let running = self.running_time();
        let since = *held.failing_since.get_or_insert(running);
        let wait: Duration = at.since(self.now);
        if running.since(since).saturating_add(wait) > self.config.retry_budget {
            return self.end_failed();
        }
        self.current.retried += 1;
        let at = at.max(self.now);
        self.window.delay(at, held);
        self.window.promote(self.now);
        Settled::Delayed(at)
    }

    /// Takes a node back from a worker that was lost. It is tried again at once, within its budget;
    /// should the worker turn up after all, its lease is stale.
    pub fn reclaim(&mut self, now: Time, lease: LeaseId) -> Settled {
        self.retry(now, lease, now)
    }

    /// Tells the time and nothing else: for a driver that woke up at [`wake_at`](Self::wake_at) and
    /// has no worker free to take a lease.
    pub fn tick(&mut self, now: Time) {
        self.see(now);
    }

    /// When time alone will change the answer of [`next`](Self::next): the next retry's time,
    /// unless something can be leased already.
    #[must_use]
    pub fn wake_at(&self) -> Option<Time> {
        if self.state != State::Running || self.window.ready() > 0 {
            return None;
        }
        self.window.next_due()
    }

    fn end_failed(&mut self) -> Settled {
        self.current.ended += 1;
        self.current.failed += 1;
        Settled::Failed {
            closed: self.close_if_ended(),
        }
    }
}
