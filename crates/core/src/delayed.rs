//! Jobs whose time has not come: their number, and their delay keys.
//!
//! At most one delayed job has each delay key. Timers are the engine's; jobs that are delayed
//! because their targets are suspended are listed with their target group as well, so that a
//! suspension that is lifted early releases them.

use crate::id::{JobId, Key};
use crate::list::{Links, List};
use foldhash::fast::FixedState;
use hashbrown::HashSet;

/// The delayed jobs.
#[derive(Debug)]
pub(crate) struct Delayed {
    count: u64,
    keys: HashSet<Key, FixedState>,
    links: Links,
}

impl Delayed {
    pub(crate) fn new(hasher: FixedState) -> Self {
        Delayed {
            count: 0,
            keys: HashSet::with_hasher(hasher),
            links: Links::default(),
        }
    }

    pub(crate) fn len(&self) -> u64 {
        self.count
    }

    /// Whether a delayed job has that delay key.
    pub(crate) fn has_key(&self, key: Key) -> bool {
        self.keys.contains(&key)
    }

    /// Counts a job as delayed. Its delay key must be free.
    pub(crate) fn insert(&mut self, key: Option<Key>) {
        self.count += 1;
        self.keys.extend(key);
    }

    pub(crate) fn remove(&mut self, key: Option<Key>) {
        self.count -= 1;
        if let Some(key) = key {
            self.keys.remove(&key);
        }
    }

    /// Lists a job with those that wait for the same targets to be usable.
    pub(crate) fn enlist(&mut self, list: &mut List, job: JobId) {
        list.insert(&mut self.links, job, None);
    }

    pub(crate) fn delist(&mut self, list: &mut List, job: JobId) {
        list.remove(&mut self.links, job);
    }

    /// The jobs of a list, first to last.
    pub(crate) fn listed(&self, list: &List) -> Vec<JobId> {
        std::iter::successors(list.head, |job| self.links.next(*job)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::Id;

    #[test]
    fn a_delay_key_is_free_again_when_its_job_is_no_longer_delayed() {
        let mut delayed = Delayed::new(FixedState::default());
        delayed.insert(Some(Key(1)));
        delayed.insert(None);
        assert!(delayed.has_key(Key(1)) && !delayed.has_key(Key(2)));
        delayed.remove(Some(Key(1)));
        assert!(!delayed.has_key(Key(1)));
        assert_eq!(delayed.len(), 1);
    }

    #[test]
    fn jobs_are_listed_in_the_order_in_which_they_were_delayed() {
        let mut delayed = Delayed::new(FixedState::default());
        let (mut list, job) = (List::default(), JobId::from_index);
        [3, 1, 2]
            .into_iter()
            .for_each(|index| delayed.enlist(&mut list, job(index)));
        delayed.delist(&mut list, job(1));
        assert_eq!(delayed.listed(&list), [job(3), job(2)]);
    }
}
