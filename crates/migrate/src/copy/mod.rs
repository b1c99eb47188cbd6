//! Copying entries that are missing or different at the destination.
//!
//! The phases, in order: files in the way of folders are quarantined (if asked), folders are made,
//! files are copied, entries of another type are replaced (if asked), hard links are made, extra
//! entries are deleted (if asked), and the attributes of folders are set. Each phase reads its work
//! from the state file and records its results there, so it can be interrupted anywhere and
//! repeated. A result counts when its group is committed, and the destination is synced before the
//! commit.

mod existing;
mod files;
mod folders;
mod links;
mod overlap;
mod preflight;
mod record;
mod remove;
mod replace;
mod survey;
mod tasks;
mod transfer;

pub use existing::Existing;
pub(crate) use existing::KEPT;
pub(crate) use overlap::copy_during_plan;
pub use preflight::Preflight;
pub use remove::Deletion;

use crate::concurrency::Concurrency;
use crate::error::{Error, Result};
use crate::job::{Job, stage};
use crate::progress::Phase;
use crate::queries::Outcome;
use crate::store::set_meta;
use crate::verify::damaged;
use headworks_core::{Bound, Config, Cost, Job as PoolJob, Limits, Policy, Rate, TargetConfig};
use headworks_pool::{Permits, Pool, Workers};
use headworks_storage::{Backend, Local};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use survey::Surveyor;
use tasks::{Copier, CopyHandler, Fatal, Task};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

/// The policy for entries that only the destination has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Delete {
    /// Keeps them.
    #[default]
    Keep,
    /// Moves them to a folder in the destination's root, which plans skip.
    Quarantine {
        /// Maximum number of entries; if there are more, nothing is moved.
        limit: Option<u64>,
    },
    /// Removes them permanently.
    Permanent {
        /// Maximum number of entries; if there are more, nothing is removed.
        limit: u64,
    },
}

impl Delete {
    /// Returns how many entries a pass may remove. A folder counts with everything in it.
    #[must_use]
    pub fn limit(self) -> Option<u64> {
        match self {
            Delete::Keep => None,
            Delete::Quarantine { limit } => limit,
            Delete::Permanent { limit } => Some(limit),
        }
    }

    /// Returns the key under which the state file counts removed entries.
    fn counter(self) -> &'static str {
        match self {
            Delete::Quarantine { .. } => "quarantined",
            Delete::Keep | Delete::Permanent { .. } => "deleted",
        }
    }

    fn participle(self) -> &'static str {
        match self {
            Delete::Quarantine { .. } => "moved to quarantine",
            Delete::Keep | Delete::Permanent { .. } => "deleted",
        }
    }
}

/// Options of a copy.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct CopyOptions {
    /// Maximum number of concurrent transfers; by default the backends decide.
    pub transfers: Option<usize>,
    /// Maximum number of bytes per second.
    pub bwlimit: Option<u64>,
    /// Reads all bytes through this process, so that every hash is known.
    pub checksum: bool,
    /// The policy for files that differ at the destination.
    pub existing: Existing,
    /// The policy for entries that are not on the source.
    pub delete: Delete,
    /// Applies that policy to excluded entries too, even if the source has them.
    pub delete_excluded: bool,
    /// Allows an empty source to delete entries at the destination.
    pub allow_empty_source: bool,
    /// Copy even if more bytes are to be copied than the destination has free.
    pub ignore_free_space: bool,
}

/// A run of the copy, shared by its phases.
struct CopyRun<'a> {
    job: &'a Job,
    options: &'a CopyOptions,
    pass: i64,
    pool: Pool<Task>,
    /// Copies entries that do not go through the pool.
    copier: Arc<Copier>,
    surveyor: Surveyor,
    /// Limits the tasks that are submitted and not finished.
    slots: Arc<Semaphore>,
    fatal: Fatal,
    /// Whether both sides are local disks.
    local: bool,
    concurrency: Concurrency,
    _adjust: AbortOnDropHandle<()>,
}

/// The number of unfinished tasks that may be in the pool, and so in memory, is this or four per
/// worker, whichever is more: with a backlog it can be measured whether more workers would help.
const MIN_TASK_SLOTS: usize = 64;

impl Job {
    /// Estimates what a copy would need and lose. Changes nothing.
    ///
    /// # Errors
    /// When a side or the state file cannot be used.
    pub async fn preflight(&self, options: &CopyOptions) -> Result<Preflight> {
        preflight::estimate(self, options).await
    }

    /// Calls `each` for every entry at the destination that a copy would remove or quarantine.
    /// Changes nothing.
    ///
    /// # Errors
    /// When a side or the state file cannot be used, or `each` fails.
    pub async fn deletions(
        &self,
        options: &CopyOptions,
        each: impl FnMut(&Deletion) -> Result<()>,
    ) -> Result<()> {
        remove::each_deletion(self, options, each).await.map(drop)
    }

    /// Copies, or resumes an interrupted copy.
    ///
    /// # Errors
    /// When a side or the state file cannot be used, the destination has no room, or the job is
    /// stopped.
    pub async fn copy(&self, options: &CopyOptions) -> Result<Outcome> {
        match self.stage()?.as_str() {
            stage::PLANNING => {
                let message =
                    "the plan is not finished: run `headworks migrate plan` or `run` first";
                return Err(Error::Refused(message.into()));
            }
            stage::DONE => return self.state()?.outcome(),
            stage::PLANNED => self.preflight(options).await?.check()?,
            // Other options than before may delete more than is allowed.
            _ => preflight::deletions(self, options).await?.check()?,
        }
        self.enter_stage(stage::COPYING, "copy started or resumed".into())
            .await?;
        // Whether an existing file is kept is decided by the options of this run.
        let forget_kept = |transaction: &rusqlite::Transaction<'_>| {
            let delete = "DELETE FROM failure WHERE kind = ?";
            transaction.execute(delete, [KEPT]).map(drop)
        };
        self.writer.write(forget_kept).await?;
        let copied = CopyRun::new(self, options, None)?.run().await;
        // An empty write waits until all results are durable, also when the run was stopped.
        let flushed = self.writer.write(|_| Ok(())).await;
        copied.and(flushed)?;
        let outcome = self.state()?.outcome()?;
        let message = outcome
            .classes
            .iter()
            .map(|(class, count)| format!("{} {}", count.entries, class.word()));
        let message = message.collect::<Vec<_>>().join(", ");
        let json = serde_json::to_string(&outcome).unwrap_or_default();
        let keep = move |transaction: &rusqlite::Transaction<'_>| {
            damaged::unmark_copied(transaction)?;
            set_meta(transaction, "outcome", json)
        };
        self.writer.write(keep).await?;
        self.enter_stage(stage::DONE, format!("copy finished: {message}"))
            .await?;
        self.progress.enter(Phase::Done, 0, 0);
        Ok(outcome)
    }
}

impl<'a> CopyRun<'a> {
    fn new(
        job: &'a Job,
        options: &'a CopyOptions,
        plan_done: Option<CancellationToken>,
    ) -> Result<CopyRun<'a>> {
        let is_local = |backend: &Arc<dyn Backend>| backend.as_any().is::<Local>();
        let local = is_local(&job.source) && is_local(&job.destination);
        let (base, most) = workers(job, options);
        let max_queued = MIN_TASK_SLOTS.max(4 * most);
        let limits = Limits {
            concurrent: u32::try_from(base).ok(),
            ..Limits::default()
        };
        let target = TargetConfig {
            limits,
            fault_threshold: 0,
            ..TargetConfig::default()
        };
        let config = Config {
            policy: Policy::Strict,
            bound: Bound::Shared(max_queued + most),
            max_waiting: Some(max_queued + most),
            targets: vec![target],
            ..Config::default()
        };
        let state = job.state()?;
        let pass = state.pass()?;
        let fatal = Fatal::default();
        let surveyor = Surveyor::new(job, &state, options)?;
        let copier = Arc::new(Copier {
            local,
            destination_is_local: is_local(&job.destination),
            source: job.source.clone(),
            destination: job.destination.clone(),
            writer: job.writer.clone(),
            progress: job.progress.clone(),
            bandwidth: options.bwlimit.map(bandwidth).transpose()?,
            checksum: options.checksum,
            attempts: job.settings.attempts,
            backoff: job.settings.backoff,
            stop: job.stop.clone(),
            fatal: fatal.clone(),
            job: job.id.clone(),
            pass,
            plan_done,
        });
        // The target's limit decides how many of the workers run at a time.
        let workers = Workers::new(most, most);
        let pool = Pool::new(config, workers, CopyHandler(copier.clone()))?;
        let concurrency = Concurrency::new(base);
        let progress = job.progress.clone();
        let shown = progress.clone();
        let work = move || progress.copied_units();
        let show = move |limit, running| shown.transfers.set(limit, running);
        let adjust = concurrency.adjust(pool.handle(), most, work, show);
        Ok(CopyRun {
            job,
            options,
            pass,
            pool,
            concurrency,
            _adjust: adjust,
            copier,
            surveyor,
            slots: Arc::new(Semaphore::new(max_queued)),
            fatal,
            local,
        })
    }

    async fn run(self) -> Result<()> {
        let done = self.phases().await;
        let CopyRun { pool, .. } = self;
        let _ = pool.shutdown(Duration::from_secs(3600)).await;
        done
    }

    async fn phases(&self) -> Result<()> {
        self.quarantine_blocking_files().await?;
        self.make_folders().await?;
        self.copy_files().await?;
        self.replace_conflicting().await?;
        self.link_files().await?;
        self.delete_extra().await?;
        self.remove_replaced().await?;
        self.set_folder_attributes().await
    }

    /// Submits a task as soon as a slot is free.
    async fn submit(
        &self,
        make_task: impl FnOnce(tokio::sync::OwnedSemaphorePermit) -> Task,
    ) -> Result<()> {
        self.apply_control().await?;
        let slot = self
            .slots
            .clone()
            .acquire_owned()
            .await
            .expect("the semaphore is never closed");
        let job = PoolJob::new(make_task(slot));
        match self.pool.submit(job) {
            Ok(_) => Ok(()),
            Err(_) => unreachable!("the queue is as long as there are slots"),
        }
    }

    /// Waits while the job is paused. Fails when it is stopped, a side cannot be used, or the
    /// writer failed.
    async fn apply_control(&self) -> Result<()> {
        loop {
            if let Some((side, error)) = self.fatal() {
                return Err(Error::Storage { side, error });
            }
            if self.job.stop.is_cancelled() {
                return Err(Error::Stopped);
            }
            if !self.job.writer.is_alive() {
                return Err(self.job.writer.failure().unwrap_or(Error::WriterGone));
            }
            if !self.job.progress.paused.load(Relaxed) {
                self.pool.resume();
                return Ok(());
            }
            self.pool.pause();
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    fn fatal(&self) -> Option<(&'static str, headworks_storage::Error)> {
        let fatal = self.fatal.lock();
        fatal.clone()
    }

    /// Waits until everything submitted is finished and durable.
    async fn drain(&self) -> Result<()> {
        self.pool.idle().await;
        self.job.writer.write(|_| Ok(())).await?;
        self.apply_control().await
    }
}

/// Returns the initial and the maximum number of concurrent transfers.
fn workers(job: &Job, options: &CopyOptions) -> (usize, usize) {
    if let Some(transfers) = options.transfers {
        return (transfers.max(1), transfers.max(1));
    }
    let (source, destination) = (job.source.capabilities(), job.destination.capabilities());
    let base = source.workers.0.max(destination.workers.0).max(1);
    (base, source.workers.1.max(destination.workers.1).max(base))
}

/// Returns a limiter that passes this many bytes per second.
fn bandwidth(bytes: u64) -> Result<Permits> {
    let rate = Rate::per_second(bytes as f64).with_burst(Cost(bytes.max(1)));
    let limits = Limits {
        cost: Some(rate),
        ..Limits::default()
    };
    let config = Config {
        limits,
        ..Config::default()
    };
    Ok(Permits::new(config)?)
}
