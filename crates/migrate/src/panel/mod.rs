//! What the console shows of migrations.
//!
//! A job runs in a process of its own: it is looked at through its state file, with connections
//! that only read, and what is asked of it goes through the `control` table. A task looks at all
//! state files about once a second; a snapshot is what it saw last. Pages of failures and of the
//! plan are read when somebody asks for them.

mod browse;
mod config;
mod demo;
mod jobs;
mod widgets;

pub use config::MigrateConfig;

use crate::control::{Request, ask};
use crate::error::{Error, Result};
use crate::state::State;
use browse::Browse;
use futures_util::future::BoxFuture;
use headworks_service::panel::{
    Action, ActionResult, Args, Cursor, Explanation, Fact, Page, Panel, PanelError, Parameter,
    ParameterKind, Snapshot,
};
use headworks_service::shutdown::Shutdown;
use jobs::Seen;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How often jobs are looked at, if that is quick.
const LOOK: Duration = Duration::from_secs(1);
/// Looking takes at most this part of the time.
const SHARE: u32 = 10;

/// The jobs that a program watches.
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
    places: Vec<PathBuf>,
    demos: demo::Demos,
    seen: Mutex<Seen>,
    shutdown: Shutdown,
}

impl Migrations {
    /// Begins to watch, on the current tokio runtime.
    #[must_use]
    pub fn start(config: &MigrateConfig, shutdown: &Shutdown) -> Migrations {
        let shared = Arc::new(Shared {
            places: config.jobs.clone(),
            demos: demo::Demos::new(config.demo_folder.as_deref()),
            seen: Mutex::default(),
            shutdown: shutdown.clone(),
        });
        let (watched, stop) = (shared.clone(), shutdown.token());
        shutdown.spawn("migrations", async move {
            loop {
                let pause = watched.clone().look().await;
                let slept = stop.run_until_cancelled(tokio::time::sleep(pause)).await;
                if slept.is_none() {
                    return;
                }
            }
        });
        Migrations { shared }
    }

    /// How many jobs there are now.
    #[must_use]
    pub fn count(&self) -> usize {
        jobs::state_files(&self.shared.places).len()
    }

    /// What the console shows.
    #[must_use]
    pub fn panel(&self) -> Arc<dyn Panel> {
        Arc::new(MigratePanel(self.shared.clone()))
    }
}

impl Shared {
    /// Looks at every job; how long to wait before the next time.
    async fn look(self: Arc<Self>) -> Duration {
        let began = Instant::now();
        let looked = tokio::task::spawn_blocking(move || {
            let mut files = jobs::state_files(&self.places);
            files.extend(self.demos.state_files());
            let last = self.seen();
            let seen = jobs::look(&files, &last);
            *self.seen.lock().unwrap_or_else(PoisonError::into_inner) = seen;
        });
        let _ = looked.await;
        LOOK.max(began.elapsed() * SHARE)
    }

    fn seen(&self) -> Seen {
        self.seen
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// The state file of the job with that id.
    fn path(&self, id: &str) -> std::result::Result<PathBuf, PanelError> {
        let seen = self.seen();
        let job = seen.jobs.iter().find(|job| job.id == id);
        job.map(|job| job.path.clone())
            .ok_or_else(|| PanelError::argument("job", "there is no such job"))
    }
}

struct MigratePanel(Arc<Shared>);

impl Panel for MigratePanel {
    fn name(&self) -> &str {
        "migrate"
    }

    fn snapshot(&self) -> Snapshot {
        widgets::snapshot(&self.0.seen())
    }

    fn page<'a>(
        &'a self,
        widget: &'a str,
        cursor: &'a Cursor,
    ) -> BoxFuture<'a, std::result::Result<Page, PanelError>> {
        Box::pin(async move {
            let at: Browse =
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
            let asked = move || ask(&state, &request).map_err(|error| refused(&error));
            match tokio::task::spawn_blocking(asked).await {
                Ok(Ok(None)) => Ok(ActionResult::new("done")),
                Ok(Ok(Some(holder))) => {
                    Ok(ActionResult::new(format!("handed to the runner: {holder}")))
                }
                Ok(Err(error)) => Err(error),
                Err(_) => Err(PanelError::Failed("the request was cut off".into())),
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
            let told = blocking(state, move |state| state.explain(&path)).await?;
            let mut lines = told.lines.into_iter();
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

/// Reads a state file where that may block.
async fn blocking<T: Send + 'static>(
    path: PathBuf,
    read: impl FnOnce(&State) -> Result<T> + Send + 'static,
) -> std::result::Result<T, PanelError> {
    let open = move |path: &Path| State::open(path).and_then(|state| read(&state));
    match tokio::task::spawn_blocking(move || open(&path)).await {
        Ok(done) => done.map_err(|error| PanelError::Failed(error.to_string())),
        Err(_) => Err(PanelError::Failed("reading was cut off".into())),
    }
}

fn refused(error: &Error) -> PanelError {
    match error {
        Error::BadOption(words) => PanelError::argument("pattern", words),
        Error::NotNow(words) => PanelError::Refused(words.clone()),
        other => PanelError::Failed(other.to_string()),
    }
}

/// What an action asks of which job.
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
        entry.ok_or_else(|| PanelError::argument("entry", "name a row of the plan"))?;
    let pattern = browse::pattern_for(&path)
        .ok_or_else(|| PanelError::argument("entry", "its name is no UTF-8: use a pattern"))?;
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
            "Holds the job, also one that another process runs.",
            true,
            vec![job()],
        ),
        action(
            "resume",
            "Resume",
            "Lets a held job go on.",
            false,
            vec![job()],
        ),
        action(
            "retry",
            "Retry",
            "What failed is to be tried again by the next run.",
            false,
            vec![job()],
        ),
        action(
            "exclude",
            "Exclude",
            "Leaves this entry out, with all below it.",
            true,
            vec![entry()],
        ),
        action(
            "include",
            "Include",
            "Takes in again what was excluded.",
            false,
            vec![entry()],
        ),
        action(
            "prioritise",
            "Copy first",
            "Copies this entry before others.",
            false,
            vec![entry()],
        ),
        action(
            "exclude-pattern",
            "Exclude by pattern",
            "Leaves out what matches: a name at any depth, or a path with slashes.",
            true,
            vec![job(), pattern()],
        ),
        action(
            "start-synthetic",
            "Start a synthetic migration",
            "Plans and copies a computed tree into a folder of its own, slowly enough to be watched.",
            false,
            Vec::new(),
        ),
    ]
}
