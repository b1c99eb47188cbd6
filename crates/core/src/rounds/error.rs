//! Errors of a driver that misuses rounds.
//!
//! Each names the state that the call does not fit, and the way out. A call that returns one has
//! changed nothing. Late answers of workers are no errors: they settle as
//! [`Stale`](super::Settled::Stale).

/// A call that does not fit the state of the rounds, or settings that could never work.
///
/// ```
/// use headworks_core::rounds::{Rounds, RoundsError};
/// use headworks_core::Time;
///
/// let mut rounds = Rounds::default();
/// rounds.seed(Time::ZERO, vec!["/"].into())?;
/// let again = rounds.seed(Time::ZERO, vec!["/"].into());
/// assert_eq!(again, Err(RoundsError::AlreadySeeded));
/// # Ok::<(), RoundsError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RoundsError {
    /// Seeded a second time.
    #[error("round 0 is already seeded; declare further nodes, or start a pass when it has ended")]
    AlreadySeeded,
    /// A pass was started while another one runs.
    #[error("a pass is running in round {round}; let it complete or stop it first")]
    PassRunning {
        /// The round that is open.
        round: u32,
    },
    /// Nodes were declared or withdrawn where nothing runs.
    #[error("no pass is running; seed round 0 or start a pass first")]
    NoPass,
    /// Nodes were declared or withdrawn in a round that has closed.
    #[error("round {round} has closed; start a later pass at that depth")]
    RoundOver {
        /// The round asked for.
        round: u32,
    },
    /// More nodes were withdrawn than are still outside memory.
    #[error(
        "cannot withdraw {asked} nodes of round {round}: only {outside} of them are not in memory; settle the leased ones instead"
    )]
    NotOutside {
        /// The round asked for.
        round: u32,
        /// How many were to be withdrawn.
        asked: u64,
        /// How many could be.
        outside: u64,
    },
    /// Deeper than any tree.
    #[error("depth {depth} is deeper than {max}, the deepest round there is", max = super::MAX_ROUND)]
    TooDeep {
        /// The depth asked for.
        depth: u32,
    },
    /// A lag of 0.
    #[error("lag 0 would let the follower run beside the leader; use 1 or more")]
    NoLag,
    /// The leader would be held before the follower may go on.
    #[error(
        "max_lead {max_lead} is less than lag {lag}, so both sides would wait for each other; raise max_lead to at least {lag}"
    )]
    LeadBelowLag {
        /// How far ahead the leader must be.
        lag: u32,
        /// How far ahead the leader may be.
        max_lead: u32,
    },
}
