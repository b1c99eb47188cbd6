//! Synthetic migrations, started from the console to be watched.

use crate::copy::CopyOptions;
use crate::error::{Error, Result};
use crate::filter::Filters;
use crate::job::{Job, Settings};
use headworks_service::panel::{ActionResult, PanelError};
use headworks_service::shutdown::Shutdown;
use parking_lot::Mutex;
use std::path::{Path, PathBuf};

/// Slow, unreliable and nested: about a thousand folders.
const TREE: &str =
    "depth=6&dirs=2-4&files=2-12&size=1k~64k&latency=30ms&errors=4&overload=1&names=plain,spaces";
/// Listings per second and side. Without this bound the concurrency adapts to the latency, and the
/// plan is over before anyone has watched it.
const LISTINGS_PER_SECOND: f64 = 25.0;
/// Maximum number of concurrent synthetic migrations.
const AT_ONCE: usize = 4;

/// The synthetic migrations started by this process.
#[derive(Debug)]
pub(super) struct Demos {
    folder: PathBuf,
    started: Mutex<Vec<PathBuf>>,
}

impl Demos {
    pub(super) fn new(folder: Option<&Path>) -> Demos {
        let own = format!("headworks-migrate-{}", std::process::id());
        Demos {
            folder: folder.map_or_else(|| std::env::temp_dir().join(own), Path::to_owned),
            started: Mutex::default(),
        }
    }

    pub(super) fn state_files(&self) -> Vec<PathBuf> {
        self.started.lock().clone()
    }

    /// Starts a synthetic migration under `shutdown`, which drains it.
    pub(super) async fn start(
        &self,
        shutdown: &Shutdown,
    ) -> std::result::Result<ActionResult, PanelError> {
        let number = {
            let mut started = self.started.lock();
            let running = started
                .iter()
                .filter(|path| crate::store::lock_holder(path).is_some());
            if running.count() >= AT_ONCE {
                let message = format!("{AT_ONCE} synthetic migrations are already running");
                return Err(PanelError::Refused(message));
            }
            let number = started.len() + 1;
            started.push(self.state(number));
            number
        };
        std::fs::create_dir_all(&self.folder)
            .map_err(|error| PanelError::Failed(format!("{}: {error}", self.folder.display())))?;
        let source = format!("synth://?seed={}&{TREE}", fastrand::u64(..) as u32);
        let destination = self.folder.join(format!("copy-{number}"));
        let job = open(&self.state(number), &source, &destination);
        let job = job.map_err(|error| PanelError::Failed(error.to_string()))?;
        let (stop, cancelled_by) = (job.stop(), shutdown.token());
        shutdown.spawn(format!("synthetic migration {number}"), async move {
            let running = tokio::task::spawn_blocking(move || run(job));
            tokio::pin!(running);
            let ended = tokio::select! {
                ended = &mut running => ended,
                () = cancelled_by.cancelled() => {
                    stop.cancel();
                    running.await
                }
            };
            if let Ok(Err(error)) = ended {
                tracing::warn!(%error, number, "synthetic migration failed");
            }
        });
        let message = format!("copying {source} to {}", destination.display());
        Ok(ActionResult::new(message))
    }

    fn state(&self, number: usize) -> PathBuf {
        self.folder.join(format!("synthetic-{number}.db"))
    }
}

fn open(state: &Path, source: &str, destination: &Path) -> Result<Job> {
    let between = Some((source.as_ref(), destination.as_os_str()));
    let settings = Settings {
        requests: Some(LISTINGS_PER_SECOND),
        ..Settings::default()
    };
    Job::open(state, between, &Filters::default(), settings)
}

/// Runs a job on a blocking thread, because it reads its state file between calls.
fn run(job: Job) -> Result<()> {
    let ended = tokio::runtime::Handle::current().block_on(async {
        job.plan().await?;
        job.copy(&CopyOptions::default()).await
    });
    let closed = job.close();
    match ended {
        Ok(_) | Err(Error::Stopped) => closed,
        Err(error) => Err(error),
    }
}
