//! What the bench's own processes do.

use headworks_migrate::{CopyOptions, Error, Filters, Job, Settings};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// `ROLE SOURCE DESTINATION STATE [WORKERS]`, as `headworks migrate` would; prints its peak memory in kilobytes.
pub(super) fn run(words: &[PathBuf]) -> ExitCode {
    let [role, source, destination, state, rest @ ..] = words else {
        return ExitCode::FAILURE;
    };
    let mut settings = Settings::default();
    let workers = rest
        .first()
        .and_then(|workers| workers.to_str()?.parse().ok());
    settings.workers = workers.map(|workers| (workers, workers));
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build();
    let runtime = runtime.expect("a runtime can be started");
    let done = runtime.block_on(work(role, (source, destination), state, settings));
    match done {
        Ok(()) => {
            println!("{}", peak());
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

async fn work(
    role: &Path,
    (source, destination): (&Path, &Path),
    state: &Path,
    settings: Settings,
) -> Result<(), Error> {
    let between = Some((source.as_os_str(), destination.as_os_str()));
    let job = Job::open(state, between, &Filters::default(), settings)?;
    let role = role.to_str().unwrap_or_default();
    if matches!(role, "plan" | "run") {
        job.plan().await?;
    }
    if matches!(role, "copy" | "run") {
        job.copy(&CopyOptions::default()).await?;
    }
    job.close()
}

/// The most memory that this process had, in kilobytes.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok())
        .unwrap_or(0)
}
