//! Two coordinated round queues whose nodes are jobs of the walk, with a model of their own.
//!
//! Nodes end as their jobs do: done, failed, shed, expired, cancelled, lost. The model counts
//! declared and ended nodes. A round must close exactly when the two are equal, and neither side
//! may pass the limits of the coordinator.

use super::choices::Choices;
use crate::audit::{JobNumber, Violation};
use headworks_core::rounds::{Advanced, Discovered, LeaseId, Loaded, Rounds, Settled, State};
use headworks_core::{Coordinator, Side, Time};
use std::collections::BTreeMap;
use std::time::Duration;

const MAX_DEPTH: u32 = 6;
const SIDES: [Side; 2] = [Side::Leader, Side::Follower];

#[derive(Default)]
struct SideModel {
    /// Nodes declared and ended, by round.
    rounds: BTreeMap<u32, (u64, u64)>,
    /// Nodes in the store, by round: declared by count and not loaded yet.
    stored: BTreeMap<u32, u64>,
}

pub(super) struct Sides {
    rounds: [Rounds<u32>; 2],
    books: [SideModel; 2],
    coordinator: Coordinator,
    lag: u32,
    max_lead: u32,
    /// The nodes that are jobs now.
    leased: BTreeMap<JobNumber, (usize, LeaseId, u32)>,
    /// Whether children are paged in from a store or kept in memory.
    paged: bool,
    pub(super) notes: Vec<&'static str>,
}

impl Sides {
    pub(super) fn new(rng: &mut Choices) -> Self {
        let lag = 1 + rng.below(3) as u32;
        let max_lead = lag + rng.below(3) as u32;
        let mut sides = Sides {
            rounds: [Rounds::default(), Rounds::default()],
            books: [SideModel::default(), SideModel::default()],
            coordinator: Coordinator::new(lag, max_lead).expect("the lead is at least the lag"),
            lag,
            max_lead,
            leased: BTreeMap::new(),
            paged: rng.below(2) == 0,
            notes: Vec::new(),
        };
        sides.seed(0, Time::ZERO);
        sides
    }

    fn seed(&mut self, side: usize, now: Time) {
        self.books[side].rounds.insert(0, (1, 0));
        let seeded = self.rounds[side].seed(now, vec![0].into());
        seeded.expect("a side is seeded once");
    }

    /// Leases a node for the job `number`, if a side has one.
    pub(super) fn next(&mut self, now: Time, number: JobNumber) -> Result<bool, Violation> {
        self.advance(now)?;
        for side in 0..2 {
            self.page_in(side);
            if let Some(lease) = self.rounds[side].next(now) {
                let open = self.open_round(side);
                if open != Some(lease.round) {
                    let what = format!(
                        "a node of round {} was leased, open is {open:?}",
                        lease.round
                    );
                    return Err(Violation { at: now, what });
                }
                self.leased.insert(number, (side, lease.id, lease.round));
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The first round that has not closed.
    fn open_round(&self, side: usize) -> Option<u32> {
        let rounds = &self.books[side].rounds;
        rounds
            .iter()
            .find(|(_, (declared, ended))| ended < declared)
            .map(|(round, _)| *round)
    }

    fn page_in(&mut self, side: usize) {
        let Some(want) = self.rounds[side].wants() else {
            return;
        };
        let stored = self.books[side].stored.entry(want.round).or_default();
        let page = (*stored).min(want.room as u64).min(2);
        if let Loaded::Taken(taken) =
            self.rounds[side].load(want.round, (0..page).map(|_| want.round))
        {
            *stored -= taken as u64;
        }
    }

    /// Ends the node of a job, if it was one.
    pub(super) fn ended(
        &mut self,
        now: Time,
        number: JobNumber,
        done: bool,
        rng: &mut Choices,
    ) -> Result<(), Violation> {
        let Some((side, lease, round)) = self.leased.remove(&number) else {
            return Ok(());
        };
        let children = if done && round < MAX_DEPTH {
            rng.below(3)
        } else {
            0
        };
        let settled = match done {
            true => {
                let found = match self.paged {
                    true => Discovered::Count(children),
                    false => Discovered::Nodes(vec![round + 1; children as usize]),
                };
                self.rounds[side].finish(now, lease, found)
            }
            false if rng.below(2) == 0 => {
                self.rounds[side].retry(now, lease, now + Duration::from_millis(200))
            }
            false => self.rounds[side].fail(now, lease),
        };
        self.notes.push(match settled {
            Settled::Done { .. } => "node done",
            Settled::Failed { .. } => "node failed",
            Settled::Delayed(_) => "node delayed",
            Settled::Stale => "node stale",
        });
        if let Settled::Delayed(_) = settled {
            return Ok(());
        }
        let book = &mut self.books[side];
        if children > 0 {
            book.rounds.entry(round + 1).or_default().0 += children;
            if self.paged {
                *book.stored.entry(round + 1).or_default() += children;
            }
        }
        let (declared, ended) = book
            .rounds
            .get_mut(&round)
            .expect("a leased node was declared");
        *ended += 1;
        let expected = ended == declared;
        match settled {
            Settled::Done { closed } | Settled::Failed { closed } if closed == expected => Ok(()),
            _ => Err(Violation {
                at: now,
                what: format!(
                    "round {round} of side {side}: {settled:?}, but all ended: {expected}"
                ),
            }),
        }
    }

    /// Advances both sides as far as they are permitted, and checks that they do not go further.
    fn advance(&mut self, now: Time) -> Result<(), Violation> {
        for (index, side) in SIDES.into_iter().enumerate() {
            self.rounds[index].tick(now);
            self.coordinator.report(side, self.rounds[index].position());
        }
        if !self.rounds[1].is_seeded() && self.coordinator.may_start(0) {
            self.seed(1, now);
            self.coordinator
                .report(Side::Follower, self.rounds[1].position());
        }
        for (index, side) in SIDES.into_iter().enumerate() {
            let Some(leave) = self.coordinator.leave(side) else {
                continue;
            };
            if let Advanced::Entered(round) = self.rounds[index].advance(now, leave) {
                self.notes.push("round entered");
                self.within_bounds(now, side, round)?;
            }
            self.coordinator.report(side, self.rounds[index].position());
        }
        for index in 0..2 {
            let completed = self.rounds[index].state() == State::Completed;
            if completed && self.open_round(index).is_some() {
                return Err(Violation {
                    at: now,
                    what: format!("side {index} is complete with work left"),
                });
            }
            if completed {
                self.notes.push("side completed");
            }
        }
        Ok(())
    }

    fn within_bounds(&self, now: Time, side: Side, round: u32) -> Result<(), Violation> {
        let [leader, follower] = [self.rounds[0].position(), self.rounds[1].position()];
        let far = match side {
            Side::Leader => !follower.is_done() && round > follower.round + self.max_lead,
            Side::Follower => !leader.is_done() && leader.round + 1 < round + self.lag,
        };
        if far {
            let what =
                format!("{side:?} entered round {round}: leader {leader:?}, follower {follower:?}");
            return Err(Violation { at: now, what });
        }
        Ok(())
    }
}
