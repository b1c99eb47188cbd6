//! The thread that writes the state file.
//!
//! Work arrives as closures. All queued ones are committed together, and each is notified when its
//! group is durable. A group without urgent work waits for more ([`CommitMode`]). Before results of
//! copying are committed, the destination is synced, once per group. Listings do not wait for that
//! sync: while they arrive, results are deferred and committed about once per second.

use super::write_queue::WriteQueue;
use crate::error::{Error, Result};
use crate::side::Side;
use headworks_storage::failpoint;
use parking_lot::Mutex;
use rusqlite::{Connection, Transaction, TransactionBehavior};
use std::collections::VecDeque;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// Minimum interval between two syncs of the destination.
const SYNC_INTERVAL: Duration = Duration::from_millis(1000);
/// How long a group waits for more work after a large group, in total and for the next item: one
/// sync of the state file for many items is worth more than speed.
const MAX_GROUP_WAIT: Duration = Duration::from_millis(60);
const MAX_IDLE_WAIT: Duration = Duration::from_millis(5);
/// The same as a multiple of the last commit's duration, if that is shorter. Where a commit is
/// cheap, waiting costs more than it saves: folders that are not durable keep their slots in the
/// window, and soon nothing is left to list.
const WAIT_COMMITS: u32 = 4;
/// Rows that make a group large.
const LARGE_GROUP: usize = 512;
/// Maximum number of items per group.
const MAX_GROUP_ITEMS: usize = 4096;

type Work = Box<dyn FnOnce(&Transaction<'_>) -> rusqlite::Result<()> + Send>;
type OnDurable = Box<dyn FnOnce() + Send>;
type SyncDestination = Box<dyn FnMut() -> std::result::Result<(), headworks_storage::Error> + Send>;

struct WriteItem {
    work: Work,
    on_durable: OnDurable,
    mode: CommitMode,
    rows: usize,
}

/// When an item should be durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CommitMode {
    /// As soon as possible, after everything posted before it: a caller waits.
    Barrier,
    /// As soon as possible, but not after results of copying, on which it does not depend: a
    /// listing.
    Prompt,
    /// With others: a page of a long listing, whose rows are scattered over the table.
    Deferred,
    /// With others, and after a sync of the destination: a result of copying.
    AfterSync,
}

/// A handle of the writer thread, which ends when the last handle is dropped.
#[derive(Clone)]
pub(crate) struct Writer {
    queue: Arc<WriteQueue<WriteItem>>,
    shared: Arc<WriterThread>,
}

struct WriterThread {
    queue: Arc<WriteQueue<WriteItem>>,
    failed: Arc<Mutex<Option<Error>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// Closes the queue when the thread ends, also by a panic: callers that wait for it must not wait
/// for ever.
struct CloseOnDrop(Arc<WriteQueue<WriteItem>>);

impl Drop for CloseOnDrop {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl Drop for WriterThread {
    fn drop(&mut self) {
        self.queue.finish();
    }
}

impl Writer {
    /// Starts the thread. `sync` makes the destination durable.
    pub(crate) fn start(connection: Connection, sync: SyncDestination) -> Writer {
        let queue: Arc<WriteQueue<WriteItem>> = Arc::default();
        let items = queue.clone();
        let failed = Arc::new(Mutex::new(None));
        let failure = failed.clone();
        let thread = std::thread::Builder::new()
            .name("state writer".into())
            .spawn(move || {
                let items = CloseOnDrop(items);
                if let Err(error) = write(connection, &items.0, sync) {
                    *failure.lock() = Some(error);
                }
            })
            .expect("the system can start a thread");
        let shared = WriterThread {
            queue: queue.clone(),
            failed,
            thread: Mutex::new(Some(thread)),
        };
        Writer {
            queue,
            shared: Arc::new(shared),
        }
    }

    /// Posts work; `on_durable` is called when it is durable. Blocks while the queue is full. If
    /// the writer has failed, the work and `on_durable` are dropped, and [`failure`](Self::failure)
    /// has the reason.
    pub(crate) fn post(
        &self,
        mode: CommitMode,
        work: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<()> + Send + 'static,
        on_durable: impl FnOnce() + Send + 'static,
    ) {
        self.post_rows(mode, 1, work, on_durable);
    }

    /// Posts work that writes this many rows.
    pub(crate) fn post_rows(
        &self,
        mode: CommitMode,
        rows: usize,
        work: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<()> + Send + 'static,
        on_durable: impl FnOnce() + Send + 'static,
    ) {
        let (work, on_durable) = (Box::new(work), Box::new(on_durable));
        let item = WriteItem {
            work,
            on_durable,
            mode,
            rows,
        };
        self.queue.push(rows, item);
    }

    /// Runs work, and returns when it and everything posted before it is durable.
    pub(crate) async fn write<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T> {
        self.write_with_mode(CommitMode::Barrier, work).await
    }

    /// Runs work, and returns when it is durable.
    pub(crate) async fn write_with_mode<T: Send + 'static>(
        &self,
        mode: CommitMode,
        work: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T> {
        let (sender, receiver) = oneshot::channel();
        let result = Arc::new(Mutex::new(None));
        let slot = result.clone();
        let job = move |transaction: &Transaction<'_>| {
            *slot.lock() = Some(work(transaction)?);
            Ok(())
        };
        let writer = self.clone();
        let hand_over = move || writer.post(mode, job, move || _ = sender.send(()));
        tokio::task::spawn_blocking(hand_over)
            .await
            .map_err(|_| Error::WriterGone)?;
        if receiver.await.is_err() {
            return Err(self.failure().unwrap_or(Error::WriterGone));
        }
        let mut done = result.lock();
        done.take().ok_or(Error::WriterGone)
    }

    /// Returns why the writer failed, if it did. For callers that know that it has ended, or is
    /// about to: what it had in hand is dropped, and they are notified, before its error is stored.
    pub(crate) fn failure(&self) -> Option<Error> {
        let mut thread = self.shared.thread.lock();
        let panicked = thread.take().and_then(|thread| thread.join().err());
        drop(thread);
        let mut failed = self.shared.failed.lock();
        if let Some(panic) = panicked {
            failed.get_or_insert_with(|| Error::WriterFailed(panic_message(&*panic)));
        }
        let first = failed.take()?;
        // Several tasks run into the same failure, and one of the others may be the one that is
        // shown: all of them say why.
        *failed = Some(Error::WriterFailed(first.to_string()));
        Some(first)
    }

    /// Returns whether the writer accepts work.
    pub(crate) fn is_alive(&self) -> bool {
        let thread = self.shared.thread.lock();
        thread.as_ref().is_some_and(|thread| !thread.is_finished())
    }

    /// Waits until everything posted is durable and the thread has ended. Other handles are useless
    /// afterwards.
    pub(crate) fn close(self) -> Result<()> {
        let Writer { queue, shared } = self;
        queue.finish();
        let thread = shared.thread.lock().take();
        let panicked = thread.and_then(|thread| thread.join().err());
        let failed = shared.failed.lock().take();
        let panic = || Some(Error::WriterFailed(panic_message(&*panicked?)));
        failed.or_else(panic).map_or(Ok(()), Err)
    }
}

/// Returns what a writer that panicked had to say.
fn panic_message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    format!(
        "the state writer panicked: {}",
        text.unwrap_or("no reason given")
    )
}

fn write(
    mut connection: Connection,
    queue: &WriteQueue<WriteItem>,
    mut sync: SyncDestination,
) -> Result<()> {
    let mut results = DeferredResults::new();
    let mut wait = GroupWait::default();
    loop {
        let first = match queue.pop_all(results.timeout()) {
            Some(items) => results.admit(items),
            None => std::mem::take(&mut results.deferred),
        };
        if first.is_empty() && queue.is_drained() {
            return Ok(());
        }
        if first.is_empty() {
            continue;
        }
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let mut group = Group::new(wait);
        group.add(&transaction, first)?;
        while !group.is_full()
            && let Some(more) = queue.pop_all(Some(group.timeout(results.synced)))
            && !more.is_empty()
        {
            group.add(&transaction, results.admit(more))?;
        }
        if group.has_mode(CommitMode::AfterSync) {
            failpoint::hit("before-sync");
            let durable = sync();
            durable.map_err(|error| Side::Destination.error(error))?;
            results.synced = Instant::now();
            failpoint::hit("after-sync");
        }
        failpoint::hit("before-commit");
        let committing = Instant::now();
        transaction.commit()?;
        wait = GroupWait::after_commit(group.rows, committing.elapsed());
        failpoint::hit("after-commit");
        group
            .on_durable
            .into_iter()
            .for_each(|on_durable| on_durable());
    }
}

/// Results of copying that wait for a sync.
struct DeferredResults {
    deferred: Vec<WriteItem>,
    synced: Instant,
    /// When the last prompt item arrived.
    last_prompt: Option<Instant>,
}

impl DeferredResults {
    fn new() -> DeferredResults {
        DeferredResults {
            deferred: Vec::new(),
            synced: Instant::now(),
            last_prompt: None,
        }
    }

    /// Returns how long to wait for the first item of a group; forever if nothing is deferred.
    fn timeout(&self) -> Option<Duration> {
        let due = SYNC_INTERVAL.saturating_sub(self.synced.elapsed());
        (!self.deferred.is_empty()).then_some(due)
    }

    /// Returns the items for the current group, preceded by the deferred ones if they are due.
    fn admit(&mut self, items: VecDeque<WriteItem>) -> Vec<WriteItem> {
        let now = Instant::now();
        if items.iter().any(|item| item.mode == CommitMode::Prompt) {
            self.last_prompt = Some(now);
        }
        let is_barrier = items.iter().any(|item| item.mode == CommitMode::Barrier);
        let is_due = now.duration_since(self.synced) >= SYNC_INTERVAL;
        let is_prompt_recent = self
            .last_prompt
            .is_some_and(|at| now.duration_since(at) < SYNC_INTERVAL);
        if is_barrier || is_due || !is_prompt_recent {
            let mut all = std::mem::take(&mut self.deferred);
            all.extend(items);
            return all;
        }
        let (results, rest) = items
            .into_iter()
            .partition::<Vec<_>, _>(|item| item.mode == CommitMode::AfterSync);
        self.deferred.extend(results);
        rest
    }
}

/// How long a group with urgent work stays open, in total and for the next item.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct GroupWait {
    total: Duration,
    idle: Duration,
}

impl GroupWait {
    /// Returns the wait after a group with this many rows and a commit of this duration.
    fn after_commit(rows: usize, commit: Duration) -> GroupWait {
        if rows < LARGE_GROUP {
            return GroupWait::default();
        }
        GroupWait {
            total: MAX_GROUP_WAIT.min(WAIT_COMMITS * commit),
            idle: MAX_IDLE_WAIT.min(commit),
        }
    }
}

/// Items that are committed together.
struct Group {
    began: Instant,
    modes: [bool; 4],
    wait: GroupWait,
    rows: usize,
    on_durable: Vec<OnDurable>,
}

impl Group {
    fn new(wait: GroupWait) -> Group {
        Group {
            began: Instant::now(),
            modes: [false; 4],
            wait,
            rows: 0,
            on_durable: Vec::new(),
        }
    }

    fn add(
        &mut self,
        transaction: &Transaction<'_>,
        items: impl IntoIterator<Item = WriteItem>,
    ) -> rusqlite::Result<()> {
        for item in items {
            (item.work)(transaction)?;
            self.modes[item.mode as usize] = true;
            self.rows += item.rows;
            self.on_durable.push(item.on_durable);
        }
        Ok(())
    }

    fn has_mode(&self, mode: CommitMode) -> bool {
        self.modes[mode as usize]
    }

    /// Returns whether the group is full. Without a time limit it would never end where listings
    /// arrive faster than they are written.
    fn is_full(&self) -> bool {
        self.on_durable.len() >= MAX_GROUP_ITEMS || self.began.elapsed() >= SYNC_INTERVAL
    }

    /// Returns how long to wait for more items.
    fn timeout(&self, synced: Instant) -> Duration {
        let waited = self.began.elapsed();
        let now = self.has_mode(CommitMode::Barrier) || self.has_mode(CommitMode::Prompt);
        match (now, self.has_mode(CommitMode::AfterSync)) {
            (true, _) => self.wait.total.saturating_sub(waited).min(self.wait.idle),
            (false, true) => SYNC_INTERVAL.saturating_sub(synced.elapsed()),
            (false, false) => SYNC_INTERVAL.saturating_sub(waited),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;
    use std::sync::atomic::Ordering::Relaxed;

    #[test]
    fn a_group_waits_longer_if_commits_are_expensive() {
        let expensive = GroupWait::after_commit(LARGE_GROUP, Duration::from_secs(1));
        assert_eq!(
            (expensive.total, expensive.idle),
            (MAX_GROUP_WAIT, MAX_IDLE_WAIT)
        );
        let cheap = GroupWait::after_commit(LARGE_GROUP, Duration::from_millis(1));
        assert!(cheap.total < expensive.total && cheap.idle < expensive.idle);
        let small = GroupWait::after_commit(LARGE_GROUP - 1, Duration::from_secs(1));
        assert_eq!(small, GroupWait::default());
    }

    /// Every caller may be the one that is shown to the user.
    #[tokio::test]
    async fn all_callers_learn_why_the_writer_failed() {
        let sync = || {
            let kind = headworks_storage::ErrorKind::Gone;
            Err(headworks_storage::Error::new(
                kind,
                "sync",
                b"dst",
                "unplugged",
            ))
        };
        let writer = Writer::start(Connection::open_in_memory().unwrap(), Box::new(sync));
        let writes = (0..20).map(|_| writer.write_with_mode(CommitMode::AfterSync, |_| Ok(())));
        for failed in futures_util::future::join_all(writes).await {
            let message = failed.unwrap_err().to_string();
            assert!(message.contains("unplugged"), "{message}");
        }
        let message = writer.write(|_| Ok(())).await.unwrap_err().to_string();
        assert!(message.contains("unplugged"), "{message}");
        assert!(!writer.is_alive());
        assert!(writer.close().is_err());
    }

    #[tokio::test]
    async fn a_writer_that_panics_says_so() {
        let writer = Writer::start(
            Connection::open_in_memory().unwrap(),
            Box::new(|| panic!("a bug in the storage")),
        );
        for _ in 0..3 {
            let failed = writer
                .write_with_mode(CommitMode::AfterSync, |_| Ok(()))
                .await;
            let message = failed.unwrap_err().to_string();
            assert!(message.contains("a bug in the storage"), "{message}");
        }
    }

    /// Regression: a listing without pauses was one group, so nothing of it was durable before its
    /// end.
    #[test]
    fn a_group_ends_although_more_is_waiting() {
        let connection = Connection::open_in_memory().unwrap();
        let writer = Writer::start(connection, Box::new(|| Ok(())));
        let durable = Arc::new(AtomicBool::new(false));
        let work = |transaction: &Transaction<'_>| {
            let count = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 10000) SELECT count(*) FROM n";
            transaction.query_row(count, [], |_| Ok(()))
        };
        let mut posted = 0;
        while !durable.load(Relaxed) {
            let signal = durable.clone();
            // Large items, so that only a few fit into the queue.
            writer.post_rows(CommitMode::Deferred, 4096, work, move || {
                signal.store(true, Relaxed);
            });
            posted += 1;
        }
        writer.close().unwrap();
        assert!(posted < MAX_GROUP_ITEMS, "only a full group was committed");
    }
}
