//! How far two sides that walk the same tree may be apart.
//!
//! The leader must have listed a folder before the follower compares it, and should not run so far
//! ahead that what it found fills memory or grows old. [`Coordinator`] knows the last reported
//! [`Position`] of both sides and is all that they share. Positions only move forward within a
//! pass, and each step forward only widens what the other side may do, so leave that was given
//! stays good.

use crate::rounds::{Leave, Position, RoundsError, State};

/// One of two coordinated sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Side {
    /// Goes first: the source of a migration.
    Leader,
    /// Stays behind: the destination.
    Follower,
}

/// Gives leave to enter rounds.
///
/// The follower enters round N+1 when the leader is in round N+`lag` or beyond and has closed round
/// N+1, or is complete. The leader is at most `max_lead` rounds ahead while the follower still has
/// work; a follower that is complete or stopped never holds it.
///
/// Neither waits for the other at the same time: the leader is held only while it is `max_lead`
/// ahead, and that is at least `lag`, which is all the follower needs.
///
/// ```
/// use headworks_core::{Coordinator, rounds::RoundsError};
///
/// assert!(Coordinator::new(1, 1).is_ok());
/// let refused = Coordinator::new(3, 2).unwrap_err();
/// assert!(refused.to_string().contains("raise max_lead to at least 3"));
/// ```
#[derive(Clone, Debug)]
pub struct Coordinator {
    lag: u32,
    max_lead: u32,
    leader: Position,
    follower: Position,
}

impl Default for Coordinator {
    /// A lag of 3, a lead of at most 4.
    fn default() -> Self {
        Coordinator {
            lag: 3,
            max_lead: 4,
            leader: Position::default(),
            follower: Position::default(),
        }
    }
}

impl Coordinator {
    /// Both sides waiting to be seeded.
    ///
    /// # Errors
    /// When `lag` is 0, or `max_lead` is less than `lag`: both sides would end up waiting.
    pub fn new(lag: u32, max_lead: u32) -> Result<Self, RoundsError> {
        if lag == 0 {
            return Err(RoundsError::NoLag);
        }
        if max_lead < lag {
            return Err(RoundsError::LeadBelowLag { lag, max_lead });
        }
        Ok(Coordinator {
            lag,
            max_lead,
            ..Coordinator::default()
        })
    }

    /// Begins a later pass, in which the follower is going to start at `follower_depth`. Both sides
    /// count as waiting until they report, the follower as waiting there: held to round 0 instead,
    /// a leader that starts deep down could wait for a follower that waits for it.
    pub fn begin_pass(&mut self, follower_depth: u32) {
        self.leader = Position::default();
        self.follower = Position {
            round: follower_depth,
            ..Position::default()
        };
    }

    /// Records the position of a side. Call it whenever
    /// [`Rounds::position`](crate::Rounds::position) has changed, and then ask for the other side's
    /// leave again.
    ///
    /// A side that is not seeded has no position: its report is ignored, and what
    /// [`begin_pass`](Self::begin_pass) said of it stays.
    pub fn report(&mut self, side: Side, position: Position) {
        // Such rounds stand at 0, which says nothing about where their pass will start. Taken for a
        // position, it holds a leader that resumes deep down, and the follower waits for that
        // leader.
        if position.state == State::Waiting {
            return;
        }
        match side {
            Side::Leader => self.leader = position,
            Side::Follower => self.follower = position,
        }
    }

    /// The last reported position of a side.
    #[must_use]
    pub fn position(&self, side: Side) -> Position {
        match side {
            Side::Leader => self.leader,
            Side::Follower => self.follower,
        }
    }

    /// Whether the follower may begin at `depth`: at 0 once the leader has closed round 0, deeper
    /// down when it could have entered that round.
    #[must_use]
    pub fn may_start(&self, depth: u32) -> bool {
        match depth.checked_sub(1) {
            None => self.leader.has_closed(0),
            Some(above) => self.follower_may_leave(above),
        }
    }

    /// Leave for a side to enter the round after the one it reported, if it has closed that one and
    /// the other side is where it must be.
    #[must_use]
    pub fn leave(&self, side: Side) -> Option<Leave> {
        let position = self.position(side);
        let ready = position.state == State::Running && position.closed;
        let may = match side {
            Side::Leader => self.leader_may_leave(position.round),
            Side::Follower => self.follower_may_leave(position.round),
        };
        (ready && may).then(|| Leave::beyond(position))
    }

    fn leader_may_leave(&self, round: u32) -> bool {
        let lead = round.saturating_sub(self.follower.round);
        self.follower.is_done() || lead < self.max_lead
    }

    fn follower_may_leave(&self, round: u32) -> bool {
        // With a lag of 1 the leader may be in that very round: what it has not listed yet would be
        // unknown to the follower, which could then end before it.
        let next = round.saturating_add(1);
        let far_enough = self.leader.round >= round.saturating_add(self.lag);
        self.leader.state == State::Completed || far_enough && self.leader.has_closed(next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(round: u32, state: State) -> Position {
        Position {
            round,
            closed: true,
            state,
        }
    }

    fn coordinator(leader: Position, follower: Position) -> Coordinator {
        let mut c = Coordinator::default();
        c.report(Side::Leader, leader);
        c.report(Side::Follower, follower);
        c
    }

    #[test]
    fn settings_that_would_deadlock_are_refused() {
        assert_eq!(Coordinator::new(0, 4).err(), Some(RoundsError::NoLag));
        assert!(Coordinator::new(3, 2).is_err());
        for lag in 1..9 {
            assert!(Coordinator::new(lag, lag).is_ok());
        }
    }

    #[test]
    fn the_follower_keeps_its_distance() {
        let c = coordinator(at(4, State::Running), at(2, State::Running));
        assert_eq!(c.leave(Side::Follower), None);
        let c = coordinator(at(5, State::Running), at(2, State::Running));
        assert_eq!(c.leave(Side::Follower).map(Leave::round), Some(3));
        let c = coordinator(at(2, State::Completed), at(2, State::Running));
        assert_eq!(c.leave(Side::Follower).map(Leave::round), Some(3));
        let c = coordinator(at(2, State::Stopped), at(2, State::Running));
        assert_eq!(c.leave(Side::Follower), None);
    }

    #[test]
    fn the_follower_never_enters_a_round_that_the_leader_has_not_closed() {
        let mut c = Coordinator::new(1, 1).expect("a lag of 1 is allowed");
        c.report(Side::Follower, at(2, State::Running));
        let open = Position {
            closed: false,
            ..at(3, State::Running)
        };
        c.report(Side::Leader, open);
        assert_eq!(c.leave(Side::Follower), None);
        assert!(!c.may_start(3));
        c.report(Side::Leader, at(3, State::Running));
        assert_eq!(c.leave(Side::Follower).map(Leave::round), Some(3));
        assert!(c.may_start(3));
        assert_eq!(c.leave(Side::Leader), None);
    }

    #[test]
    fn the_leader_is_held_only_by_a_follower_with_work() {
        let c = coordinator(at(4, State::Running), at(0, State::Running));
        assert_eq!(c.leave(Side::Leader), None);
        for done in [State::Completed, State::Stopped] {
            let c = coordinator(at(4, State::Running), at(0, done));
            assert_eq!(c.leave(Side::Leader).map(Leave::round), Some(5));
        }
        let c = coordinator(at(4, State::Running), at(0, State::Paused));
        assert_eq!(c.leave(Side::Leader), None);
    }

    #[test]
    fn a_pass_that_starts_deep_down_does_not_deadlock() {
        let mut c = Coordinator::default();
        c.begin_pass(6);
        c.report(Side::Leader, at(5, State::Running));
        assert!(!c.may_start(6));
        assert_eq!(c.leave(Side::Leader).map(Leave::round), Some(6));
        c.begin_pass(2);
        c.report(Side::Leader, at(12, State::Running));
        assert_eq!(c.leave(Side::Leader), None);
        assert!(c.may_start(2));
    }

    #[test]
    fn a_side_that_is_not_seeded_has_no_position_to_report() {
        let mut c = Coordinator::default();
        c.begin_pass(7);
        c.report(Side::Leader, at(8, State::Running));
        c.report(Side::Follower, Position::default());
        assert_eq!(c.position(Side::Follower).round, 7);
        assert_eq!(c.leave(Side::Leader).map(Leave::round), Some(9));
    }

    #[test]
    fn the_follower_starts_when_the_leader_has_closed_round_0() {
        let mut c = Coordinator::default();
        assert!(!c.may_start(0));
        let mut open = at(0, State::Running);
        open.closed = false;
        c.report(Side::Leader, open);
        assert!(!c.may_start(0));
        c.report(Side::Leader, at(0, State::Running));
        assert!(c.may_start(0) && !c.may_start(1));
        c.report(Side::Leader, at(3, State::Running));
        assert!(c.may_start(1) && !c.may_start(2));
    }
}
