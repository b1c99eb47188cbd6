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

/// A live job.
#[derive(Debug)]
pub(crate) struct Entry<P> {
    serial: u64,
    /// Its place in the order of arrival. A retry gets a new one; a job sent elsewhere keeps its
    /// own.
    pub(crate) seq: u64,
    pub(crate) state: State,
    pub(crate) class: Class,
    /// The domain in which it waits or runs, or last did.
    pub(crate) domain: Domain,
    pub(crate) flow: FlowId,
    pub(crate) cost: Cost,
    /// The targets that the job names.
    pub(crate) targets: TargetSet,
    /// Those of them that may still serve it.
    pub(crate) group: GroupId,
    pub(crate) key: Option<Key>,
    pub(crate) delay_key: Option<Key>,
    pub(crate) start_at: Option<Time>,
    pub(crate) expire_at: Option<Time>,
    /// When it was first ready to run; retries keep it.
    pub(crate) ready_since: Option<Time>,
    pub(crate) attempts: u32,
    pub(crate) attempts_used: u32,
    /// Cancelled while it ran: ends with its lease.
    pub(crate) cancelled: bool,
    /// Its outcome decides about a target on probation.
    pub(crate) probing: bool,
    /// A target refused it: it does not go back there, not even after a reload.
    pub(crate) sent_elsewhere: bool,
    /// For when it is due or expires, whichever comes first.
    pub(crate) timer: Option<TimerId>,
    /// With the lease while the job runs.
    payload: Option<P>,
}

/// Where a job is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
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

    /// The payload, which goes with the lease.
    pub(crate) fn take_payload(&mut self) -> P {
        self.payload
            .take()
            .expect("the payload is away only while the job runs")
    }

    pub(crate) fn put_back(&mut self, payload: P) {
        self.payload = Some(payload);
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
            state: State::Arriving,
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
                State::Delayed { due, .. } => Some(due),
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
        self.in_state(|state| !matches!(state, State::Running(_)))
    }

    /// The jobs in lanes, in order of arrival.
    pub(crate) fn waiting(&self) -> Vec<JobId> {
        self.in_state(|state| matches!(state, State::Waiting(_)))
    }

    fn in_state(&self, wanted: impl Fn(State) -> bool) -> Vec<JobId> {
        let entries = self.table.iter().filter(|(_, entry)| wanted(entry.state));
        let mut jobs: Vec<(u64, JobId)> = entries.map(|(id, entry)| (entry.seq, id)).collect();
        jobs.sort_unstable();
        jobs.into_iter().map(|(_, id)| id).collect()
    }
}

indexed!(Jobs<P>[job: JobId] -> Entry<P> = table[job]);
