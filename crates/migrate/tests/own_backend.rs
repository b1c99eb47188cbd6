//! A storage that the library does not know is migrated, and resumed.

use headworks_migrate::{CopyOptions, Filters, Job, Settings};
use headworks_storage::{
    Backend, BoxFuture, Capabilities, Chunks, Cursor, Entry, Extended, Folder, Listing, Result,
    Synth,
};
use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

static LISTINGS: AtomicUsize = AtomicUsize::new(0);

/// Counts its listings; the tree itself is generated.
struct Counting(Synth);

impl Backend for Counting {
    fn capabilities(&self) -> Capabilities {
        self.0.capabilities()
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn list<'a>(
        &'a self,
        folder: &'a Folder,
        from: Option<&'a Cursor>,
    ) -> BoxFuture<'a, Result<Box<dyn Listing>>> {
        LISTINGS.fetch_add(1, Relaxed);
        self.0.list(folder, from)
    }

    fn stat<'a>(
        &'a self,
        folder: &'a Folder,
        name: Option<&'a [u8]>,
    ) -> BoxFuture<'a, Result<Entry>> {
        self.0.stat(folder, name)
    }

    fn read<'a>(
        &'a self,
        folder: &'a Folder,
        name: &'a [u8],
        offset: u64,
        length: u64,
    ) -> BoxFuture<'a, Result<Box<dyn Chunks>>> {
        self.0.read(folder, name, offset, length)
    }

    fn extended<'a>(
        &'a self,
        folder: &'a Folder,
        name: Option<&'a [u8]>,
    ) -> BoxFuture<'a, Result<Extended>> {
        self.0.extended(folder, name)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_storage_of_the_programs_own_is_migrated() {
    headworks_storage::register("counting", |_url| {
        let tree = Synth::parse("seed=2&depth=2&dirs=3&files=4&size=100")?;
        Ok(Arc::new(Counting(tree)))
    })
    .unwrap();
    let dir = tempfile::tempdir().unwrap();
    let (state, destination) = (dir.path().join("job.db"), dir.path().join("dst"));
    let locations = Some(("counting://tree".as_ref(), destination.as_os_str()));
    let open =
        |locations| Job::open(&state, locations, &Filters::default(), Settings::default()).unwrap();
    let job = open(locations);
    let plan = job.plan().await.unwrap();
    job.close().unwrap();
    let listed = LISTINGS.load(Relaxed);
    assert!(listed > 5 && plan.source.entries > 20, "{listed}: {plan:?}");
    // Another process would register the scheme again and find the location in the state file.
    let job = open(None);
    let outcome = job.copy(&CopyOptions::default()).await.unwrap();
    assert!(!outcome.has_failures(), "{outcome:?}");
    assert_eq!(outcome.source.entries, plan.source.entries);
    assert_eq!(LISTINGS.load(Relaxed), listed, "nothing is listed twice");
    job.close().unwrap();
}
