//! Aging: the lane heads of one class by how long they have waited.
//!
//! A head that waited too long goes next, if its gates are open. Lanes that were found blocked are set
//! aside with what blocks them, so that no later search looks at them again. When a blocker opens, only its
//! oldest lane becomes a candidate, and the next one when that has left: a blocker that opens for one job
//! costs one step.

use crate::id::{FlowId, GroupId, LaneId};
use crate::time::Time;
use std::collections::{BTreeMap, BTreeSet};

/// How old a head is: since when it waits, then its order of arrival.
pub(crate) type Age = (Time, u64);

/// What keeps a lane from being served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Blocker {
    Flow(FlowId),
    Group(GroupId),
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    age: Age,
    /// Set aside with this blocker, or a candidate that came from it.
    blocker: Option<Blocker>,
    aside: bool,
}

/// The heads of one class's lanes, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Aging {
    lanes: BTreeMap<LaneId, Entry>,
    candidates: BTreeSet<(Age, LaneId)>,
    aside: BTreeMap<Blocker, BTreeSet<(Age, LaneId)>>,
}

impl Aging {
    /// The head of a lane changed; `None` if it has no jobs.
    pub(crate) fn set_head(&mut self, lane: LaneId, age: Option<Age>) {
        if let Some(entry) = self.lanes.remove(&lane) {
            self.take_out(lane, entry);
        }
        if let Some(age) = age {
            let entry = Entry {
                age,
                blocker: None,
                aside: false,
            };
            self.lanes.insert(lane, entry);
            self.candidates.insert((age, lane));
        }
    }

    fn take_out(&mut self, lane: LaneId, entry: Entry) {
        if !entry.aside {
            self.candidates.remove(&(entry.age, lane));
            if let Some(blocker) = entry.blocker {
                self.unblock(blocker);
            }
        } else if let Some(blocker) = entry.blocker {
            let lanes = self.aside.entry(blocker).or_default();
            lanes.remove(&(entry.age, lane));
            if lanes.is_empty() {
                self.aside.remove(&blocker);
            }
        }
    }

    /// The oldest candidate.
    pub(crate) fn oldest(&self) -> Option<(Age, LaneId)> {
        self.candidates.first().copied()
    }

    /// A candidate was found blocked.
    pub(crate) fn set_aside(&mut self, lane: LaneId, blocker: Blocker) {
        let Some(entry) = self.lanes.get_mut(&lane) else {
            return;
        };
        let (age, from) = (entry.age, entry.blocker.replace(blocker));
        entry.aside = true;
        self.candidates.remove(&(age, lane));
        self.aside.entry(blocker).or_default().insert((age, lane));
        // Where it came from has another candidate, unless it is shut again.
        if let Some(from) = from.filter(|from| *from != blocker) {
            self.unblock(from);
        }
    }

    /// A blocker may have opened: its oldest lane is a candidate again.
    pub(crate) fn unblock(&mut self, blocker: Blocker) {
        let Some(lanes) = self.aside.get_mut(&blocker) else {
            return;
        };
        let Some((age, lane)) = lanes.pop_first() else {
            return;
        };
        if lanes.is_empty() {
            self.aside.remove(&blocker);
        }
        if let Some(entry) = self.lanes.get_mut(&lane) {
            entry.aside = false;
        }
        self.candidates.insert((age, lane));
    }
}
