//! Bringing in nodes that the driver's store keeps, and changing how many there are.
//!
//! A round counts the nodes that were declared, in memory or not. The driver owns those that are
//! not: it must hand each to [`load`](Rounds::load) exactly once, and [withdraw](Rounds::withdraw)
//! those that it will not, or the round never closes.

use super::{Discovered, MAX_ROUND, Rounds, RoundsError, State};
use crate::Time;

/// Room for nodes of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Want {
    /// The round whose nodes are wanted.
    pub round: u32,
    /// How many there is room for and that are not in memory yet.
    pub room: usize,
}

/// The answer to [`Rounds::load`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Loaded {
    /// This many were taken; what is left in the iterator is asked for again later.
    Taken(usize),
    /// The round is not the current one; none was taken.
    Stale,
}

impl<N: Clone> Rounds<N> {
    /// How many nodes of which round the driver should page in: `None` while more than half of the
    /// window is in use and something is ready, so that the store is read in pages and not node by
    /// node.
    #[must_use]
    pub fn wants(&self) -> Option<Want> {
        let low = self.window.held() <= self.config.window / 2 || self.window.ready() == 0;
        if self.state != State::Running || !low {
            return None;
        }
        let room = self.room();
        (room > 0).then_some(Want {
            round: self.current.round,
            room,
        })
    }

    /// Takes nodes that were declared by count, each exactly once, as many as there is room for.
    /// Pass the iterator by `&mut` to keep the rest.
    ///
    /// ```
    /// use headworks_core::rounds::{Discovered, Loaded, Rounds};
    /// use headworks_core::Time;
    ///
    /// let mut rounds = Rounds::default();
    /// rounds.seed(Time::ZERO, Discovered::Count(3))?;
    /// let want = rounds.wants().expect("nothing is in memory yet");
    /// let mut stored = ["/a", "/b", "/c"].into_iter(); // rows of that depth
    /// assert_eq!(rounds.load(want.round, &mut stored), Loaded::Taken(3));
    /// assert_eq!(rounds.wants(), None, "all that were declared are in memory");
    /// # Ok::<(), headworks_core::rounds::RoundsError>(())
    /// ```
    pub fn load(&mut self, round: u32, nodes: impl IntoIterator<Item = N>) -> Loaded {
        let seeded = self.is_seeded();
        if !seeded || round != self.current.round || self.current.closed.is_some() {
            return Loaded::Stale;
        }
        let room = self.room();
        let mut taken = 0;
        // The room is looked at first: an iterator asked once too often would lose a node.
        let mut nodes = nodes.into_iter();
        while taken < room {
            let Some(node) = nodes.next() else { break };
            self.window.push(node);
            taken += 1;
        }
        self.loaded += taken as u64;
        Loaded::Taken(taken)
    }

    /// Declares further nodes in the current round or a later one: what is pending deeper down when
    /// a pass starts, or was added from outside.
    ///
    /// # Errors
    /// When no pass is running, or the round has closed.
    pub fn declare(
        &mut self,
        now: Time,
        round: u32,
        nodes: Discovered<N>,
    ) -> Result<(), RoundsError> {
        self.see(now);
        self.check_open(round)?;
        if round > self.current.round {
            self.add_later(round, nodes);
            return Ok(());
        }
        self.current.declared = self.current.declared.saturating_add(nodes.len());
        if let Discovered::Nodes(nodes) = nodes {
            self.loaded += nodes.len() as u64;
            for node in nodes {
                self.window.push(node);
            }
        }
        Ok(())
    }

    /// Takes back the declaration of `count` nodes that are not in memory, because the store no
    /// longer has them to give: excluded while they waited, for example. May close the round.
    ///
    /// # Errors
    /// When no pass is running, the round has closed, or fewer nodes are outside memory.
    pub fn withdraw(&mut self, now: Time, round: u32, count: u64) -> Result<(), RoundsError> {
        self.see(now);
        self.check_open(round)?;
        let outside = self.outside(round);
        if count > outside {
            let asked = count;
            return Err(RoundsError::NotOutside {
                round,
                asked,
                outside,
            });
        }
        if round == self.current.round {
            self.current.declared -= count;
        } else if let Some(later) = self.later.get_mut(&round) {
            later.declared -= count;
            if later.declared == 0 {
                self.later.remove(&round);
            }
        }
        self.close_if_ended();
        Ok(())
    }

    /// Nodes of a round that are declared and were never in memory.
    fn outside(&self, round: u32) -> u64 {
        if round == self.current.round {
            return self.current.declared - self.loaded;
        }
        let later = self.later.get(&round);
        later.map_or(0, |later| later.declared - later.nodes.len() as u64)
    }

    fn room(&self) -> usize {
        let free = self.config.window.max(1) - self.window.held().min(self.config.window.max(1));
        usize::try_from(self.outside(self.current.round)).map_or(free, |outside| free.min(outside))
    }

    fn check_open(&self, round: u32) -> Result<(), RoundsError> {
        if !matches!(self.state, State::Running | State::Paused) {
            return Err(RoundsError::NoPass);
        }
        if round > MAX_ROUND {
            return Err(RoundsError::TooDeep { depth: round });
        }
        let closed = round == self.current.round && self.current.closed.is_some();
        if round < self.current.round || closed {
            return Err(RoundsError::RoundOver { round });
        }
        Ok(())
    }
}
