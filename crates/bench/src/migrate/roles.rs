//! The roles of the bench's own processes.

use headworks_migrate::{CopyOptions, Error, Filters, Job, Settings};
use rustix::fd::AsFd;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, RawDir, StatxFlags};
use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Runs `ROLE SOURCE DESTINATION STATE [WORKERS]` like `headworks migrate`, and prints the peak
/// memory in kilobytes.
pub(super) fn run(args: &[PathBuf]) -> ExitCode {
    let [role, source, destination, state, rest @ ..] = args else {
        return ExitCode::FAILURE;
    };
    if role.as_os_str() == "walk" {
        return walk_both(source, destination);
    }
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

/// Reads every folder and stats every entry of both trees, one thread per tree, and keeps nothing.
fn walk_both(source: &Path, destination: &Path) -> ExitCode {
    let walk = |tree: &Path| {
        let root = rustix::fs::open(tree, FOLDER, Mode::empty())?;
        walk(root)
    };
    let both = std::thread::scope(|scope| {
        let other = scope.spawn(|| walk(destination));
        (walk(source), other.join())
    });
    match both {
        (Ok(()), Ok(Ok(()))) => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}

const FOLDER: OFlags = OFlags::DIRECTORY.union(OFlags::CLOEXEC);

fn walk(folder: impl AsFd) -> rustix::io::Result<()> {
    let mut buffer = [MaybeUninit::uninit(); 32 * 1024];
    let mut names = RawDir::new(&folder, &mut buffer);
    while let Some(name) = names.next() {
        let name = name?;
        if [c".", c".."].contains(&name.file_name()) {
            continue;
        }
        stat_entry(&folder, name.file_name())?;
        if name.file_type() == FileType::Directory {
            walk(rustix::fs::openat(
                &folder,
                name.file_name(),
                FOLDER,
                Mode::empty(),
            )?)?;
        }
    }
    Ok(())
}

fn stat_entry(folder: impl AsFd, name: &CStr) -> rustix::io::Result<()> {
    let (flags, mask) = (AtFlags::SYMLINK_NOFOLLOW, StatxFlags::BASIC_STATS);
    rustix::fs::statx(folder, name, flags, mask).map(drop)
}

/// Returns the peak memory of this process in kilobytes.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok())
        .unwrap_or(0)
}
