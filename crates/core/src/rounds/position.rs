//! Where a side stands, and the leave to go on.
//!
//! Both are plain values that travel between a side and its [`Coordinator`](crate::Coordinator). A
//! [`Position`] only moves forward within a pass. A [`Leave`] names its round, so a late or
//! repeated one does nothing; only a coordinator or a side without a partner may make one.

/// The state of the rounds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum State {
    /// Not seeded yet. Never to be taken for complete.
    #[default]
    Waiting,
    /// Nodes are leased.
    Running,
    /// No node is leased until resumed; those out may still settle.
    Paused,
    /// Ended before the work did.
    Stopped,
    /// The last round closed and the next one is empty.
    Completed,
}

/// How far one side has come: all that the other side needs to know of it.
///
/// ```
/// use headworks_core::rounds::{Rounds, State};
/// use headworks_core::Time;
///
/// let mut rounds = Rounds::<&str>::default();
/// assert!(!rounds.position().has_closed(0), "not seeded is not complete");
/// rounds.seed(Time::ZERO, Vec::new().into())?;
/// let position = rounds.position();
/// assert_eq!(position.state, State::Completed);
/// assert!(position.has_closed(0) && position.is_done());
/// # Ok::<(), headworks_core::rounds::RoundsError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Position {
    /// The current round.
    pub round: u32,
    /// Whether every node of it has ended.
    pub closed: bool,
    /// The state of the side.
    pub state: State,
}

impl Position {
    /// Whether every node of `round` has ended, as far as this pass goes.
    #[must_use]
    pub fn has_closed(self, round: u32) -> bool {
        self.state != State::Waiting && (self.round > round || self.round == round && self.closed)
            || self.state == State::Completed
    }

    /// Whether nothing more will come of this side by itself.
    #[must_use]
    pub fn is_done(self) -> bool {
        matches!(self.state, State::Completed | State::Stopped)
    }
}

/// Leave to enter one round, given by a [`Coordinator`](crate::Coordinator), or by nobody to a side
/// that walks alone.
///
/// It names the round, so one that comes late or twice does nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct Leave(u32);

impl Leave {
    /// Leave for a side that has nobody to wait for.
    pub fn alone(position: Position) -> Self {
        Leave::beyond(position)
    }

    pub(crate) fn beyond(position: Position) -> Self {
        Leave(position.round.saturating_add(1))
    }

    /// The round that may be entered.
    #[must_use]
    pub fn round(self) -> u32 {
        self.0
    }
}
