//! The live jobs: one entry each, found by id or by key.
//!
//! A job lives here from `submit` until it ends. Entries are plain records that the engine's other
//! parts refer to by [`JobId`]; this part owns the table, the serial numbers that make tickets
//! unique, and the index by key.

use crate::id::{
    Class, Cost, Domain, Flow, FlowId, GroupId, JobId, Key, LaneId, Section, TargetId, TargetSet,
    Ticket,
};
use crate::job::Job;
use crate::table::{Table, indexed};
use crate::time::Time;
use crate::wheel::TimerId;
use foldhash::fast::FixedState;
use hashbrown::HashTable;
use std::hash::BuildHasher;
use std::time::Duration;

/// A live job.
#[derive(Debug)]
pub(crate) struct Entry<P> {
    serial: u64,
    /// Its place in the order of arrival. A retry gets a new one; a job sent elsewhere keeps its
    /// own.
    seq: u64,
    pub(crate) state: JobState,
    pub(crate) class: Class,
    /// The domain in which it waits or runs, or last did.
    domain: Domain,
    pub(crate) flow: FlowId,
    pub(crate) cost: Cost,
    /// The targets that the job names.
    pub(crate) targets: TargetSet,
    /// Those of them that may still serve it.
    pub(crate) group: GroupId,
    pub(crate) key: Option<Key>,
    pub(crate) delay_key: Option<Key>,
    start_at: Option<Time>,
    expire_at: Option<Time>,
    /// When it was first ready to run; retries keep it.
    ready_since: Option<Time>,
    attempts: u32,
    attempts_used: u32,
    /// Cancelled while it ran: ends with its lease.
    cancelled: bool,
    /// Its outcome decides about a target on probation.
    probing: bool,
    /// A target refused it: it does not go back there, not even after a reload.
    sent_elsewhere: bool,
    /// For when it is due or expires, whichever comes first.
    pub(crate) timer: Option<TimerId>,
    /// With the lease while the job runs.
    payload: Option<P>,
}

/// Where a job is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JobState {
    Delayed {
        due: Time,
        /// Due when a suspension ends, and released if that is lifted before.
        suspended: bool,
    },
    /// Submitted, but in no lane yet.
    Arriving,
    Waiting(LaneId),
    Running(TargetId),
}

impl<P> Entry<P> {
    pub(crate) fn ticket(&self, job: JobId) -> Ticket {
        let serial = self.serial;
        Ticket { job, serial }
    }

    /// The section in which it waits or runs, or last did.
    #[inline]
    pub(crate) fn section(&self) -> Section {
        let (domain, class) = (self.domain, self.class);
        Section { domain, class }
    }

    /// Its place in the order of arrival.
    #[inline]
    pub(crate) fn seq(&self) -> u64 {
        self.seq
    }

    pub(crate) fn has_expired(&self, now: Time) -> bool {
        self.expire_at.is_some_and(|at| at <= now)
    }

    /// When it starts, if that is still to come.
    pub(crate) fn starts_after(&self, now: Time) -> Option<Time> {
        self.start_at.filter(|at| *at > now)
    }

    /// When time alone does something to it: it is due, or expires if that is sooner.
    pub(crate) fn next_time(&self) -> Option<Time> {
        match self.state {
            JobState::Delayed { due, .. } => Some(self.expire_at.map_or(due, |at| at.min(due))),
            JobState::Waiting(_) => self.expire_at,
            JobState::Arriving | JobState::Running(_) => None,
        }
    }

    /// Since when it is ready to run: retries keep that time.
    pub(crate) fn ready_since(&self) -> Option<Time> {
        self.ready_since
    }

    /// Says in which domain it waits from now on.
    pub(crate) fn enter_domain(&mut self, domain: Domain) {
        self.domain = domain;
    }

    /// It waits in a lane. Says whether it may expire there.
    #[inline]
    pub(crate) fn wait_in(&mut self, lane: LaneId, now: Time) -> bool {
        self.state = JobState::Waiting(lane);
        self.ready_since.get_or_insert(now);
        self.expire_at.is_some()
    }

    /// An attempt begins, which may probe its target. Returns its number, how long the job waited,
    /// and the payload, which goes with the lease.
    #[inline]
    pub(crate) fn begin(
        &mut self,
        now: Time,
        target: TargetId,
        probing: bool,
    ) -> (u32, Duration, P) {
        self.state = JobState::Running(target);
        self.attempts_used += 1;
        self.probing = probing;
        let waited = now.since(self.ready_since.unwrap_or(now));
        (self.attempts_used, waited, self.take_payload())
    }

    /// Its outcome decides about a target on probation.
    pub(crate) fn is_probe(&self) -> bool {
        self.probing
    }

    /// Attempts so far, those that cost none left out.
    pub(crate) fn attempts_used(&self) -> u32 {
        self.attempts_used
    }

    /// Waiting for a target that has too much to do is not the job's fault: the attempt that found
    /// that out does not count.
    pub(crate) fn return_attempt(&mut self) {
        self.attempts_used -= 1;
    }

    pub(crate) fn has_attempts_left(&self) -> bool {
        self.attempts_used < self.attempts
    }

    /// It was cancelled while it runs, and ends with its lease.
    pub(crate) fn cancel_running(&mut self) {
        self.cancelled = true;
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        self.cancelled
    }

    /// It is tried again, by any of its targets.
    pub(crate) fn try_again(&mut self, payload: P) {
        self.sent_elsewhere = false;
        self.state = JobState::Arriving;
        self.payload = Some(payload);
    }

    /// A target refused it and did nothing: that was no attempt, and it does not go back there.
    pub(crate) fn send_elsewhere(&mut self, payload: P) {
        self.return_attempt();
        self.sent_elsewhere = true;
        self.payload = Some(payload);
    }

    pub(crate) fn was_sent_elsewhere(&self) -> bool {
        self.sent_elsewhere
    }

    fn take_payload(&mut self) -> P {
        self.payload
            .take()
            .expect("the payload is away only while the job runs")
    }
}

/// The table of live jobs.
#[derive(Debug)]
pub(crate) struct Jobs<P> {
    table: Table<JobId, Entry<P>>,
    /// Hashed by their keys.
    by_key: HashTable<JobId>,
    hasher: FixedState,
    serial: u64,
}

impl<P> Jobs<P> {
    pub(crate) fn new(hasher: FixedState) -> Self {
        Jobs {
            table: Table::default(),
            by_key: HashTable::new(),
            hasher,
            serial: 0,
        }
    }

    /// Gives a job the next number in the order of arrival.
    pub(crate) fn arrive_anew(&mut self, job: JobId) {
        self.serial += 1;
        self.table[job].seq = self.serial;
    }

    pub(crate) fn insert(
        &mut self,
        job: Job<P>,
        flow: FlowId,
        group: GroupId,
        attempts: u32,
    ) -> JobId {
        self.serial += 1;
        let serial = self.serial;
        let key = job.key;
        let id = self.table.insert(Entry {
            serial,
            seq: serial,
            state: JobState::Arriving,
            class: job.class,
            domain: Domain(0),
            flow,
            cost: job.cost,
            targets: job.targets,
            group,
            key,
            delay_key: job.delay_key,
            start_at: job.start_at,
            expire_at: job.expire_at,
            ready_since: None,
            attempts,
            attempts_used: 0,
            cancelled: false,
            probing: false,
            sent_elsewhere: false,
            timer: None,
            payload: Some(job.payload),
        });
        if let Some(key) = key {
            let (table, hasher) = (&self.table, &self.hasher);
            // Only ids are stored: a key lives once, in its entry.
            let rehash = |id: &JobId| hasher.hash_one(table[*id].key);
            let hash = hasher.hash_one(Some(key));
            self.by_key.insert_unique(hash, id, rehash);
        }
        id
    }

    /// Forgets a job whose payload is with its lease: nothing of the entry is moved.
    pub(crate) fn forget(&mut self, id: JobId) {
        self.free_key(self.table[id].key, id);
        self.table.discard(id);
    }

    pub(crate) fn remove(&mut self, id: JobId) -> Entry<P> {
        let entry = self.table.remove(id);
        self.free_key(entry.key, id);
        entry
    }

    fn free_key(&mut self, key: Option<Key>, id: JobId) {
        if key.is_some() {
            let hash = self.hasher.hash_one(key);
            if let Ok(found) = self.by_key.find_entry(hash, |other| *other == id) {
                found.remove();
            }
        }
    }

    /// Turns a removed entry back into the job that was submitted. `flow` is its flow's name.
    pub(crate) fn into_job(mut entry: Entry<P>, flow: Flow) -> Job<P> {
        Job {
            class: entry.class,
            flow,
            cost: entry.cost,
            targets: entry.targets,
            key: entry.key,
            delay_key: entry.delay_key,
            start_at: match entry.state {
                JobState::Delayed { due, .. } => Some(due),
                _ => None,
            },
            expire_at: entry.expire_at,
            start_in: None,
            expire_in: None,
            booking: None,
            attempts: Some(entry.attempts),
            payload: entry.take_payload(),
        }
    }

    pub(crate) fn find(&self, key: Key) -> Option<JobId> {
        let hash = self.hasher.hash_one(Some(key));
        let found = |id: &JobId| self.table[*id].key == Some(key);
        self.by_key.find(hash, found).copied()
    }

    pub(crate) fn ticket(&self, id: JobId) -> Ticket {
        self.table[id].ticket(id)
    }

    /// The job of a ticket, if it still lives.
    pub(crate) fn get(&self, ticket: Ticket) -> Option<&Entry<P>> {
        let entry = self.table.get(ticket.job);
        entry.filter(|entry| entry.serial == ticket.serial)
    }

    /// A job by its id alone, for callers that know it lived in the same call.
    pub(crate) fn by_id(&self, id: JobId) -> Option<&Entry<P>> {
        self.table.get(id)
    }

    /// Jobs that are not leased, in the order of arrival.
    pub(crate) fn unleased(&self) -> Vec<JobId> {
        self.in_state(|state| !matches!(state, JobState::Running(_)))
    }

    /// The jobs in lanes, in order of arrival.
    pub(crate) fn waiting(&self) -> Vec<JobId> {
        self.in_state(|state| matches!(state, JobState::Waiting(_)))
    }

    fn in_state(&self, wanted: impl Fn(JobState) -> bool) -> Vec<JobId> {
        let entries = self.table.iter().filter(|(_, entry)| wanted(entry.state));
        let mut jobs: Vec<(u64, JobId)> = entries.map(|(id, entry)| (entry.seq, id)).collect();
        jobs.sort_unstable();
        jobs.into_iter().map(|(_, id)| id).collect()
    }
}

indexed!(Jobs<P>[job: JobId] -> Entry<P> = table[job]);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::Id;

    const NAMED: Key = Key(7);

    fn jobs() -> Jobs<&'static str> {
        Jobs::new(FixedState::default())
    }

    fn insert(jobs: &mut Jobs<&'static str>, job: Job<&'static str>) -> JobId {
        jobs.insert(job, FlowId::from_index(0), GroupId::from_index(0), 2)
    }

    fn secs(seconds: u64) -> Time {
        Time::from_secs(seconds)
    }

    #[test]
    fn a_key_is_found_while_its_job_lives() {
        let mut jobs = jobs();
        let job = insert(&mut jobs, Job::new("a").key(NAMED));
        insert(&mut jobs, Job::new("b"));
        assert_eq!(jobs.find(NAMED), Some(job));
        jobs.remove(job);
        assert_eq!(jobs.find(NAMED), None);
        let leased = insert(&mut jobs, Job::new("c").key(NAMED));
        jobs[leased].begin(secs(0), TargetId(0), false);
        jobs.forget(leased);
        assert_eq!(jobs.find(NAMED), None);
    }

    #[test]
    fn a_ticket_matches_no_later_job_with_the_same_id() {
        let mut jobs = jobs();
        let first = insert(&mut jobs, Job::new("first"));
        let ticket = jobs.ticket(first);
        assert!(jobs.get(ticket).is_some());
        jobs.remove(first);
        assert_eq!(insert(&mut jobs, Job::new("second")), first);
        assert!(jobs.get(ticket).is_none());
    }

    #[test]
    fn jobs_are_listed_in_the_order_in_which_they_last_arrived() {
        let mut jobs = jobs();
        let [a, b, c] = ["a", "b", "c"].map(|name| insert(&mut jobs, Job::new(name)));
        jobs.arrive_anew(a);
        assert_eq!(jobs.unleased(), [b, c, a]);
        jobs[c].begin(secs(0), TargetId(0), false);
        assert_eq!(jobs.unleased(), [b, a]);
        assert_eq!(jobs.waiting(), []);
        jobs[a].wait_in(LaneId::from_index(0), secs(0));
        assert_eq!(jobs.waiting(), [a]);
    }

    #[test]
    fn attempts_that_met_an_overload_do_not_count() {
        let mut jobs = jobs();
        let id = insert(&mut jobs, Job::new("a"));
        let entry = &mut jobs[id];
        entry.wait_in(LaneId::from_index(0), secs(1));
        let (attempt, waited, payload) = entry.begin(secs(3), TargetId(0), true);
        assert_eq!((attempt, waited, payload), (1, Duration::from_secs(2), "a"));
        assert!(entry.is_probe());
        entry.return_attempt();
        entry.try_again(payload);
        for attempt in 1..=2 {
            assert!(entry.has_attempts_left());
            let (number, waited, payload) = entry.begin(secs(9), TargetId(0), false);
            assert_eq!(number, attempt);
            assert_eq!(waited, Duration::from_secs(8), "retries keep their age");
            entry.try_again(payload);
        }
        assert!(!entry.has_attempts_left());
    }

    #[test]
    fn a_job_sent_elsewhere_spent_no_attempt_until_it_is_tried_again() {
        let mut jobs = jobs();
        let id = insert(&mut jobs, Job::new("a"));
        let (_, _, payload) = jobs[id].begin(secs(0), TargetId(0), false);
        jobs[id].send_elsewhere(payload);
        assert!(jobs[id].was_sent_elsewhere());
        assert_eq!(jobs[id].attempts_used(), 0);
        let (_, _, payload) = jobs[id].begin(secs(0), TargetId(1), false);
        jobs[id].try_again(payload);
        assert!(
            !jobs[id].was_sent_elsewhere(),
            "all of its targets may serve it"
        );
    }

    #[test]
    fn the_one_timer_of_a_job_is_for_what_comes_first() {
        let mut jobs = jobs();
        let id = insert(&mut jobs, Job::new("a").expire_at(secs(5)));
        let entry = &mut jobs[id];
        assert_eq!(entry.next_time(), None, "it is in no lane yet");
        for (due, next) in [(3, 3), (9, 5)] {
            entry.state = JobState::Delayed {
                due: secs(due),
                suspended: false,
            };
            assert_eq!(entry.next_time(), Some(secs(next)));
        }
        assert!(
            entry.wait_in(LaneId::from_index(0), secs(4)),
            "it may expire"
        );
        assert_eq!(entry.next_time(), Some(secs(5)));
        entry.begin(secs(4), TargetId(0), false);
        assert_eq!(entry.next_time(), None, "a running job does not expire");
        assert!(!entry.has_expired(secs(4)) && entry.has_expired(secs(5)));
    }

    #[test]
    fn a_removed_entry_is_the_job_that_was_submitted() {
        let mut jobs = jobs();
        let job = Job::new("a")
            .class(Class(3))
            .cost(Cost(5))
            .key(NAMED)
            .flow(Flow(9));
        let id = insert(&mut jobs, job.clone().start_at(secs(1)));
        jobs[id].state = JobState::Delayed {
            due: secs(8),
            suspended: true,
        };
        let back = Jobs::into_job(jobs.remove(id), Flow(9));
        assert_eq!(
            back,
            job.start_at(secs(8)).attempts(2),
            "with the time it is due now"
        );
    }
}
