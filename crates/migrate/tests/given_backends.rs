//! Jobs between backends that the caller made, and their progress.

use headworks_migrate::{CopyOptions, Error, Filters, Job, RateMeter, Settings, VerifyOptions};
use headworks_storage::{Backend, Local, Synth};
use std::ffi::OsStr;
use std::path::Path;
use std::sync::Arc;

fn open(folder: &Path, source: Arc<dyn Backend>, name: &str) -> Result<Job, Error> {
    let destination = Arc::new(Local::new(&folder.join("dst")));
    Job::open_with(
        &folder.join("job.db"),
        (OsStr::new(name), source),
        ("given:destination".as_ref(), destination),
        &Filters::default(),
        Settings::default(),
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_runs_and_resumes_between_given_backends() {
    let dir = tempfile::tempdir().unwrap();
    let tree = || Arc::new(Synth::parse("seed=2&depth=2&dirs=3&files=4&size=100").unwrap());
    let job = open(dir.path(), tree(), "given:source").unwrap();
    let plan = job.plan().await.unwrap();
    assert!(plan.source.entries > 20, "{plan:?}");
    job.close().unwrap();
    // As another process would.
    let job = open(dir.path(), tree(), "given:source").unwrap();
    let outcome = job.copy(&CopyOptions::default()).await.unwrap();
    assert!(!outcome.has_failures(), "{outcome:?}");
    let mut options = VerifyOptions::default();
    options.hash = true;
    let verified = job.verify(options).await.unwrap();
    assert!(
        verified.is_complete() && verified.entries > 20,
        "{verified:?}"
    );
    job.close().unwrap();
    // The name says which job it is.
    let refused = open(dir.path(), tree(), "given:another").err();
    assert!(
        matches!(refused, Some(Error::OtherJob { .. })),
        "{refused:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_of_a_large_file_are_shown_before_its_end() {
    const SIZE: u64 = 64 << 20;
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("src")).unwrap();
    let large = std::fs::File::create(dir.path().join("src/large")).unwrap();
    large.set_len(SIZE).unwrap();
    let source = Arc::new(Local::new(&dir.path().join("src")));
    let job = open(dir.path(), source, "given:source").unwrap();
    job.plan().await.unwrap();
    let mut options = CopyOptions::default();
    // The first seconds' worth is sent at once, the rest would take minutes.
    options.bwlimit = Some(1 << 20);
    let (progress, stop) = (job.progress(), job.stop());
    let watch = async {
        let mut meter = RateMeter::default();
        loop {
            let shown = meter.snapshot(&progress);
            if shown.bytes > 0 {
                stop.cancel();
                return shown;
            }
            tokio::task::yield_now().await;
        }
    };
    let (copied, shown) = tokio::join!(job.copy(&options), watch);
    assert!(matches!(copied, Err(Error::Stopped)), "{copied:?}");
    assert!(shown.bytes < SIZE && shown.done == 0, "{shown:?}");
    job.close().unwrap();
}
