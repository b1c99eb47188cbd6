//! The one thread that writes.
//!
//! Work is handed over as closures; as many as are waiting are committed together, and each hears
//! of it only when its group is durable. A group of nothing that somebody waits for lingers for
//! more ([`When`]); before results of copying the destination is synced, once a group. While
//! listings come in, which do not wait for that, results are put aside and committed about once a
//! second.

use super::queue::Queue;
use crate::error::{Error, Result};
use headworks_storage::failpoint;
use rusqlite::{Connection, Transaction, TransactionBehavior};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// What is waited for before the destination is synced for a group.
const LINGER: Duration = Duration::from_millis(1000);
/// What is waited for more when the last group was large, as long as more comes: one sync of the
/// state file for many is worth more than haste.
const BUSY: Duration = Duration::from_millis(60);
const QUIET: Duration = Duration::from_millis(5);
/// The same as a multiple of what the last commit took, if that is less. Where a commit costs next
/// to nothing, waiting for more costs more than it saves: folders that are not durable yet keep
/// their places in the window, and there is soon nothing left to list.
const BUSY_COMMITS: u32 = 4;
/// Rows that make a group large.
const LARGE: usize = 512;
/// Pieces of work in a group.
const GROUP: usize = 4096;

type Work = Box<dyn FnOnce(&Transaction<'_>) -> rusqlite::Result<()> + Send>;
type After = Box<dyn FnOnce() + Send>;
type Sync = Box<dyn FnMut() -> std::result::Result<(), headworks_storage::Error> + Send>;

struct Piece {
    work: Work,
    after: After,
    when: When,
    rows: usize,
}

/// When a piece of work should be durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum When {
    /// As soon as possible, after all that was handed over before: somebody waits for it.
    Now,
    /// As soon as possible, and not after results of copying, on which it does not depend: a
    /// listing.
    Apart,
    /// With others: a page of a long listing, whose rows are all over the table.
    Later,
    /// With others, and after the destination was synced: a result of copying.
    Synced,
}

/// A handle on the writing thread. It ends when the last handle is dropped.
#[derive(Clone)]
pub(crate) struct Writer {
    queue: Arc<Queue<Piece>>,
    end: Arc<End>,
}

struct End {
    queue: Arc<Queue<Piece>>,
    failed: Arc<Mutex<Option<Error>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Drop for End {
    fn drop(&mut self) {
        self.queue.end();
    }
}

impl Writer {
    /// `sync` makes the destination durable.
    pub(crate) fn start(connection: Connection, sync: Sync) -> Writer {
        let queue: Arc<Queue<Piece>> = Arc::default();
        let pieces = queue.clone();
        let failed = Arc::new(Mutex::new(None));
        let told = failed.clone();
        let thread = std::thread::Builder::new()
            .name("state writer".into())
            .spawn(move || {
                if let Err(error) = write(connection, &pieces, sync) {
                    *told.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
                }
                pieces.close();
            })
            .expect("a thread can be started");
        let end = End {
            queue: queue.clone(),
            failed,
            thread: Mutex::new(Some(thread)),
        };
        Writer {
            queue,
            end: Arc::new(end),
        }
    }

    /// Hands work over; `after` is called when it is durable. Blocks while too much is waiting. If
    /// the writer has failed, the work is dropped, and with it `after`: whoever waits for it learns
    /// that from [`failure`](Self::failure).
    pub(crate) fn post(
        &self,
        when: When,
        work: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<()> + Send + 'static,
        after: impl FnOnce() + Send + 'static,
    ) {
        self.post_rows(when, 1, work, after);
    }

    /// The same for work that writes so many rows.
    pub(crate) fn post_rows(
        &self,
        when: When,
        rows: usize,
        work: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<()> + Send + 'static,
        after: impl FnOnce() + Send + 'static,
    ) {
        let (work, after) = (Box::new(work), Box::new(after));
        let piece = Piece {
            work,
            after,
            when,
            rows,
        };
        self.queue.put(rows, piece);
    }

    /// Does work and returns when it, and all that was handed over before, is durable.
    pub(crate) async fn write<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T> {
        self.write_when(When::Now, work).await
    }

    /// Does work and returns when it is durable.
    pub(crate) async fn write_when<T: Send + 'static>(
        &self,
        when: When,
        work: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T> {
        let (sender, receiver) = oneshot::channel();
        let result = Arc::new(Mutex::new(None));
        let slot = result.clone();
        let job = move |transaction: &Transaction<'_>| {
            *slot.lock().unwrap_or_else(PoisonError::into_inner) = Some(work(transaction)?);
            Ok(())
        };
        let writer = self.clone();
        let hand_over = move || writer.post(when, job, move || _ = sender.send(()));
        tokio::task::spawn_blocking(hand_over)
            .await
            .map_err(|_| Error::WriterGone)?;
        if receiver.await.is_err() {
            return Err(self.failure().unwrap_or(Error::WriterGone));
        }
        let mut done = result.lock().unwrap_or_else(PoisonError::into_inner);
        done.take().ok_or(Error::WriterGone)
    }

    /// Why the writer ended, if it did.
    pub(crate) fn failure(&self) -> Option<Error> {
        let thread = self
            .end
            .thread
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take_if(|thread| thread.is_finished());
        if let Some(thread) = thread {
            let _ = thread.join();
        }
        self.end
            .failed
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
    }

    /// Whether the writer still takes work.
    pub(crate) fn is_alive(&self) -> bool {
        let thread = self
            .end
            .thread
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        thread.as_ref().is_some_and(|thread| !thread.is_finished())
    }

    /// Waits until everything handed over is durable and the thread has ended. Other handles are of
    /// no use after it.
    pub(crate) fn close(self) -> Result<()> {
        let Writer { queue, end } = self;
        queue.end();
        let thread = end
            .thread
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(thread) = thread {
            let _ = thread.join();
        }
        match end
            .failed
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
        {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }
}

fn write(mut connection: Connection, queue: &Queue<Piece>, mut sync: Sync) -> Result<()> {
    let mut results = Results::new();
    let mut pause = Pause::default();
    loop {
        let first = match queue.take(results.patience()) {
            Some(pieces) => results.sort(pieces),
            None => std::mem::take(&mut results.aside),
        };
        if first.is_empty() && queue.has_ended() {
            return Ok(());
        }
        if first.is_empty() {
            continue;
        }
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let mut group = Group::new(pause);
        group.add(&transaction, first)?;
        while !group.is_full()
            && let Some(more) = queue.take(Some(group.patience(results.synced)))
            && !more.is_empty()
        {
            group.add(&transaction, results.sort(more))?;
        }
        if group.wants(When::Synced) {
            failpoint::hit("before-sync");
            let durable = sync();
            durable.map_err(|error| Error::Storage {
                side: "destination",
                error,
            })?;
            results.synced = Instant::now();
            failpoint::hit("after-sync");
        }
        failpoint::hit("before-commit");
        let committing = Instant::now();
        transaction.commit()?;
        pause = Pause::after(group.rows, committing.elapsed());
        failpoint::hit("after-commit");
        group.after.into_iter().for_each(|after| after());
    }
}

/// Results of copying, which wait for a sync.
struct Results {
    aside: Vec<Piece>,
    synced: Instant,
    /// When a piece last came that must not wait for that.
    apart: Option<Instant>,
}

impl Results {
    fn new() -> Results {
        Results {
            aside: Vec::new(),
            synced: Instant::now(),
            apart: None,
        }
    }

    /// How long to wait for a first piece: as long as nothing was put aside.
    fn patience(&self) -> Option<Duration> {
        let due = LINGER.saturating_sub(self.synced.elapsed());
        (!self.aside.is_empty()).then_some(due)
    }

    /// What of these goes into a group now, after what was put aside if that is due.
    fn sort(&mut self, pieces: VecDeque<Piece>) -> Vec<Piece> {
        let now = Instant::now();
        if pieces.iter().any(|piece| piece.when == When::Apart) {
            self.apart = Some(now);
        }
        let is_barrier = pieces.iter().any(|piece| piece.when == When::Now);
        let is_due = now.duration_since(self.synced) >= LINGER;
        let is_apart = self.apart.is_some_and(|at| now.duration_since(at) < LINGER);
        if is_barrier || is_due || !is_apart {
            let mut all = std::mem::take(&mut self.aside);
            all.extend(pieces);
            return all;
        }
        let (results, rest) = pieces
            .into_iter()
            .partition::<Vec<_>, _>(|piece| piece.when == When::Synced);
        self.aside.extend(results);
        rest
    }
}

/// How long a group that somebody waits for is kept open, and how long for the next piece.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Pause {
    busy: Duration,
    quiet: Duration,
}

impl Pause {
    /// By what the group before had, and what its commit took.
    fn after(rows: usize, commit: Duration) -> Pause {
        if rows < LARGE {
            return Pause::default();
        }
        Pause {
            busy: BUSY.min(BUSY_COMMITS * commit),
            quiet: QUIET.min(commit),
        }
    }
}

/// Pieces of work that are committed together.
struct Group {
    began: Instant,
    wanted: [bool; 4],
    pause: Pause,
    rows: usize,
    after: Vec<After>,
}

impl Group {
    fn new(pause: Pause) -> Group {
        Group {
            began: Instant::now(),
            wanted: [false; 4],
            pause,
            rows: 0,
            after: Vec::new(),
        }
    }

    fn add(
        &mut self,
        transaction: &Transaction<'_>,
        pieces: impl IntoIterator<Item = Piece>,
    ) -> rusqlite::Result<()> {
        for piece in pieces {
            (piece.work)(transaction)?;
            self.wanted[piece.when as usize] = true;
            self.rows += piece.rows;
            self.after.push(piece.after);
        }
        Ok(())
    }

    fn wants(&self, when: When) -> bool {
        self.wanted[when as usize]
    }

    /// Whether it takes no more, even if more is waiting: where listings come faster than they are
    /// written, it would never end.
    fn is_full(&self) -> bool {
        self.after.len() >= GROUP || self.began.elapsed() >= LINGER
    }

    /// How long to wait for more.
    fn patience(&self, synced: Instant) -> Duration {
        let waited = self.began.elapsed();
        let now = self.wants(When::Now) || self.wants(When::Apart);
        match (now, self.wants(When::Synced)) {
            (true, _) => self.pause.busy.saturating_sub(waited).min(self.pause.quiet),
            (false, true) => LINGER.saturating_sub(synced.elapsed()),
            (false, false) => LINGER.saturating_sub(waited),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;
    use std::sync::atomic::Ordering::Relaxed;

    #[test]
    fn a_group_waits_for_others_as_far_as_a_commit_is_dear() {
        let dear = Pause::after(LARGE, Duration::from_secs(1));
        assert_eq!((dear.busy, dear.quiet), (BUSY, QUIET));
        let cheap = Pause::after(LARGE, Duration::from_millis(1));
        assert!(cheap.busy < dear.busy && cheap.quiet < dear.quiet);
        let small = Pause::after(LARGE - 1, Duration::from_secs(1));
        assert_eq!(small, Pause::default());
    }

    /// A listing that came without a pause was one group: nothing of it was durable, or copied,
    /// before its end.
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
            let told = durable.clone();
            // Of so many rows that only a few wait.
            writer.post_rows(When::Later, 4096, work, move || told.store(true, Relaxed));
            posted += 1;
        }
        writer.close().unwrap();
        assert!(posted < GROUP, "only a full group was committed");
    }
}
