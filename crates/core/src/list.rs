//! Doubly linked lists of jobs, so that one can leave from the middle at any time.
//!
//! [`Links`] hold the neighbours of every job; a job is in at most one list of the same links. A
//! list is three words without storage of its own, so there may be one per lane. It must always be
//! used with the links that it began with.

use crate::id::JobId;
use crate::table::Id;

#[derive(Clone, Copy, Debug, Default)]
struct Link {
    prev: Option<JobId>,
    next: Option<JobId>,
}

/// The neighbours of jobs.
#[derive(Debug, Default)]
pub(crate) struct Links(Vec<Link>);

/// One list.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct List {
    pub(crate) head: Option<JobId>,
    pub(crate) tail: Option<JobId>,
    pub(crate) len: u32,
}

impl List {
    /// Inserts a job before `next`, or at the end.
    #[inline]
    pub(crate) fn insert(&mut self, links: &mut Links, job: JobId, next: Option<JobId>) {
        if links.0.len() <= job.index() {
            links.0.resize(job.index() + 1, Link::default());
        }
        let prev = match next {
            Some(next) => links.0[next.index()].prev.replace(job),
            None => self.tail.replace(job),
        };
        match prev {
            Some(prev) => links.0[prev.index()].next = Some(job),
            None => self.head = Some(job),
        }
        links.0[job.index()] = Link { prev, next };
        self.len += 1;
    }

    #[inline]
    pub(crate) fn remove(&mut self, links: &mut Links, job: JobId) {
        let Link { prev, next } = links.0[job.index()];
        match prev {
            Some(prev) => links.0[prev.index()].next = next,
            None => self.head = next,
        }
        match next {
            Some(next) => links.0[next.index()].prev = prev,
            None => self.tail = prev,
        }
        self.len -= 1;
    }
}

impl Links {
    pub(crate) fn next(&self, job: JobId) -> Option<JobId> {
        #[cfg(test)]
        crate::table::visits::note();
        self.0[job.index()].next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_come_and_go_anywhere() {
        let (mut links, mut list) = (Links::default(), List::default());
        let job = JobId::from_index;
        for index in [0, 2, 4] {
            list.insert(&mut links, job(index), None);
        }
        list.insert(&mut links, job(3), Some(job(4)));
        list.insert(&mut links, job(5), Some(job(0)));
        let order = |links: &Links, list: &List| -> Vec<usize> {
            let jobs = std::iter::successors(list.head, |job| links.next(*job));
            jobs.map(Id::index).collect()
        };
        assert_eq!(order(&links, &list), [5, 0, 2, 3, 4]);
        for (leaves, left) in [(2, &[5, 0, 3, 4][..]), (5, &[0, 3, 4]), (4, &[0, 3])] {
            list.remove(&mut links, job(leaves));
            assert_eq!(order(&links, &list), left);
            assert_eq!(list.len as usize, left.len());
        }
        assert_eq!((list.head, list.tail), (Some(job(0)), Some(job(3))));
    }
}
