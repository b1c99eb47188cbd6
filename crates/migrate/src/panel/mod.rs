//! The console page of migrations.
//!
//! A job runs in its own process. The page reads its state file through read-only connections, and
//! sends requests through the `control` table. A task reads all state files about once per second;
//! a snapshot shows the last result. Pages of failures and plans are read on demand.

mod browse;
mod config;
mod demo;
mod jobs;
mod widgets;

pub use config::MigrateConfig;

use crate::control::{Request, send_request};
use crate::error::{Error, Result};
use crate::queries::StateReader;
use browse::BrowseCursor;
use futures_util::future::BoxFuture;
use headworks_service::panel::{
    Action, ActionResult, Args, Cursor, Explanation, Fact, Page, Panel, PanelError, Parameter,
    ParameterKind, Snapshot,
};
use headworks_service::shutdown::Shutdown;
use jobs::JobList;
use parking_lot::Mutex;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Interval between two readings, if reading is quick.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Reading takes at most one tenth of the time.
const POLL_SHARE: u32 = 10;

/// The jobs that a program shows.
///
/// ```
/// # use headworks_migrate::{MigrateConfig, Migrations};
/// # use headworks_service::shutdown::Shutdown;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let shutdown = Shutdown::new();
/// let migrations = Migrations::start(&MigrateConfig::default(), &shutdown);
/// assert_eq!(migrations.panel().snapshot().title, "Migrations");
/// let _ = shutdown.drain(std::time::Duration::from_secs(5)).await;
/// # }
/// ```
#[derive(Clone)]
pub struct Migrations {
    shared: Arc<Shared>,
}

struct Shared {
    locations: Vec<PathBuf>,
    demos: demo::Demos,
    jobs: Mutex<JobList>,
    shutdown: Shutdown,
}

impl Migrations {
    /// Starts to watch the configured jobs, on the current tokio runtime.
    #[must_use]
    pub fn start(config: &MigrateConfig, shutdown: &Shutdown) -> Migrations {
        let shared = Arc::new(Shared {
            locations: config.jobs.clone(),
            demos: demo::Demos::new(config.demo_folder.as_deref()),
            jobs: Mutex::default(),
            shutdown: shutdown.clone(),
        });
        let (watched, stop) = (shared.clone(), shutdown.token());
        shutdown.spawn("migrations", async move {
            loop {
                let pause = watched.clone().refresh().await;
                let slept = stop.run_until_cancelled(tokio::time::sleep(pause)).await;
                if slept.is_none() {
                    return;
                }
            }
        });
        Migrations { shared }
    }

    /// Returns the current number of jobs.
    #[must_use]
    pub fn count(&self) -> usize {
        jobs::state_files(&self.shared.locations).len()
    }

    /// Returns the console's panel.
    #[must_use]
    pub fn panel(&self) -> Arc<dyn Panel> {
        Arc::new(MigratePanel(self.shared.clone()))
    }
}

impl Shared {
    /// Reads every job. Returns the delay until the next reading.
    async fn refresh(self: Arc<Self>) -> Duration {
        let began = Instant::now();
        let reading = tokio::task::spawn_blocking(move || {
            let mut files = jobs::state_files(&self.locations);
            files.extend(self.demos.state_files());
            let last = self.jobs();
            let jobs = jobs::read_jobs(&files, &last);
            *self.jobs.lock() = jobs;
        });
        let _ = reading.await;
        POLL_INTERVAL.max(began.elapsed() * POLL_SHARE)
    }

    fn jobs(&self) -> JobList {
        self.jobs.lock().clone()
    }

    /// Returns the state file of the job with this id.
    fn path(&self, id: &str) -> std::result::Result<PathBuf, PanelError> {
        let jobs = self.jobs();
        let job = jobs.jobs.iter().find(|job| job.id == id);
        job.map(|job| job.path.clone())
            .ok_or_else(|| PanelError::argument("job", "no such job"))
    }
}

struct MigratePanel(Arc<Shared>);

impl Panel for MigratePanel {
    fn name(&self) -> &str {
        "migrate"
    }

    fn snapshot(&self) -> Snapshot {
        widgets::snapshot(&self.0.jobs())
    }

    fn page<'a>(
        &'a self,
        widget: &'a str,
        cursor: &'a Cursor,
    ) -> BoxFuture<'a, std::result::Result<Page, PanelError>> {
        Box::pin(async move {
            let at: BrowseCursor =
                serde_json::from_str(&cursor.0).map_err(|_| PanelError::StaleCursor)?;
            let state = self.0.path(&at.job)?;
            match widget {
                "plan" => blocking(state, move |state| browse::folder(state, &at)).await,
                "failures" => blocking(state, move |state| browse::failures(state, &at)).await,
                _ => Err(PanelError::unknown_widget(widget)),
            }
        })
    }

    fn actions(&self) -> Vec<Action> {
        actions()
    }

    fn act<'a>(
        &'a self,
        action: &'a str,
        args: &'a Args,
    ) -> BoxFuture<'a, std::result::Result<ActionResult, PanelError>> {
        Box::pin(async move {
            if action == "start-synthetic" {
                return self.0.demos.start(&self.0.shutdown).await;
            }
            let text = |name: &str| args.get(name).and_then(|value| value.as_str());
            let (job, request) = request(action, text("job"), text("entry"), text("pattern"))?;
            let state = self.0.path(&job)?;
            let send = move || send_request(&state, &request).map_err(|error| refused(&error));
            match tokio::task::spawn_blocking(send).await {
                Ok(Ok(None)) => Ok(ActionResult::new("done")),
                Ok(Ok(Some(holder))) => {
                    Ok(ActionResult::new(format!("handed to the runner: {holder}")))
                }
                Ok(Err(error)) => Err(error),
                Err(_) => Err(PanelError::Failed("the request was interrupted".into())),
            }
        })
    }

    fn explains(&self) -> Option<&str> {
        Some("entry")
    }

    fn explain<'a>(
        &'a self,
        subject: &'a str,
    ) -> BoxFuture<'a, std::result::Result<Explanation, PanelError>> {
        Box::pin(async move {
            let unknown = || PanelError::unknown_subject(subject);
            let (job, path) = browse::parse_entry(subject).ok_or_else(unknown)?;
            let state = self.0.path(&job).map_err(|_| unknown())?;
            let explanation = blocking(state, move |state| state.explain(&path)).await?;
            let mut lines = explanation.lines.into_iter();
            let facts = lines.clone().skip(2).map(|line| {
                let (name, value) = line.split_once(": ").unwrap_or(("", &line));
                let (name, value) = (name.to_owned(), value.to_owned());
                Fact { name, value }
            });
            Ok(Explanation {
                facts: facts.collect(),
                subject: lines.next().unwrap_or_default(),
                summary: lines.next().unwrap_or_default(),
            })
        })
    }
}

/// Reads a state file on a blocking thread.
async fn blocking<T: Send + 'static>(
    path: PathBuf,
    read: impl FnOnce(&StateReader) -> Result<T> + Send + 'static,
) -> std::result::Result<T, PanelError> {
    let open = move |path: &Path| StateReader::open(path).and_then(|state| read(&state));
    match tokio::task::spawn_blocking(move || open(&path)).await {
        Ok(done) => done.map_err(|error| PanelError::Failed(error.to_string())),
        Err(_) => Err(PanelError::Failed("reading was interrupted".into())),
    }
}

fn refused(error: &Error) -> PanelError {
    match error {
        Error::BadOption(message) => PanelError::argument("pattern", message),
        Error::Refused(message) => PanelError::Refused(message.clone()),
        other => PanelError::Failed(other.to_string()),
    }
}

/// Returns the job and the request of an action.
fn request(
    action: &str,
    job: Option<&str>,
    entry: Option<&str>,
    pattern: Option<&str>,
) -> std::result::Result<(String, Request), PanelError> {
    let plain = match action {
        "pause" => Some(Request::Pause),
        "resume" => Some(Request::Resume),
        "retry" => Some(Request::Retry),
        _ => None,
    };
    if let (Some(request), Some(job)) = (plain, job) {
        return Ok((job.to_owned(), request));
    }
    let make = match action {
        "exclude" | "exclude-pattern" => Request::Exclude,
        "include" => Request::Include,
        "prioritise" => Request::Prioritise,
        _ => return Err(PanelError::unknown_action(action)),
    };
    if let (Some(job), Some(pattern)) = (job, pattern) {
        return Ok((job.to_owned(), make(pattern.to_owned())));
    }
    let entry = entry.and_then(browse::parse_entry);
    let (job, path) =
        entry.ok_or_else(|| PanelError::argument("entry", "select a row of the plan"))?;
    let pattern = browse::pattern_for(&path)
        .ok_or_else(|| PanelError::argument("entry", "its name is not UTF-8; use a pattern"))?;
    Ok((job, make(pattern)))
}

fn actions() -> Vec<Action> {
    let parameter = |name: &str, title: &str, kind| Parameter {
        name: name.into(),
        title: title.into(),
        kind,
        required: true,
        now: None,
    };
    let job = || parameter("job", "Job", ParameterKind::Row("jobs".into()));
    let entry = || parameter("entry", "Entry", ParameterKind::Row("plan".into()));
    let pattern = || parameter("pattern", "Pattern", ParameterKind::Text);
    let action = |name: &str, title: &str, doc: &str, destructive, parameters| Action {
        name: name.into(),
        title: title.into(),
        doc: doc.into(),
        destructive,
        parameters,
    };
    vec![
        action(
            "pause",
            "Pause",
            "Pauses the job, also if another process runs it.",
            true,
            vec![job()],
        ),
        action(
            "resume",
            "Resume",
            "Resumes a paused job.",
            false,
            vec![job()],
        ),
        action(
            "retry",
            "Retry",
            "Makes failed entries pending again for the next run.",
            false,
            vec![job()],
        ),
        action(
            "exclude",
            "Exclude",
            "Excludes this entry and everything below it.",
            true,
            vec![entry()],
        ),
        action(
            "include",
            "Include",
            "Includes an excluded entry again.",
            false,
            vec![entry()],
        ),
        action(
            "prioritise",
            "Copy first",
            "Copies this entry before all others.",
            false,
            vec![entry()],
        ),
        action(
            "exclude-pattern",
            "Exclude by pattern",
            "Excludes matching entries: a name at any depth, or a path with slashes.",
            true,
            vec![job(), pattern()],
        ),
        action(
            "start-synthetic",
            "Start a synthetic migration",
            "Plans and copies a generated tree into a temporary folder, slowly enough to be watched.",
            false,
            Vec::new(),
        ),
    ]
}
