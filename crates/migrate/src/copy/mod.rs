//! Copying: what is missing or different at the destination is brought there.
//!
//! Files moved out of the way of folders (if asked), folders, files, entries in the place of others
//! of another type (if asked), further names of files, removals (if asked), and last the times of
//! folders. Each finds its work in the state file and records what it did there, so that each can
//! be cut off anywhere and begun again. A result counts when its group is durable, and the
//! destination was synced before that.

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

pub(crate) use overlap::copy_during_plan;
pub use preflight::Preflight;
pub use remove::Deletion;

use crate::error::{Error, Result};
use crate::job::{Job, stage};
use crate::progress::Phase;
use crate::queries::Outcome;
use crate::store::set_meta;
use headworks_core::{Bound, Config, Cost, Job as PoolJob, Limits, Policy, Rate, TargetConfig};
use headworks_pool::{Permits, Pool, Workers};
use headworks_storage::{Backend, Local};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, PoisonError};
use std::time::Duration;
use survey::Surveyor;
use tasks::{Copier, CopyHandler, Fatal, Task};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

/// What becomes of entries that are at the destination only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Delete {
    /// They stay.
    #[default]
    Keep,
    /// They are moved to a folder at the destination's root, which plans skip.
    Quarantine {
        /// How many entries at most; if it would be more, nothing is moved.
        limit: Option<u64>,
    },
    /// They are removed for good.
    Permanent {
        /// How many entries at most; if it would be more, nothing is removed.
        limit: u64,
    },
}

impl Delete {
    /// How many entries may go in a pass. A folder counts with all that is in it.
    #[must_use]
    pub fn limit(self) -> Option<u64> {
        match self {
            Delete::Keep => None,
            Delete::Quarantine { limit } => limit,
            Delete::Permanent { limit } => Some(limit),
        }
    }

    /// Where the state file counts what went.
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

/// How to copy.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct CopyOptions {
    /// Transfers at once at most; without it what the backends suggest.
    pub transfers: Option<usize>,
    /// Bytes a second at most.
    pub bwlimit: Option<u64>,
    /// Let all bytes pass through us, so that all hashes are known.
    pub checksum: bool,
    /// What becomes of what is not on the source.
    pub delete: Delete,
    /// Whether it becomes of what filters exclude as well, also if it is on the source.
    pub delete_excluded: bool,
    /// Whether a source without entries may delete anything.
    pub allow_empty_source: bool,
}

/// A run of copying: what its phases share.
struct CopyRun<'a> {
    job: &'a Job,
    options: &'a CopyOptions,
    pass: i64,
    pool: Pool<Task>,
    /// For entries that do not go through the pool.
    copier: Arc<Copier>,
    surveyor: Surveyor,
    /// Tasks that may be handed in and not done at once.
    slots: Arc<Semaphore>,
    fatal: Fatal,
    /// Whether both sides are disks of this machine.
    local: bool,
}

/// Tasks that wait in the pool, and so in memory; more if there are many workers, so that it can
/// tell whether more are needed.
const MAX_QUEUED_TASKS: usize = 64;

impl Job {
    /// What copying would need and lose. Looks, and changes nothing.
    ///
    /// # Errors
    /// When a side or the state file cannot be used.
    pub async fn preflight(&self, options: &CopyOptions) -> Result<Preflight> {
        preflight::estimate(self, options).await
    }

    /// Calls `each` for everything at the destination that copying would remove or move to
    /// quarantine. Looks, and changes nothing.
    ///
    /// # Errors
    /// When a side or the state file cannot be used, or `each` says so.
    pub async fn deletions(
        &self,
        options: &CopyOptions,
        each: impl FnMut(&Deletion) -> Result<()>,
    ) -> Result<()> {
        remove::each_deletion(self, options, each).await.map(drop)
    }

    /// Copies, or goes on with it.
    ///
    /// # Errors
    /// When a side or the state file cannot be used, the destination cannot take it, or somebody
    /// asked to stop.
    pub async fn copy(&self, options: &CopyOptions) -> Result<Outcome> {
        match self.stage()?.as_str() {
            stage::PLANNING => {
                let message =
                    "the plan is not finished: run `headworks migrate plan` or `run` first";
                return Err(Error::Refused(message.into()));
            }
            stage::DONE => return self.state()?.outcome(),
            stage::PLANNED => self.preflight(options).await?.check()?,
            // With other options than before, deletions may be more than is allowed.
            _ => preflight::deletions(self, options).await?.check()?,
        }
        self.enter_stage(stage::COPYING, "copy began or went on".into())
            .await?;
        let copied = CopyRun::new(self, options, None)?.run().await;
        // What was done is worth keeping, also when the run was stopped.
        let flushed = self.writer.write(|_| Ok(())).await;
        copied.and(flushed)?;
        let outcome = self.state()?.outcome()?;
        let message = outcome
            .classes
            .iter()
            .map(|(class, count)| format!("{} {}", count.entries, class.word()));
        let message = message.collect::<Vec<_>>().join(", ");
        let json = serde_json::to_string(&outcome).unwrap_or_default();
        let keep =
            move |transaction: &rusqlite::Transaction<'_>| set_meta(transaction, "outcome", json);
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
        let (base, most) = workers(job, options, local);
        let max_queued = MAX_QUEUED_TASKS.max(4 * most);
        let limits = Limits {
            concurrent: u32::try_from(most).ok(),
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
        Ok(CopyRun {
            job,
            options,
            pass,
            pool: Pool::new(
                config,
                Workers::new(base, most),
                CopyHandler(copier.clone()),
            )?,
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

    /// Hands a task in as soon as there is room for it.
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
            .expect("it is never closed");
        let job = PoolJob::new(make_task(slot));
        match self.pool.submit(job) {
            Ok(_) => Ok(()),
            Err(_) => unreachable!("there are as many places as permits"),
        }
    }

    /// Waits while paused; fails when somebody asked to stop or a side cannot be used.
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
        let fatal = self.fatal.lock().unwrap_or_else(PoisonError::into_inner);
        fatal.clone()
    }

    /// Waits until everything handed in is done, and durable.
    async fn drain(&self) -> Result<()> {
        self.pool.idle().await;
        self.job.writer.write(|_| Ok(())).await?;
        self.apply_control().await
    }
}

/// How many transfers at once, at the start and at most. A disk gains nothing from more than it
/// starts with.
fn workers(job: &Job, options: &CopyOptions, local: bool) -> (usize, usize) {
    if let Some(transfers) = options.transfers {
        return (transfers.max(1), transfers.max(1));
    }
    let (here, there) = (job.source.capabilities(), job.destination.capabilities());
    let base = here.workers.0.max(there.workers.0).max(1);
    match local {
        true => (base, base),
        false => (base, here.workers.1.max(there.workers.1).max(base)),
    }
}

/// What lets so many bytes a second pass.
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
