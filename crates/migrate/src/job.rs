//! A job: its state file, its two sides, and its stages.

use crate::control;
use crate::copy::{CopyOptions, copy_during_plan};
use crate::error::{Error, Result};
use crate::filter::{Filter, Filters};
use crate::names::StateFileLocation;
use crate::preserve::Preserve;
use crate::progress::{Phase, Progress};
use crate::queries::{StateReader, Summary, roll_up};
use crate::side::Side;
use crate::status::Comparison;
use crate::store::{CommitMode, Lock, Store, Writer, log, meta, set_meta};
use crate::verify::damaged;
use headworks_core::Backoff;
use headworks_storage::display;
use headworks_storage::{Backend, Capabilities, Folder, Local, Probe, Requests, failpoint};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

/// Settings of a run. Not stored: every run may choose them anew.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Settings {
    /// Total attempts for a call that fails temporarily.
    pub attempts: u32,
    /// Delays between the attempts.
    pub backoff: Backoff,
    /// How long a source folder is retried within its round.
    pub retry_budget: Duration,
    /// Initial and maximum number of workers per side; by default the backend decides.
    pub workers: Option<(usize, usize)>,
    /// Maximum number of listings per second and side.
    pub requests: Option<f64>,
    /// Rounds that the source must be ahead before the destination enters one.
    pub lag: u32,
    /// Rounds that the source may be ahead while the destination has work.
    pub max_lead: u32,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            attempts: 5,
            backoff: Backoff::new(Duration::from_millis(50), Duration::from_secs(10)),
            retry_budget: Duration::from_secs(60),
            workers: None,
            requests: None,
            lag: crate::plan::LAG,
            max_lead: crate::plan::MAX_LEAD,
        }
    }
}

/// Pages of durable names that may wait to be copied while the plan runs.
const QUEUED_PAGES: usize = 16;

/// A migration run by this process, which holds the lock of the state file.
pub struct Job {
    pub(crate) store: Store,
    pub(crate) writer: Writer,
    pub(crate) source: Arc<dyn Backend>,
    pub(crate) destination: Arc<dyn Backend>,
    pub(crate) compare: Comparison,
    pub(crate) filter: Arc<Filter>,
    pub(crate) settings: Settings,
    pub(crate) progress: Arc<Progress>,
    pub(crate) stop: CancellationToken,
    pub(crate) id: String,
    /// The properties that the destination was found to keep.
    probe: Option<Probe>,
    /// The location of the state file in each of the trees, if it is inside one.
    pub(crate) state_file_in_tree: [Option<StateFileLocation>; 2],
    _control_task: AbortOnDropHandle<()>,
    _lock: Lock,
}

/// The stages of a job. The text is stored.
pub(crate) mod stage {
    pub(crate) const PLANNING: &str = "planning";
    pub(crate) const PLANNED: &str = "planned";
    pub(crate) const COPYING: &str = "copying";
    pub(crate) const DONE: &str = "done";
}

/// Checks that two locations are valid and do not overlap. Runs before anything is stored, because
/// a rejected location may contain a password.
fn check_locations(source: &OsStr, destination: &OsStr) -> Result<()> {
    for (side, location) in [("source", source), ("destination", destination)] {
        headworks_storage::open(location).map_err(|error| Error::BadLocation { side, error })?;
    }
    // The real path of each, and its name in messages.
    let places = [source, destination].map(|location| {
        let real = headworks_storage::local_path(location).map(|real| (real.clone(), real));
        real.or_else(|| Some((headworks_storage::remote_path(location)?, location.into())))
    });
    if let [Some(source), Some(destination)] = places {
        for (inner, outer) in [(&source, &destination), (&destination, &source)] {
            if inner.0.starts_with(&outer.0) {
                let (inner, outer) = (inner.1.clone(), outer.1.clone());
                return Err(Error::Overlap { inner, outer });
            }
        }
    }
    Ok(())
}

impl Job {
    /// Opens the state file of a job between two locations, or creates it.
    ///
    /// # Errors
    /// When another process holds it, it belongs to another job, or a location cannot be opened.
    pub fn open(
        state: &Path,
        locations: Option<(&OsStr, &OsStr)>,
        filters: &Filters,
        settings: Settings,
    ) -> Result<Job> {
        if let Some((source, destination)) = locations {
            check_locations(source, destination)?;
        }
        Job::open_sides(state, locations, filters, settings, None)
    }

    /// Opens the state file of a job between two backends of the caller's own, or creates it. Each
    /// comes with a name, by which the state file recognises the job; it is not opened.
    ///
    /// ```
    /// use headworks_migrate::{Filters, Job, Settings};
    /// use headworks_storage::{Local, Synth};
    /// use std::sync::Arc;
    ///
    /// # let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    /// # let _context = runtime.enter();
    /// # let folder = tempfile::tempdir().unwrap();
    /// let source = Arc::new(Synth::parse("seed=1&files=3")?);
    /// let destination = Arc::new(Local::new(&folder.path().join("copy")));
    /// let job = Job::open_with(
    ///     &folder.path().join("job.db"),
    ///     ("demo:source".as_ref(), source),
    ///     ("demo:destination".as_ref(), destination),
    ///     &Filters::default(),
    ///     Settings::default(),
    /// )
    /// .unwrap();
    /// job.close().unwrap();
    /// # Ok::<(), headworks_storage::Error>(())
    /// ```
    ///
    /// # Errors
    /// When another process holds it, or it belongs to a job with other names.
    pub fn open_with(
        state: &Path,
        source: (&OsStr, Arc<dyn Backend>),
        destination: (&OsStr, Arc<dyn Backend>),
        filters: &Filters,
        settings: Settings,
    ) -> Result<Job> {
        let locations = Some((source.0, destination.0));
        let sides = Some([source.1, destination.1]);
        Job::open_sides(state, locations, filters, settings, sides)
    }

    fn open_sides(
        state: &Path,
        locations: Option<(&OsStr, &OsStr)>,
        filters: &Filters,
        settings: Settings,
        sides: Option<[Arc<dyn Backend>; 2]>,
    ) -> Result<Job> {
        let probed = Store::probe(state)?;
        if probed.is_none() && locations.is_none() {
            return Err(Error::NoState(state.to_owned()));
        }
        let lock = Lock::acquire(state)?;
        let store = Store::create(state)?;
        let connection = store.write()?;
        drop(probed);
        identify(&connection, locations, filters)?;
        let location = |key| -> Result<OsString> {
            let bytes: Option<Vec<u8>> = meta(&connection, key)?;
            Ok(OsString::from_vec(bytes.unwrap_or_default()))
        };
        let state_file_in_tree =
            [location("source")?, location("destination")?].map(|tree| state_file_in(state, &tree));
        let [source, destination] = match sides {
            Some(sides) => sides,
            None => [
                open_stored(&connection, "source")?,
                open_stored(&connection, "destination")?,
            ],
        };
        let (source, destination) = (
            recorded(source, "source"),
            recorded(destination, "destination"),
        );
        let stored: String = meta(&connection, "filters")?.unwrap_or_default();
        let stored: Filters = serde_json::from_str(&stored).unwrap_or_default();
        if !stored.owners.is_empty() && !source.map_owners(&stored.owners) {
            let message = "--map-owner and --map-group are for a source that is a directory";
            return Err(Error::BadOption(message.into()));
        }
        let began = meta(&connection, "began")?.unwrap_or(0);
        let id = meta(&connection, "job")?.unwrap_or_default();
        let probe = probe_destination(&connection, &*destination, stored.preserve)?;
        let sides = [source.capabilities(), destination.capabilities()];
        let compare = Comparison::new(sides[0], sides[1], stored.specials);
        store_capabilities(&connection, sides)?;
        control::apply_pending(&connection)?;
        let runtime = tokio::runtime::Handle::current();
        let synced = destination.clone();
        let progress: Arc<Progress> = Arc::default();
        progress.resumed.store(is_resumed(&connection)?, Relaxed);
        let syncing = progress.clone();
        let sync = Box::new(move || {
            syncing.syncing.store(true, Relaxed);
            let durable = runtime.block_on(synced.sync());
            syncing.syncing.store(false, Relaxed);
            durable
        });
        let writer = Writer::start(connection, sync);
        let control_task =
            control::spawn_control_task(store.clone(), writer.clone(), progress.clone());
        Ok(Job {
            writer,
            filter: Arc::new(Filter::new(&stored, began)?),
            store,
            source,
            destination,
            compare,
            settings,
            progress,
            stop: CancellationToken::new(),
            id,
            probe,
            state_file_in_tree,
            _control_task: AbortOnDropHandle::new(control_task),
            _lock: lock,
        })
    }

    /// Returns the progress counters.
    #[must_use]
    pub fn progress(&self) -> Arc<Progress> {
        self.progress.clone()
    }

    /// Returns the token that stops the run. When it is cancelled, running work is drained and the
    /// job stays resumable.
    #[must_use]
    pub fn stop(&self) -> CancellationToken {
        self.stop.clone()
    }

    /// Opens the state file for reading.
    ///
    /// # Errors
    /// When it cannot be opened.
    pub fn state(&self) -> Result<StateReader> {
        StateReader::open(self.store.path())
    }

    /// Returns the filters of the job.
    #[must_use]
    pub fn filters(&self) -> &Filters {
        self.filter.filters()
    }

    /// Returns notices for the user of the run.
    #[must_use]
    pub fn notices(&self) -> Vec<String> {
        let sides = ["source", "destination"]
            .into_iter()
            .zip(&self.state_file_in_tree);
        let inside = sides.filter_map(|(side, state_file_in_tree)| {
            let path = state_file_in_tree.as_ref()?.path();
            let path = display(&path);
            Some(format!(
                "the state file `{path}` is inside the {side}: it and its companion files are not part of the tree"
            ))
        });
        let notices = inside.chain(self.timeless_notice());
        let notices = notices.chain(self.loss_notice());
        let notices = notices.chain(self.filters().preserve.notice());
        notices.chain(self.owner_notice()).collect()
    }

    /// Names the owners that entries get at the destination, if they are others.
    fn owner_notice(&self) -> Option<String> {
        let owners = &self.filters().owners;
        if owners.is_empty() {
            return None;
        }
        let users = owners.users.iter().map(|pair| ("user", pair));
        let groups = owners.groups.iter().map(|pair| ("group", pair));
        let all = users.chain(groups);
        let all = all.map(|(kind, (from, to))| format!("{kind} {from} becomes {to}"));
        let all: Vec<String> = all.collect();
        let lost = match self.compare.owners {
            true => "",
            false => ", but owners are not kept",
        };
        Some(format!("at the destination, {}{lost}", all.join(", ")))
    }

    /// Names what the destination was found not to keep.
    fn loss_notice(&self) -> Option<String> {
        let probe = self.probe?;
        // Only root can give files away, and knows it.
        let privileged = self.source.capabilities().owners;
        let lost = [
            (probe.owners || !privileged, "owners"),
            (probe.permissions, "permissions"),
            (probe.extended, "extended attributes"),
            (probe.symlinks, "symlinks"),
            (probe.hard_links, "hard links"),
        ];
        let lost = lost.into_iter().filter(|(kept, _)| !kept);
        let lost: Vec<&str> = lost.map(|(_, what)| what).collect();
        let names = match (probe.folds_case, probe.folds_unicode) {
            (true, _) => Some("names that differ in case only"),
            (_, true) => Some("names that differ in Unicode normalisation only"),
            _ => None,
        };
        let lost = lost.into_iter().chain(names).collect::<Vec<_>>().join(", ");
        (!lost.is_empty()).then(|| format!("the destination does not keep: {lost}"))
    }

    /// Explains how files are compared, if the destination keeps no times.
    fn timeless_notice(&self) -> Option<String> {
        let message = "the destination keeps no times: a file of the same size counts as the same, unless its source is newer or its etag differs from the one recorded when it was copied";
        let keeps = self.compare.destination.modified.is_some();
        (!keeps).then(|| message.to_owned())
    }

    /// Returns the number of requests per kind, for the sides that count them.
    #[must_use]
    pub fn requests(&self) -> Vec<(&'static str, Requests)> {
        let sides = [
            ("source", self.source.requests()),
            ("destination", self.destination.requests()),
        ];
        let counted = |(_, counts): &(&str, Requests)| !counts.is_empty();
        sides.into_iter().filter(counted).collect()
    }

    /// Returns what the storages have to say about the calls so far.
    #[must_use]
    pub fn storage_notices(&self) -> Vec<String> {
        let sides = [("source", &self.source), ("destination", &self.destination)];
        let said = |(side, backend): (&str, &Arc<dyn Backend>)| {
            let notices = backend.notices().into_iter();
            let notices = notices.map(move |notice| format!("{side}: {notice}"));
            notices.collect::<Vec<_>>()
        };
        sides.into_iter().flat_map(said).collect()
    }

    pub(crate) fn stage(&self) -> Result<String> {
        Ok(meta(&self.store.read()?, "stage")?.unwrap_or_default())
    }

    /// Returns whether a verification found files with other bytes that were not copied since.
    ///
    /// # Errors
    /// When the state file cannot be read.
    pub fn needs_repair(&self) -> Result<bool> {
        Ok(damaged::any(&self.store.read()?)?)
    }

    pub(crate) async fn enter_stage(&self, stage: &'static str, message: String) -> Result<()> {
        let write = move |transaction: &rusqlite::Transaction<'_>| {
            set_meta(transaction, "stage", stage)?;
            log(transaction, &message)
        };
        self.writer.write(write).await
    }

    /// Walks both trees, or resumes an interrupted walk. After a finished pass it starts a new one,
    /// which keeps only hashes and versions.
    ///
    /// # Errors
    /// When a side or the state file cannot be used, or the job is stopped.
    pub async fn plan(&self) -> Result<Summary> {
        self.begin_plan().await?;
        crate::plan::walk(self, None).await?;
        self.end_plan().await
    }

    /// Plans, and copies files meanwhile that certainly need it, if the walk takes longer than a
    /// second.
    ///
    /// # Errors
    /// As [`plan`](Self::plan).
    pub async fn plan_with_overlap(&self, options: &CopyOptions) -> Result<Summary> {
        // Which names are in conflict is known when a folder is listed to its end.
        if self.compare.folds_names() {
            return self.plan().await;
        }
        self.begin_plan().await?;
        let (durable, pages) = tokio::sync::mpsc::channel(QUEUED_PAGES);
        let plan_done = CancellationToken::new();
        let walk = async {
            let walked = crate::plan::walk(self, Some(durable)).await;
            plan_done.cancel();
            walked
        };
        let copy = copy_during_plan(self, options, pages, plan_done.clone());
        let (walked, copied) = tokio::join!(walk, copy);
        walked.and(copied)?;
        self.end_plan().await
    }

    async fn begin_plan(&self) -> Result<()> {
        match self.stage()?.as_str() {
            stage::COPYING => {
                let message = "a copy is in progress: finish it with `headworks migrate copy`, then plan again";
                return Err(Error::Refused(message.into()));
            }
            stage::PLANNED | stage::DONE => self.begin_pass().await?,
            _ => self.note_clock().await?,
        }
        let source = self.source.stat(&Folder::root(), None).await;
        source.map_err(|error| Side::Source.error(error))?;
        self.progress.enter(Phase::Plan, 0, 0);
        Ok(())
    }

    async fn end_plan(&self) -> Result<Summary> {
        crate::plan::fetch_missing_times(self).await?;
        self.progress.enter(Phase::Summary, 0, 0);
        let prepare = |transaction: &rusqlite::Transaction<'_>| {
            control::apply_rules(transaction)?;
            damaged::forget_copies(transaction)?;
            // A plan that was resumed after a retry has totals already.
            transaction.execute("DELETE FROM total", []).map(drop)
        };
        self.writer.write(prepare).await?;
        let summary = self.state()?.count(&self.compare, |totals| {
            let write = move |transaction: &rusqlite::Transaction<'_>| totals.write(transaction);
            self.writer.post(CommitMode::Deferred, write, || {});
        })?;
        let json = serde_json::to_string(&summary).unwrap_or_default();
        let keep = move |transaction: &rusqlite::Transaction<'_>| {
            roll_up(transaction)?;
            set_meta(transaction, "plan", json)?;
            set_meta(transaction, "stage", stage::PLANNED)?;
            log(transaction, "plan finished")
        };
        self.writer.write(keep).await?;
        Ok(summary)
    }

    /// Notes by the destination's clock when the first pass began: what is younger was not there. A
    /// resumed pass has it.
    async fn note_clock(&self) -> Result<()> {
        let read = self.store.read()?;
        let began_there: Option<i64> = meta(&read, "began_there")?;
        if began_there.is_some() || is_begun(&read)? {
            return Ok(());
        }
        drop(read);
        let Some(there) = self.destination.clock().await else {
            return Ok(());
        };
        let write = move |transaction: &rusqlite::Transaction<'_>| {
            set_meta(transaction, "began_there", there)
        };
        self.writer.write(write).await
    }

    /// Discards both trees in one transaction, and keeps hashes, versions, rules and filters.
    async fn begin_pass(&self) -> Result<()> {
        let there = self.destination.clock().await;
        let write = move |transaction: &rusqlite::Transaction<'_>| {
            transaction.execute_batch(
                "DELETE FROM folder; DELETE FROM source; DELETE FROM destination; DELETE FROM link; DELETE FROM files;
                 DELETE FROM failure; DELETE FROM part; DELETE FROM claim; DELETE FROM total; DELETE FROM removal; DELETE FROM loss;
                 DELETE FROM meta WHERE key IN ('quarantined', 'deleted', 'began_there');",
            )?;
            let pass: i64 =
                transaction.query_row("SELECT value FROM meta WHERE key = 'pass'", [], |r| {
                    r.get(0)
                })?;
            set_meta(transaction, "pass", pass + 1)?;
            set_meta(transaction, "pass_began", crate::now())?;
            if let Some(there) = there {
                set_meta(transaction, "began_there", there)?;
            }
            insert_root(transaction)?;
            set_meta(transaction, "stage", stage::PLANNING)?;
            log(transaction, &format!("pass {} started", pass + 1))
        };
        self.writer.write(write).await
    }

    /// Closes the job. Everything posted is durable when this returns.
    ///
    /// # Errors
    /// When the state file could not be written.
    pub fn close(self) -> Result<()> {
        drop(self._control_task);
        self.writer.close()?;
        self.store.fold_log();
        Ok(())
    }
}

/// Tries out what the destination can keep, once for each job: every command compares by it.
fn probe_destination(
    connection: &rusqlite::Connection,
    destination: &dyn Backend,
    preserve: Preserve,
) -> Result<Option<Probe>> {
    if preserve != Preserve::default() && !destination.as_any().is::<Local>() {
        let message = "--preserve is for a destination that is a directory; other storages keep what they can";
        return Err(Error::BadOption(message.into()));
    }
    let known = stored_probe(connection)?;
    let stage: String = meta(connection, "stage")?.unwrap_or_default();
    // A plan that was made without it stays as it is.
    if known.is_none() && is_begun(connection)? && stage != stage::DONE {
        return Ok(None);
    }
    let probe = known.or_else(|| destination.probe(None));
    if let Some(probe) = probe.filter(|_| known.is_none()) {
        let json = serde_json::to_string(&probe).unwrap_or_default();
        set_meta(connection, "probe", json)?;
    }
    if let Some(probe) = probe {
        destination.probe(Some(preserve.restrict(probe)));
    }
    Ok(probe)
}

/// Opens the storage of a side.
fn open_stored(connection: &rusqlite::Connection, side: &'static str) -> Result<Arc<dyn Backend>> {
    let location: Vec<u8> = meta(connection, side)?.unwrap_or_default();
    let opened = headworks_storage::open(&OsString::from_vec(location));
    opened.map_err(|error| Error::BadLocation { side, error })
}

/// Stores by which capabilities this process compares: those that another one finds depend on its
/// user and on its credentials.
fn store_capabilities(
    connection: &rusqlite::Connection,
    sides: [Capabilities; 2],
) -> rusqlite::Result<()> {
    let json = serde_json::to_string(&sides).unwrap_or_default();
    set_meta(connection, "capabilities", json)
}

/// Returns the capabilities of both sides that the last process to run the job has found.
pub(crate) fn stored_capabilities(
    connection: &rusqlite::Connection,
) -> Result<Option<[Capabilities; 2]>> {
    let stored: Option<String> = meta(connection, "capabilities")?;
    Ok(stored.and_then(|json| serde_json::from_str(&json).ok()))
}

/// Returns what the destination was found to keep when the job was opened first.
pub(crate) fn stored_probe(connection: &rusqlite::Connection) -> Result<Option<Probe>> {
    let stored: Option<String> = meta(connection, "probe")?;
    Ok(stored.and_then(|json| serde_json::from_str(&json).ok()))
}

/// Returns whether an earlier run left work to resume.
fn is_resumed(connection: &rusqlite::Connection) -> Result<bool> {
    let stage: String = meta(connection, "stage")?.unwrap_or_default();
    let begun = "SELECT EXISTS (SELECT 1 FROM folder WHERE src <> 0 OR src_cursor IS NOT NULL)";
    Ok(match stage.as_str() {
        stage::COPYING => true,
        stage::PLANNING => connection.query_row(begun, [], |row| row.get(0))?,
        _ => false,
    })
}

/// Returns whether anything is known about either side.
fn is_begun(connection: &rusqlite::Connection) -> Result<bool> {
    let query = "SELECT EXISTS (SELECT 1 FROM source) OR EXISTS (SELECT 1 FROM destination) OR EXISTS (SELECT 1 FROM failure)
                 OR (SELECT value FROM meta WHERE key = 'pass') > 1";
    let known: bool = connection.query_row(query, [], |row| row.get(0))?;
    Ok(known || is_resumed(connection)?)
}

/// Stores what the state file is for, or checks that it is for these locations.
fn identify(
    connection: &rusqlite::Connection,
    locations: Option<(&OsStr, &OsStr)>,
    filters: &Filters,
) -> Result<()> {
    let stored_source: Option<Vec<u8>> = meta(connection, "source")?;
    let stored_destination: Vec<u8> = meta(connection, "destination")?.unwrap_or_default();
    let is_other = locations.is_some_and(|(source, destination)| {
        stored_source.as_ref() != Some(&absolute(source))
            || stored_destination != absolute(destination)
    });
    // A job that never listed anything, because a location was mistyped, can be replaced.
    let stored_source = stored_source.filter(|_| !is_other || is_begun(connection).unwrap_or(true));
    let Some(stored_source) = stored_source else {
        let Some((source, destination)) = locations else {
            let message = "the state file is empty: start with `headworks migrate plan SRC DST`";
            return Err(Error::Refused(message.into()));
        };
        // An invalid pattern must not be stored.
        Filter::new(filters, 0)?;
        let transaction = connection.unchecked_transaction()?;
        set_meta(&transaction, "source", absolute(source))?;
        set_meta(&transaction, "destination", absolute(destination))?;
        set_meta(
            &transaction,
            "filters",
            serde_json::to_string(filters).unwrap_or_default(),
        )?;
        set_meta(
            &transaction,
            "job",
            format!("{:08x}", fastrand::u64(..) as u32),
        )?;
        set_meta(&transaction, "began", crate::now())?;
        set_meta(&transaction, "pass", 1)?;
        set_meta(&transaction, "stage", stage::PLANNING)?;
        insert_root(&transaction)?;
        log(&transaction, "job created")?;
        failpoint::hit("before-job-commit");
        transaction.commit()?;
        failpoint::hit("after-job-commit");
        return Ok(());
    };
    if let Some((source, destination)) = locations.filter(|_| is_other) {
        let show = |a: &[u8], b: &[u8]| format!("{} -> {}", display(a), display(b));
        return Err(Error::OtherJob {
            was: show(&stored_source, &stored_destination),
            wanted: show(&absolute(source), &absolute(destination)),
        });
    }
    match locations {
        Some(_) => apply_filters(connection, filters),
        None => Ok(()),
    }
}

/// Stores other filters for the next pass. Without any filters the stored ones stay, so that the
/// same command resumes a job.
fn apply_filters(connection: &rusqlite::Connection, filters: &Filters) -> Result<()> {
    let stored: String = meta(connection, "filters")?.unwrap_or_default();
    let stored: Filters = serde_json::from_str(&stored).unwrap_or_default();
    if *filters == Filters::default() || *filters == stored {
        return Ok(());
    }
    Filter::new(filters, 0)?;
    let at: String = meta(connection, "stage")?.unwrap_or_default();
    if !matches!(at.as_str(), stage::PLANNED | stage::DONE) {
        let message = format!(
            "this job is in progress with other filters ({stored}): continue without filters and change them when it is done, or name another state file"
        );
        return Err(Error::Refused(message));
    }
    let transaction = connection.unchecked_transaction()?;
    let text = serde_json::to_string(filters).unwrap_or_default();
    set_meta(&transaction, "filters", text)?;
    // A plan made with other filters is obsolete.
    set_meta(&transaction, "stage", stage::DONE)?;
    log(&transaction, &format!("filters changed to: {filters}"))?;
    Ok(transaction.commit()?)
}

/// Returns the location of the state file in a tree, if it is inside it.
fn state_file_in(state: &Path, tree: &OsStr) -> Option<StateFileLocation> {
    let tree = headworks_storage::local_path(tree)?;
    let state = state.canonicalize().ok()?;
    let path = state.strip_prefix(tree).ok()?;
    let above = path.parent()?.iter();
    let folder = above.fold(Folder::root(), |folder, name| folder.child(name.as_bytes()));
    Some(StateFileLocation {
        folder,
        name: path.file_name()?.as_bytes().to_vec(),
    })
}

/// Returns a location independent of the working directory; URLs are unchanged.
fn absolute(location: &OsStr) -> Vec<u8> {
    let bytes = location.as_bytes();
    if bytes.windows(3).any(|three| three == b"://") || bytes.starts_with(b"file:") {
        return bytes.to_vec();
    }
    let path = std::path::absolute(Path::new(location));
    path.map_or_else(|_| bytes.to_vec(), |path| path.into_os_string().into_vec())
}

fn insert_root(connection: &rusqlite::Connection) -> rusqlite::Result<()> {
    connection
        .execute(
            "INSERT OR REPLACE INTO folder (id, parent, name, depth, path) VALUES (1, 0, x'', 0, x'')",
            [],
        )
        .map(drop)
}

/// With `HEADWORKS_TRACE=file`, records every call to a backend in that file.
fn recorded(backend: Arc<dyn Backend>, side: &'static str) -> Arc<dyn Backend> {
    let Some(log) = std::env::var_os("HEADWORKS_TRACE") else {
        return backend;
    };
    match headworks_storage::Recording::new(backend.clone(), side, Path::new(&log)) {
        Ok(recorded) => Arc::new(recorded),
        Err(_) => backend,
    }
}
