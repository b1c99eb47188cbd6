//! A backend that records every call.

use crate::backend::{
    Backend, Chunks, CopyItem, CopyOutcome, Cursor, Extended, Listing, Page, Precondition,
    Requests, Upload, UploadPlan,
};
use crate::display;
use crate::error::Result;
use crate::{BoxFuture, Capabilities, Entry, Folder, OwnerMap, Probe, Space};
use parking_lot::Mutex;
use std::any::Any;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

/// Wraps a backend and writes a line to a file for every listing, page, look-up and file that is
/// requested, before the call is made. Tests use it to check a caller without trusting it.
pub struct Recording {
    inner: Arc<dyn Backend>,
    side: &'static str,
    log: Arc<Mutex<File>>,
}

/// A listing that records the requested pages.
struct RecordingListing {
    inner: Box<dyn Listing>,
    line: String,
    log: Arc<Mutex<File>>,
}

impl Listing for RecordingListing {
    fn next(&mut self) -> BoxFuture<'_, Result<Option<Page>>> {
        let _ = self.log.lock().write_all(self.line.as_bytes());
        self.inner.next()
    }
}

impl Recording {
    /// Appends to `log`, with `side` at the start of each line.
    ///
    /// # Errors
    /// When the file cannot be opened.
    pub fn new(
        inner: Arc<dyn Backend>,
        side: &'static str,
        log: &Path,
    ) -> std::io::Result<Recording> {
        let log = File::options().append(true).create(true).open(log)?;
        Ok(Recording {
            inner,
            side,
            log: Arc::new(Mutex::new(log)),
        })
    }

    fn line(&self, what: &str, path: &[u8]) -> String {
        format!("{} {what} {}\n", self.side, display(path))
    }

    fn record(&self, what: &str, path: &[u8]) {
        let line = self.line(what, path);
        // One write per line: a process that is killed leaves complete lines.
        let _ = self.log.lock().write_all(line.as_bytes());
    }
}

impl Backend for Recording {
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn as_any(&self) -> &dyn Any {
        self.inner.as_any()
    }

    fn probe(&self, known: Option<Probe>) -> Option<Probe> {
        self.inner.probe(known)
    }

    fn list<'a>(
        &'a self,
        folder: &'a Folder,
        from: Option<&'a Cursor>,
    ) -> BoxFuture<'a, Result<Box<dyn Listing>>> {
        self.record(
            if from.is_some() { "list-on" } else { "list" },
            folder.as_bytes(),
        );
        Box::pin(async move {
            let recording = RecordingListing {
                inner: self.inner.list(folder, from).await?,
                line: self.line("page", folder.as_bytes()),
                log: self.log.clone(),
            };
            Ok(Box::new(recording) as Box<dyn Listing>)
        })
    }

    fn for_walk(&self) -> Option<Arc<dyn Backend>> {
        Some(Arc::new(Recording {
            inner: self.inner.for_walk()?,
            side: self.side,
            log: self.log.clone(),
        }))
    }

    fn stat<'a>(
        &'a self,
        folder: &'a Folder,
        name: Option<&'a [u8]>,
    ) -> BoxFuture<'a, Result<Entry>> {
        match name {
            Some(name) => self.record("stat", &folder.join(name)),
            None => self.record("stat", folder.as_bytes()),
        }
        self.inner.stat(folder, name)
    }

    fn read<'a>(
        &'a self,
        folder: &'a Folder,
        name: &'a [u8],
        offset: u64,
        length: u64,
    ) -> BoxFuture<'a, Result<Box<dyn Chunks>>> {
        self.record("read", &folder.join(name));
        self.inner.read(folder, name, offset, length)
    }

    fn extended<'a>(
        &'a self,
        folder: &'a Folder,
        name: Option<&'a [u8]>,
    ) -> BoxFuture<'a, Result<Extended>> {
        self.inner.extended(folder, name)
    }

    fn upload<'a>(
        &'a self,
        folder: &'a Folder,
        name: &'a [u8],
        plan: UploadPlan,
    ) -> BoxFuture<'a, Result<Box<dyn Upload>>> {
        self.record(
            if plan.resume.is_some() {
                "write-on"
            } else {
                "write"
            },
            &folder.join(name),
        );
        self.inner.upload(folder, name, plan)
    }

    fn discard<'a>(
        &'a self,
        folder: &'a Folder,
        name: &'a [u8],
        plan: &'a UploadPlan,
    ) -> BoxFuture<'a, Result<()>> {
        self.inner.discard(folder, name, plan)
    }

    fn copy_batch<'a>(
        &'a self,
        source: &'a dyn Backend,
        folder: &'a Folder,
        items: &'a [CopyItem],
    ) -> Option<BoxFuture<'a, Vec<Result<CopyOutcome>>>> {
        let batch = self.inner.copy_batch(source, folder, items)?;
        for item in items {
            self.record("copy", &folder.join(&item.entry.name));
        }
        Some(batch)
    }

    fn make_folder<'a>(&'a self, folder: &'a Folder) -> BoxFuture<'a, Result<()>> {
        self.inner.make_folder(folder)
    }

    fn make_node<'a>(
        &'a self,
        folder: &'a Folder,
        item: &'a CopyItem,
    ) -> BoxFuture<'a, Result<Entry>> {
        self.inner.make_node(folder, item)
    }

    fn hard_link<'a>(
        &'a self,
        existing: (&'a Folder, &'a [u8]),
        folder: &'a Folder,
        name: &'a [u8],
        temp: &'a [u8],
        precondition: &'a Precondition,
    ) -> BoxFuture<'a, Result<Entry>> {
        self.inner
            .hard_link(existing, folder, name, temp, precondition)
    }

    fn set_attributes<'a>(
        &'a self,
        folder: &'a Folder,
        name: Option<&'a [u8]>,
        like: &'a Entry,
        extended: Extended,
        precondition: &'a Precondition,
    ) -> BoxFuture<'a, Result<Entry>> {
        self.inner
            .set_attributes(folder, name, like, extended, precondition)
    }

    fn remove<'a>(&'a self, folder: &'a Folder, name: &'a [u8]) -> BoxFuture<'a, Result<()>> {
        self.record("remove", &folder.join(name));
        self.inner.remove(folder, name)
    }

    fn rename<'a>(
        &'a self,
        folder: &'a Folder,
        name: &'a [u8],
        to: (&'a Folder, &'a [u8]),
    ) -> BoxFuture<'a, Result<()>> {
        self.inner.rename(folder, name, to)
    }

    fn requests(&self) -> Requests {
        self.inner.requests()
    }

    fn notices(&self) -> Vec<String> {
        self.inner.notices()
    }

    fn requests_to_write(&self, size: u64) -> u64 {
        self.inner.requests_to_write(size)
    }

    fn requests_to_read(&self, size: u64) -> u64 {
        self.inner.requests_to_read(size)
    }

    fn sync(&self) -> BoxFuture<'_, Result<()>> {
        self.inner.sync()
    }

    fn space(&self) -> BoxFuture<'_, Result<Option<Space>>> {
        self.inner.space()
    }

    fn map_owners(&self, map: &OwnerMap) -> bool {
        self.inner.map_owners(map)
    }

    fn clock(&self) -> BoxFuture<'_, Option<i64>> {
        self.inner.clock()
    }

    fn writable(&self) -> BoxFuture<'_, Result<()>> {
        self.inner.writable()
    }
}
