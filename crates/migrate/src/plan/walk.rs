//! The driver: pages, leases, settles, and lets the sides go on.

use super::folders;
use super::lister::{Batch, Lister, Listers, Listing, Released, Word};
use super::side::{WINDOW, Walked, Work, unknown_root};
use super::{LAG, MAX_LEAD};
use crate::error::{Error, Result};
use crate::job::Job;
use crate::status::{Dst, Src};
use crate::store::When;
use headworks_core::rounds::{Advanced, Discovered, Lease, LeaseId, Settled, State};
use headworks_core::{
    Bound, Config, Coordinator, Job as PoolJob, Limits, Policy, Rate, Side, TargetConfig, TargetId,
};
use headworks_pool::{Pool, Workers};
use headworks_storage::Fault;
use rusqlite::{Connection, params};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

/// How many at which depth.
pub(super) type Summed = BTreeMap<u32, u64>;

/// How often a pause, a stop or a broken state file is looked for.
const LOOK: Duration = Duration::from_millis(200);

struct Walk<'a> {
    job: &'a Job,
    read: Connection,
    coordinator: Coordinator,
    sides: [Walked; 2],
    sender: mpsc::UnboundedSender<Word>,
    words: mpsc::UnboundedReceiver<Word>,
    ahead: Ahead,
}

/// Whether the destination's root is looked at before its turn, so that copying can begin while the
/// source's is still listed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ahead {
    /// From then on, if the source's root takes so long.
    From(Instant),
    /// It is being looked at.
    Running,
    /// It is known, or comes in its turn.
    Over,
}

/// How long the source's root may take before the destination's is looked at.
const GLANCE: Duration = Duration::from_millis(200);

/// Walks both sides until nothing is pending, or until somebody asks to stop. What is durable is
/// offered to `release`.
pub(crate) async fn walk(job: &Job, release: Option<mpsc::Sender<Vec<Released>>>) -> Result<()> {
    let ahead = match &release {
        Some(_) => Ahead::From(Instant::now() + GLANCE),
        None => Ahead::Over,
    };
    let (sender, words) = mpsc::unbounded_channel();
    let read = job.store.read()?;
    let side = |side| -> Result<Walked> {
        let release = release.clone().filter(|_| side == Side::Leader);
        let (pool, shape) = pool(job, side, sender.clone(), release)?;
        // A destination folder must end by `finish`, which declares what is below it: there only
        // attempts count.
        let budget = match side {
            Side::Leader => job.settings.retry_budget,
            Side::Follower => Duration::MAX,
        };
        Walked::new(side, pool, shape, budget, job.compare.destination, &read)
    };
    let sides = [side(Side::Leader)?, side(Side::Follower)?];
    let mut walk = Walk {
        job,
        read,
        coordinator: Coordinator::new(LAG, MAX_LEAD)?,
        sides,
        sender: sender.clone(),
        words,
        ahead,
    };
    drop(release);
    let walked = walk.run().await;
    let [leader, follower] = walk.sides;
    for side in [leader, follower] {
        let _ = side.pool.shutdown(Duration::from_secs(30)).await;
    }
    // Everything that was listed is worth keeping, also when the walk was stopped.
    let flushed = job.writer.write(|_| Ok(())).await;
    walked.and(flushed)
}

/// Folders of a disk that are listed one after the other on one thread: waking another costs more
/// than a listing.
const BATCH: usize = 64;

/// The pool of a side; how many workers it begins with, and how many folders a batch has at most.
fn pool(
    job: &Job,
    side: Side,
    words: mpsc::UnboundedSender<Word>,
    release: Option<mpsc::Sender<Vec<Released>>>,
) -> Result<(Pool<Batch>, (usize, usize))> {
    let backend = match side {
        Side::Leader => job.source.clone(),
        Side::Follower => job.destination.clone(),
    };
    let backend = backend.walked().unwrap_or(backend);
    let (base, most) = job
        .settings
        .workers
        .unwrap_or(backend.capabilities().workers);
    let rate = job.settings.requests.map(Rate::per_second);
    let limits = Limits {
        concurrent: u32::try_from(most).ok(),
        requests: rate,
        ..Limits::default()
    };
    let target = TargetConfig {
        limits,
        fault_threshold: 0, // a folder that fails tells nothing of the others
        ..TargetConfig::default()
    };
    let config = Config {
        policy: Policy::Strict,
        bound: Bound::Shared(WINDOW),
        max_waiting: Some(WINDOW),
        targets: vec![target],
        ..Config::default()
    };
    let local = backend.as_any().is::<headworks_storage::Local>();
    // While some hand over what they listed and take another batch, others list.
    let base = match local && job.settings.workers.is_none() {
        true => (2 * base).min(most),
        false => base,
    };
    // A limit on requests counts batches, so each must be one.
    let batch = match local && rate.is_none() {
        true => BATCH,
        false => 1,
    };
    let lister = Lister {
        local,
        timeless: side == Side::Follower && backend.capabilities().modified.is_none(),
        side,
        backend,
        writer: job.writer.clone(),
        filter: job.filter.clone(),
        words,
        progress: job.progress.clone(),
        job: job.id.clone(),
        stop: job.stop.clone(),
        compare: job.compare,
        own: job.own[side as usize].clone(),
        release,
    };
    let pool = Pool::new(config, Workers::new(base, most), Listers(Arc::new(lister)))?;
    Ok((pool, (base, batch)))
}

impl Walk<'_> {
    async fn run(&mut self) -> Result<()> {
        let follower = self.sides[1].pending.keys().next().copied().unwrap_or(0);
        self.coordinator.begin_pass(follower);
        let now = self.sides[0].pool.now();
        self.sides[0].start(now)?;
        loop {
            if self.job.stop.is_cancelled() {
                return self.stop();
            }
            self.heed_pause();
            self.step(Side::Leader)?;
            self.look_ahead()?;
            let may_start = self.ahead != Ahead::Running && self.coordinator.may_start(follower);
            if !self.sides[1].rounds.is_seeded() && may_start {
                let now = self.sides[1].pool.now();
                self.sides[1].start(now)?;
            }
            self.step(Side::Follower)?;
            if self.sides.iter().all(|side| side.rounds.is_completed()) {
                return Ok(());
            }
            self.wait().await?;
        }
    }

    /// Lists the destination's root, if its turn is far off. It counts only when its turn comes.
    fn look_ahead(&mut self) -> Result<()> {
        let Ahead::From(then) = self.ahead else {
            return Ok(());
        };
        let side = &self.sides[1];
        if side.rounds.is_seeded() || Instant::now() < then {
            return Ok(());
        }
        self.ahead = Ahead::Over;
        if let Some(root) = unknown_root(&self.read, &side.names)? {
            self.ahead = Ahead::Running;
            let listing = Listing {
                lease: None,
                work: Arc::new(root),
                attempt: 1,
            };
            self.submit(Side::Follower, vec![listing]);
        }
        Ok(())
    }

    async fn wait(&mut self) -> Result<()> {
        let due = |side: &Walked| side.rounds.wake_at().map(|at| at.since(side.pool.now()));
        let pause = self
            .sides
            .iter()
            .filter_map(due)
            .min()
            .unwrap_or(LOOK)
            .min(LOOK);
        let word = tokio::time::timeout(pause, self.words.recv()).await;
        if let Ok(Some(word)) = word {
            self.hear(word)?;
            while let Ok(word) = self.words.try_recv() {
                self.hear(word)?;
            }
        }
        match self.job.writer.is_alive() {
            true => Ok(()),
            false => Err(self.job.writer.failure().unwrap_or(Error::WriterGone)),
        }
    }

    fn heed_pause(&mut self) {
        let paused = self.job.progress.paused.load(Relaxed);
        for side in &mut self.sides {
            let now = side.pool.now();
            // The pool holds what was leased before the pause and has not begun.
            match (paused, side.rounds.state()) {
                (true, State::Running) => {
                    side.rounds.pause(now);
                    side.pool.pause();
                }
                (false, State::Paused) => {
                    side.rounds.resume(now);
                    side.pool.resume();
                }
                _ => {}
            }
        }
    }

    fn step(&mut self, which: Side) -> Result<()> {
        let side = &mut self.sides[which as usize];
        let now = side.pool.now();
        self.coordinator.report(which, side.rounds.position());
        while let Some(leave) = self.coordinator.leave(which) {
            if !matches!(side.rounds.advance(now, leave), Advanced::Entered(_)) {
                break;
            }
            side.entered();
            self.coordinator.report(which, side.rounds.position());
        }
        while self.lease_some(which)? {}
        self.show(which);
        Ok(())
    }

    /// Hands out some of what may be listed; whether there was any.
    fn lease_some(&mut self, which: Side) -> Result<bool> {
        let side = &mut self.sides[which as usize];
        let leases = side.lease(side.pool.now(), &self.read)?;
        self.coordinator.report(which, side.rounds.position());
        let any = !leases.is_empty();
        self.hand_out(which, leases);
        Ok(any)
    }

    fn hand_out(&mut self, which: Side, leases: Vec<Lease<Arc<Work>>>) {
        let mut derived: Vec<(LeaseId, u64, i64, Dst)> = Vec::new();
        let mut listings = Vec::new();
        for lease in leases {
            if let Some(state) = lease.node.derived {
                derived.push((
                    lease.id,
                    lease.node.row.subfolders,
                    lease.node.row.id,
                    state,
                ));
                continue;
            }
            listings.push(Listing {
                lease: Some(lease.id),
                work: lease.node,
                attempt: lease.attempt,
            });
        }
        self.submit(which, listings);
        if derived.is_empty() {
            return;
        }
        let settled = derived
            .iter()
            .map(|(lease, subfolders, ..)| (Some(*lease), *subfolders));
        let settled = settled.collect();
        let sender = self.sender.clone();
        self.job.writer.post(
            When::Apart,
            move |transaction| {
                let settled = derived
                    .iter()
                    .map(|(_, _, folder, state)| (*folder, (*state, false)));
                folders::settle(transaction, &settled.collect::<Vec<_>>())
            },
            move || drop(sender.send(Word::Settled(which, settled))),
        );
    }

    /// In batches that leave something for every worker.
    fn submit(&mut self, which: Side, listings: Vec<Listing>) {
        let side = &self.sides[which as usize];
        let size = (listings.len() / (2 * side.workers)).clamp(1, side.batch);
        let mut left = listings.into_iter();
        loop {
            let batch: Batch = left.by_ref().take(size).collect();
            if batch.is_empty() {
                return;
            }
            let job = PoolJob::new(batch).targets(TargetId::new(0));
            if side.pool.submit(job).is_err() {
                unreachable!("the window is as large as the queue");
            }
        }
    }

    fn hear(&mut self, word: Word) -> Result<()> {
        match word {
            Word::Settled(side, settled) => {
                let now = self.sides[side as usize].pool.now();
                for (lease, subfolders) in settled {
                    let Some(lease) = lease else {
                        self.ahead = Ahead::Over;
                        continue;
                    };
                    let rounds = &mut self.sides[side as usize].rounds;
                    let _ = rounds.finish(now, lease, Discovered::Count(subfolders));
                }
            }
            Word::Failed(side, listing, error) => match listing.lease {
                Some(lease) => self.failed(side, lease, &listing, &error)?,
                // It will be asked for again in its turn, and what it answers then counts.
                None => self.ahead = Ahead::Over,
            },
            Word::Returned => {}
        }
        Ok(())
    }

    fn failed(
        &mut self,
        which: Side,
        lease: LeaseId,
        listing: &Listing,
        error: &headworks_storage::Error,
    ) -> Result<()> {
        let name = ["source", "destination"][which as usize];
        if error.fault() == Fault::Fatal {
            let error = error.clone();
            return Err(Error::Storage { side: name, error });
        }
        let side = &mut self.sides[which as usize];
        let now = side.pool.now();
        let mut ended = false;
        let attempts = listing.work.reached.fail();
        if error.fault() == Fault::Temporary && attempts < self.job.settings.attempts {
            let pause = self.job.settings.backoff.delay(attempts, crate::random());
            match side.rounds.retry(now, lease, now + pause) {
                Settled::Failed { .. } => ended = true,
                _ => {
                    self.job.progress.sides[which as usize]
                        .retried
                        .fetch_add(1, Relaxed);
                    return Ok(());
                }
            }
        }
        let held = (!ended).then_some(lease);
        self.give_up(which, listing, error, held);
        Ok(())
    }

    /// Records the failure. A destination folder ends like any other: what is below it is declared,
    /// and becomes unknown.
    fn give_up(
        &mut self,
        which: Side,
        listing: &Listing,
        error: &headworks_storage::Error,
        held: Option<LeaseId>,
    ) {
        let row = listing.work.row.clone();
        let side = &mut self.sides[which as usize];
        let now = side.pool.now();
        if let Some(lease) = held {
            let _ = match which {
                Side::Leader => side.rounds.fail(now, lease),
                Side::Follower => side
                    .rounds
                    .finish(now, lease, Discovered::Count(row.subfolders)),
            };
        }
        let (cause, attempts) = (error.to_string(), listing.attempt);
        let (phase, column, state) = match which {
            Side::Leader => ("list source", "src", Src::Failed as i64),
            Side::Follower => ("list destination", "dst", Dst::Failed as i64),
        };
        let kind = format!("{:?}", error.kind());
        self.job.progress.failed.fetch_add(1, Relaxed);
        self.job.writer.post(
            When::Now,
            move |transaction| {
                let update = format!("UPDATE folder SET {column} = ? WHERE id = ?");
                transaction
                    .prepare_cached(&update)?
                    .execute(params![state, row.id])?;
                let (parent, name) = crate::store::place(transaction, row.id)?;
                let failure = crate::store::Failure {
                    phase,
                    kind: &kind,
                    cause: &cause,
                    attempts,
                };
                crate::store::put_failure(transaction, parent, &name, &failure)
            },
            || {},
        );
    }

    fn show(&self, which: Side) {
        let rounds = &self.sides[which as usize].rounds;
        self.job.progress.sides[which as usize].show(&rounds.progress(), rounds.state());
    }

    /// Leases nothing more; what runs may end and is kept.
    fn stop(&mut self) -> Result<()> {
        for side in &mut self.sides {
            let now = side.pool.now();
            side.rounds.stop(now);
        }
        Err(Error::Stopped)
    }
}
