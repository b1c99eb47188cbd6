//! The driver of the walk: pages folders in, leases them, settles them, and advances the sides.

use super::folders;
use super::lister::{Batch, DurableNames, ListHandler, ListTask, Lister, WalkEvent};
use super::side_state::{ListingLimits, PendingFolder, SideState, WINDOW, unlisted_root};
use crate::concurrency::Concurrency;
use crate::error::{Error, Result};
use crate::job::Job;
use crate::side::Side;
use crate::status::{DstState, SrcState};
use crate::store::CommitMode;
use headworks_core::rounds::{Advanced, Discovered, Lease, LeaseId, Settled, State};
use headworks_core::{
    Bound, Config, Coordinator, Job as PoolJob, Limits, Policy, Rate, TargetConfig, TargetId,
};
use headworks_pool::{Pool, Workers};
use headworks_storage::Fault;
use rusqlite::{Connection, params};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

/// Number of folders by depth.
pub(super) type CountByDepth = BTreeMap<u32, u64>;

/// Interval at which a pause, a stop or a failed writer is noticed.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

struct Walk<'a> {
    job: &'a Job,
    read: Connection,
    coordinator: Coordinator,
    sides: [SideState; 2],
    sender: mpsc::UnboundedSender<WalkEvent>,
    events: mpsc::UnboundedReceiver<WalkEvent>,
    early_root: EarlyRoot,
}

/// The early listing of the destination's root, so that copying can begin while the source's root
/// is still being listed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum EarlyRoot {
    /// Starts at this time, if the source's root takes that long.
    After(Instant),
    /// The root is being listed.
    Running,
    /// The root is known, or will be listed in its turn.
    Finished,
}

/// How long the source's root may take before the destination's is listed early.
const EARLY_ROOT_DELAY: Duration = Duration::from_millis(200);

/// Walks both sides until nothing is pending, or the job is stopped. Offers durable pages to
/// `durable`.
pub(crate) async fn walk(
    job: &Job,
    durable: Option<mpsc::Sender<Vec<DurableNames>>>,
) -> Result<()> {
    let early_root = match &durable {
        Some(_) => EarlyRoot::After(Instant::now() + EARLY_ROOT_DELAY),
        None => EarlyRoot::Finished,
    };
    let (sender, events) = mpsc::unbounded_channel();
    let read = job.store.read()?;
    let side = |side| -> Result<SideState> {
        let durable = durable.clone().filter(|_| side == Side::Source);
        let (pool, limits) = pool(job, side, sender.clone(), durable)?;
        // A destination folder must end by `finish`, which declares the folders below it, so its
        // retries are limited by attempts alone.
        let budget = match side {
            Side::Source => job.settings.retry_budget,
            Side::Destination => Duration::MAX,
        };
        SideState::new(side, pool, limits, budget, job.compare.destination, &read)
    };
    let sides = [side(Side::Source)?, side(Side::Destination)?];
    let mut walk = Walk {
        job,
        read,
        coordinator: Coordinator::new(job.settings.lag, job.settings.max_lead)?,
        sides,
        sender: sender.clone(),
        events,
        early_root,
    };
    drop(durable);
    let walked = walk.run().await;
    let [leader, follower] = walk.sides;
    for side in [leader, follower] {
        let _ = side.pool.shutdown(Duration::from_secs(30)).await;
    }
    // Completed listings are kept, also when the walk was stopped.
    let flushed = job.writer.write(|_| Ok(())).await;
    walked.and(flushed)
}

/// Folders of a local disk that are listed one after the other on one thread: waking another thread
/// costs more than a listing.
const BATCH: usize = 64;
/// Folders in a batch while nothing is known about the disk.
const FIRST_BATCH: usize = 16;

/// Returns the pool of a side, the number of concurrent listings, and the maximum size of a batch.
fn pool(
    job: &Job,
    side: Side,
    events: mpsc::UnboundedSender<WalkEvent>,
    durable: Option<mpsc::Sender<Vec<DurableNames>>>,
) -> Result<(Pool<Batch>, ListingLimits)> {
    let backend = match side {
        Side::Source => job.source.clone(),
        Side::Destination => job.destination.clone(),
    };
    let backend = backend.for_walk().unwrap_or(backend);
    let (base, most) = job
        .settings
        .workers
        .unwrap_or(backend.capabilities().workers);
    let local = backend.as_any().is::<headworks_storage::Local>();
    // While some workers hand over their results and take another batch, others list.
    let base = match local && job.settings.workers.is_none() {
        true => (2 * base).min(most),
        false => base,
    };
    let rate = job.settings.requests.map(Rate::per_second);
    let limits = Limits {
        concurrent: u32::try_from(base).ok(),
        requests: rate,
        ..Limits::default()
    };
    let target = TargetConfig {
        limits,
        fault_threshold: 0, // a failed folder says nothing about the others
        ..TargetConfig::default()
    };
    let config = Config {
        policy: Policy::Strict,
        bound: Bound::Shared(WINDOW),
        max_waiting: Some(WINDOW),
        targets: vec![target],
        ..Config::default()
    };
    // A limit on requests counts batches, so a batch must be one request.
    let batch = match local && rate.is_none() {
        true => BATCH,
        false => 1,
    };
    let lister = Lister {
        local,
        timeless: side == Side::Destination && backend.capabilities().modified.is_none(),
        side,
        backend,
        writer: job.writer.clone(),
        filter: job.filter.clone(),
        events,
        progress: job.progress.clone(),
        job: job.id.clone(),
        stop: job.stop.clone(),
        compare: job.compare,
        state_file_in_tree: job.state_file_in_tree[side as usize].clone(),
        durable,
    };
    // The target's limit decides how many of the workers run at a time.
    let workers = Workers::new(most, most);
    let pool = Pool::new(config, workers, ListHandler(Arc::new(lister)))?;
    let concurrency = Concurrency::new(base);
    let progress = job.progress.clone();
    let shown = progress.clone();
    let work = move || progress.listed_units(side);
    let show = move |limit, running| shown.sides[side as usize].calls.set(limit, running);
    let adjust = concurrency.adjust(pool.handle(), most, work, show);
    let limits = ListingLimits {
        concurrency,
        max_batch: batch,
        _adjust: adjust,
    };
    Ok((pool, limits))
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
            self.apply_pause();
            self.advance(Side::Source)?;
            self.list_root_early()?;
            let may_start =
                self.early_root != EarlyRoot::Running && self.coordinator.may_start(follower);
            if !self.sides[1].rounds.is_seeded() && may_start {
                let now = self.sides[1].pool.now();
                self.sides[1].start(now)?;
            }
            self.advance(Side::Destination)?;
            if self.sides.iter().all(|side| side.rounds.is_completed()) {
                return Ok(());
            }
            self.wait().await?;
        }
    }

    /// Lists the destination's root early, if its turn is far off. The result counts in its turn.
    fn list_root_early(&mut self) -> Result<()> {
        let EarlyRoot::After(then) = self.early_root else {
            return Ok(());
        };
        let side = &self.sides[1];
        if side.rounds.is_seeded() || Instant::now() < then {
            return Ok(());
        }
        self.early_root = EarlyRoot::Finished;
        // Where the destination folds names, its entries are matched with those of the source,
        // which must be known.
        if self.job.compare.folds_names() {
            return Ok(());
        }
        if let Some(root) = unlisted_root(&self.read, &side.destination)? {
            self.early_root = EarlyRoot::Running;
            let listing = ListTask {
                lease: None,
                folder: Arc::new(root),
                attempt: 1,
            };
            self.submit(Side::Destination, vec![listing]);
        }
        Ok(())
    }

    async fn wait(&mut self) -> Result<()> {
        let due = |side: &SideState| side.rounds.wake_at().map(|at| at.since(side.pool.now()));
        let pause = self
            .sides
            .iter()
            .filter_map(due)
            .min()
            .unwrap_or(POLL_INTERVAL)
            .min(POLL_INTERVAL);
        let event = tokio::time::timeout(pause, self.events.recv()).await;
        if let Ok(Some(event)) = event {
            self.handle(event)?;
            while let Ok(event) = self.events.try_recv() {
                self.handle(event)?;
            }
        }
        match self.job.writer.is_alive() {
            true => Ok(()),
            false => Err(self.job.writer.failure().unwrap_or(Error::WriterGone)),
        }
    }

    fn apply_pause(&mut self) {
        let paused = self.job.progress.paused.load(Relaxed);
        for side in &mut self.sides {
            let now = side.pool.now();
            // The pool holds what was leased before the pause and has not started.
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

    fn advance(&mut self, which: Side) -> Result<()> {
        let side = &mut self.sides[which as usize];
        let now = side.pool.now();
        self.coordinator
            .report(which.role(), side.rounds.position());
        while let Some(leave) = self.coordinator.leave(which.role()) {
            if !matches!(side.rounds.advance(now, leave), Advanced::Entered(_)) {
                break;
            }
            side.reset_paging();
            self.coordinator
                .report(which.role(), side.rounds.position());
        }
        while self.lease_folders(which)? {}
        self.publish_progress(which);
        Ok(())
    }

    /// Leases and dispatches some folders. Returns whether there were any.
    fn lease_folders(&mut self, which: Side) -> Result<bool> {
        let side = &mut self.sides[which as usize];
        let leases = side.lease(side.pool.now(), &self.read)?;
        self.coordinator
            .report(which.role(), side.rounds.position());
        let any = !leases.is_empty();
        self.dispatch(which, leases);
        Ok(any)
    }

    fn dispatch(&mut self, which: Side, leases: Vec<Lease<Arc<PendingFolder>>>) {
        let mut derived: Vec<(LeaseId, u64, i64, DstState)> = Vec::new();
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
            listings.push(ListTask {
                lease: Some(lease.id),
                folder: lease.node,
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
            CommitMode::Prompt,
            move |transaction| {
                let settled = derived
                    .iter()
                    .map(|(_, _, folder, state)| (*folder, (*state, false)));
                folders::mark_settled(transaction, &settled.collect::<Vec<_>>())
            },
            move || drop(sender.send(WalkEvent::Settled(which, settled))),
        );
    }

    /// Submits listings in batches that leave work for every worker.
    fn submit(&mut self, which: Side, listings: Vec<ListTask>) {
        let side = &self.sides[which as usize];
        let limits = &side.limits;
        let fair = listings.len() / (2 * limits.concurrency.current());
        let timely = limits.concurrency.batch(FIRST_BATCH, limits.max_batch);
        let size = fair.clamp(1, timely);
        let mut left = listings.into_iter();
        loop {
            let batch: Batch = left.by_ref().take(size).collect();
            if batch.is_empty() {
                return;
            }
            let job = PoolJob::new(batch).targets(TargetId::new(0));
            if side.pool.submit(job).is_err() {
                unreachable!("the queue is as long as the window");
            }
        }
    }

    fn handle(&mut self, event: WalkEvent) -> Result<()> {
        match event {
            WalkEvent::Settled(side, settled) => {
                let now = self.sides[side as usize].pool.now();
                for (lease, subfolders) in settled {
                    let Some(lease) = lease else {
                        self.early_root = EarlyRoot::Finished;
                        continue;
                    };
                    let rounds = &mut self.sides[side as usize].rounds;
                    let _ = rounds.finish(now, lease, Discovered::Count(subfolders));
                }
            }
            WalkEvent::Failed(side, listing, error) => match listing.lease {
                Some(lease) => self.listing_failed(side, lease, &listing, &error)?,
                // It is listed again in its turn, and that result counts.
                None => self.early_root = EarlyRoot::Finished,
            },
            WalkEvent::Returned => {}
        }
        Ok(())
    }

    fn listing_failed(
        &mut self,
        which: Side,
        lease: LeaseId,
        listing: &ListTask,
        error: &headworks_storage::Error,
    ) -> Result<()> {
        if error.fault() == Fault::Fatal {
            return Err(which.error(error.clone()));
        }
        let side = &mut self.sides[which as usize];
        let now = side.pool.now();
        let mut ended = false;
        let attempts = listing.folder.progress.record_failure();
        if error.fault() == Fault::Temporary && attempts < self.job.settings.attempts {
            let pause = self.job.settings.backoff.delay(attempts, fastrand::u64(..));
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
        let lease_to_end = (!ended).then_some(lease);
        self.record_failed_listing(which, listing, error, lease_to_end);
        Ok(())
    }

    /// Records a failed listing. A destination folder ends like any other: the folders below it are
    /// declared, and become unknown.
    fn record_failed_listing(
        &mut self,
        which: Side,
        listing: &ListTask,
        error: &headworks_storage::Error,
        lease_to_end: Option<LeaseId>,
    ) {
        let row = listing.folder.row.clone();
        let side = &mut self.sides[which as usize];
        let now = side.pool.now();
        if let Some(lease) = lease_to_end {
            let _ = match which {
                Side::Source => side.rounds.fail(now, lease),
                Side::Destination => {
                    side.rounds
                        .finish(now, lease, Discovered::Count(row.subfolders))
                }
            };
        }
        let (cause, attempts) = (error.to_string(), listing.attempt);
        let (phase, column, state) = match which {
            Side::Source => ("list source", "src", SrcState::Failed as i64),
            Side::Destination => ("list destination", "dst", DstState::Failed as i64),
        };
        let kind = format!("{:?}", error.kind());
        self.job.progress.failed.fetch_add(1, Relaxed);
        self.job.writer.post(
            CommitMode::Barrier,
            move |transaction| {
                let update = format!("UPDATE folder SET {column} = ? WHERE id = ?");
                transaction
                    .prepare_cached(&update)?
                    .execute(params![state, row.id])?;
                let (parent, name) = crate::store::folder_entry_key(transaction, row.id)?;
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

    fn publish_progress(&self, which: Side) {
        let rounds = &self.sides[which as usize].rounds;
        self.job.progress.sides[which as usize].update(&rounds.progress(), rounds.state());
    }

    /// Stops leasing. Running listings may finish, and are kept.
    fn stop(&mut self) -> Result<()> {
        for side in &mut self.sides {
            let now = side.pool.now();
            side.rounds.stop(now);
        }
        Err(Error::Stopped)
    }
}
