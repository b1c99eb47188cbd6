//! Request history: the latest requests and how each was treated, for explanations and the console.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use headworks_core::{Class, TargetId};
use jiff::Timestamp;
use parking_lot::Mutex;
use serde::Serialize;
use smallvec::SmallVec;

/// Number of requests that are remembered.
const CAPACITY: usize = 4096;

/// Request ids: a random prefix per process, and a number.
#[derive(Debug)]
pub(crate) struct RequestIds {
    /// Prefix of all ids of this process.
    run: String,
    next: AtomicU64,
}

impl RequestIds {
    pub(crate) fn new(run: u32) -> RequestIds {
        RequestIds {
            run: format!("hw-{run:08x}-"),
            next: AtomicU64::new(0),
        }
    }

    pub(crate) fn next(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn name(&self, number: u64) -> String {
        // Built without `format!`, because this runs for every request.
        let mut name = String::with_capacity(28);
        name.push_str(&self.run);
        let digits = (u64::BITS - number.leading_zeros()).div_ceil(4).max(1);
        for digit in (0..digits).rev() {
            let digit = (number >> (4 * digit)) as u32 % 16;
            name.extend(char::from_digit(digit, 16));
        }
        name
    }

    fn number(&self, name: &str) -> Option<u64> {
        let number = name.strip_prefix(&self.run)?;
        u64::from_str_radix(number, 16).ok()
    }
}

/// Stage of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Stage {
    Waiting,
    Running,
    Done,
    Refused,
    /// The client disconnected.
    Left,
    /// The upstream failed.
    Failed,
}

/// History of one request.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct HistoryEntry {
    #[serde(skip)]
    pub(crate) number: u64,
    #[serde(serialize_with = "as_text")]
    pub(crate) arrived: Timestamp,
    #[serde(serialize_with = "as_text")]
    pub(crate) tenant: Arc<str>,
    #[serde(serialize_with = "as_text")]
    pub(crate) class: Class,
    pub(crate) model: String,
    pub(crate) stage: Stage,
    /// Estimated tokens.
    pub(crate) estimate: u64,
    /// Actual tokens.
    pub(crate) tokens: Option<u64>,
    /// Position in the queue of its class on arrival; 0 if it did not wait.
    pub(crate) position: u32,
    /// Description of the limits that blocked it on arrival.
    pub(crate) held_by: Option<String>,
    /// Wait that was expected on arrival.
    #[serde(serialize_with = "as_millis")]
    pub(crate) expected_wait: Option<Duration>,
    /// Capacity pools that it waits for.
    #[serde(skip)]
    pub(crate) pools: SmallVec<[TargetId; 1]>,
    #[serde(serialize_with = "as_millis")]
    pub(crate) waited: Option<Duration>,
    /// Whether it was granted early because of its age.
    pub(crate) aged: bool,
    /// Upstreams that were tried, in order.
    #[serde(serialize_with = "as_list")]
    pub(crate) upstreams: SmallVec<[Arc<str>; 1]>,
    pub(crate) status: Option<u16>,
    /// Reason code, as in `x-headworks-reason`.
    pub(crate) reason: &'static str,
    #[serde(serialize_with = "as_millis")]
    pub(crate) took: Option<Duration>,
}

fn as_text<S: serde::Serializer>(
    value: &impl std::fmt::Display,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_str(value)
}

fn as_list<S: serde::Serializer>(names: &[Arc<str>], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(names.iter().map(|name| &**name))
}

fn as_millis<S: serde::Serializer>(
    time: &Option<Duration>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match time {
        Some(time) => serializer.serialize_some(&(time.as_secs_f64() * 1000.0)),
        None => serializer.serialize_none(),
    }
}

/// Ring buffer of the latest requests, indexed by their number.
pub(crate) struct RequestHistory {
    pub(crate) ids: RequestIds,
    entries: Mutex<Vec<Option<HistoryEntry>>>,
    running: Mutex<RunningEntries>,
}

/// A request at an upstream.
#[derive(Clone, Debug)]
pub(crate) struct RunningEntry {
    pub(crate) tenant: Arc<str>,
    pub(crate) granted: Timestamp,
}

/// The requests that ran a moment ago.
#[derive(Default)]
struct RunningEntries {
    read: Option<Instant>,
    entries: Arc<[RunningEntry]>,
}

/// How long they are not read again. Every rejected request asks for them, and finding them visits
/// the whole history, which all requests need.
const RUNNING_AGE: Duration = Duration::from_millis(50);

impl RequestHistory {
    pub(crate) fn new(ids: RequestIds) -> RequestHistory {
        RequestHistory {
            ids,
            entries: Mutex::new(vec![None; CAPACITY]),
            running: Mutex::default(),
        }
    }

    pub(crate) fn insert(&self, entry: HistoryEntry) {
        let index = entry.number as usize % CAPACITY;
        self.entries.lock()[index] = Some(entry);
    }

    /// Changes an entry, unless it has been overwritten.
    pub(crate) fn update(&self, number: u64, change: impl FnOnce(&mut HistoryEntry)) {
        let mut entries = self.entries.lock();
        let entry = entries[number as usize % CAPACITY].as_mut();
        if let Some(entry) = entry.filter(|entry| entry.number == number) {
            change(entry);
        }
    }

    pub(crate) fn find(&self, name: &str) -> Option<HistoryEntry> {
        let number = self.ids.number(name)?;
        let entry = self.entries.lock()[number as usize % CAPACITY].clone();
        entry.filter(|entry| entry.number == number)
    }

    /// Visits every remembered request that arrived since `moment`, in no particular order.
    pub(crate) fn since(&self, moment: Timestamp, mut visit: impl FnMut(&HistoryEntry)) {
        let entries = self.entries.lock();
        let recent = entries.iter().flatten();
        recent
            .filter(|entry| entry.arrived >= moment)
            .for_each(&mut visit);
    }

    /// Requests at upstreams, as they were a moment ago.
    pub(crate) fn running(&self) -> Arc<[RunningEntry]> {
        let mut running = self.running.lock();
        if running
            .read
            .is_none_or(|read| read.elapsed() >= RUNNING_AGE)
        {
            let entries = self.entries.lock();
            let at_upstream = entries.iter().flatten();
            let at_upstream = at_upstream.filter(|entry| entry.stage == Stage::Running);
            running.entries = at_upstream
                .map(|entry| RunningEntry {
                    tenant: entry.tenant.clone(),
                    granted: entry.arrived + entry.waited.unwrap_or_default(),
                })
                .collect();
            running.read = Some(Instant::now());
        }
        running.entries.clone()
    }

    /// The latest entries, newest first.
    pub(crate) fn latest(&self, most: usize) -> Vec<HistoryEntry> {
        let entries = self.entries.lock();
        let mut latest: Vec<&HistoryEntry> = entries.iter().flatten().collect();
        latest.sort_unstable_by_key(|entry| std::cmp::Reverse(entry.number));
        latest.into_iter().take(most).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_tells_its_number() {
        let ids = RequestIds::new(0x1f);
        assert_eq!(ids.name(0), "hw-0000001f-0");
        for number in [0, 1, 15, 16, 0xabc_def0, 1 << 60, u64::MAX] {
            let name = ids.name(number);
            assert_eq!(name, format!("hw-0000001f-{number:x}"));
            assert_eq!(ids.number(&name), Some(number));
        }
        assert_eq!(ids.number("hw-00000020-0"), None);
    }
}
