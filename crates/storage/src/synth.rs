//! A generated tree as a backend, with configurable latency and faults.

use crate::backend::{Backend, Chunks, Cursor, Listing, Page};
use crate::error::{Error, ErrorKind, Result};
use crate::{BoxFuture, Capabilities, Entry, Folder, Kind};
use bytes::Bytes;
use headworks_synth::{Node, Rng, Tree, TreeSpec};
use parking_lot::Mutex;
use std::any::Any;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const PAGE: usize = 1000;
const CHUNK: u64 = 256 * 1024;

/// Number of calls that a backend received.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallCounts {
    /// Listings started.
    pub lists: u64,
    /// Reads started.
    pub reads: u64,
    /// Calls that failed on purpose.
    pub faults: u64,
}

/// A synthetic tree as a read-only storage.
///
/// ```
/// use headworks_storage::{Backend, Folder, Synth};
///
/// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
/// let synth = Synth::parse("seed=1&files=3&dirs=2&depth=2&latency=1ms&errors=0").unwrap();
/// let mut listing = synth.list(&Folder::root(), None).await.unwrap();
/// assert_eq!(listing.next().await.unwrap().unwrap().entries.len(), 5);
/// assert_eq!(synth.calls().lists, 1);
/// # });
/// ```
#[derive(Clone, Debug)]
pub struct Synth {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    tree: Tree,
    faults_planned: FaultPlan,
    page: usize,
    lists: AtomicU64,
    reads: AtomicU64,
    faults: AtomicU64,
    calls: AtomicU64,
    /// Number of calls per object, so that faults do not depend on the order of callers.
    request_counts: Mutex<HashMap<u64, u64>>,
}

/// The faults to inject.
#[derive(Clone, Debug, Default)]
struct FaultPlan {
    latency: Duration,
    /// Percentage of calls that fail.
    errors: u64,
    /// Percentage of calls that report an overload.
    overload: u64,
    /// A folder that can never be listed.
    deny: Option<Vec<u8>>,
    /// Number of calls after which the whole storage is gone for this process.
    gone: Option<u64>,
}

impl Synth {
    /// Parses `key=value` pairs joined by `&`: those of [`TreeSpec`], and `fanout` (the same as
    /// `dirs`), `latency`, `errors`, `overload` (percentages), `deny` (a path), `gone` (calls until
    /// the storage is gone), `page` (entries).
    ///
    /// # Errors
    /// When a key is unknown or its value is invalid.
    pub fn parse(text: &str) -> Result<Synth> {
        let mut faults_planned = FaultPlan::default();
        let mut page = PAGE;
        let mut tree = Vec::new();
        for pair in text.split('&').filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            let percent = || value.parse().ok().filter(|percent| *percent <= 100);
            match key {
                "latency" => {
                    faults_planned.latency =
                        duration(value).ok_or_else(|| bad(pair, "a time, as in 5ms"))?;
                }
                "errors" => {
                    faults_planned.errors =
                        percent().ok_or_else(|| bad(pair, "percent from 0 to 100"))?;
                }
                "overload" => {
                    faults_planned.overload =
                        percent().ok_or_else(|| bad(pair, "percent from 0 to 100"))?;
                }
                "deny" => {
                    faults_planned.deny =
                        Some(Folder::from_bytes(value.into()).as_bytes().to_vec());
                }
                "gone" => {
                    let calls = value.parse().map_err(|_| bad(pair, "a number of calls"))?;
                    faults_planned.gone = Some(calls);
                }
                "page" => {
                    page = value
                        .parse()
                        .map_err(|_| bad(pair, "a number of entries"))?;
                }
                "fanout" => tree.push(format!("dirs={value}")),
                _ => tree.push(pair.to_owned()),
            }
        }
        let spec: TreeSpec = tree
            .join("&")
            .parse()
            .map_err(|e: headworks_synth::SynthError| {
                Error::new(ErrorKind::Other, "read", text.as_bytes(), e.to_string())
            })?;
        let inner = Inner {
            tree: Tree::new(spec),
            faults_planned,
            page: page.max(1),
            lists: AtomicU64::new(0),
            reads: AtomicU64::new(0),
            faults: AtomicU64::new(0),
            calls: AtomicU64::new(0),
            request_counts: Mutex::default(),
        };
        Ok(Synth {
            inner: Arc::new(inner),
        })
    }

    /// Returns the number of calls so far.
    #[must_use]
    pub fn calls(&self) -> CallCounts {
        CallCounts {
            lists: self.inner.lists.load(Ordering::Relaxed),
            reads: self.inner.reads.load(Ordering::Relaxed),
            faults: self.inner.faults.load(Ordering::Relaxed),
        }
    }

    /// Returns the tree.
    #[must_use]
    pub fn tree(&self) -> &Tree {
        &self.inner.tree
    }
}

fn bad(pair: &str, expected: &str) -> Error {
    let message = format!("expected {expected}");
    Error::new(
        ErrorKind::Other,
        "read the setting",
        pair.as_bytes(),
        message,
    )
}

fn duration(text: &str) -> Option<Duration> {
    let split = text.find(|c: char| c.is_ascii_alphabetic())?;
    let unit = match &text[split..] {
        "us" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        _ => return None,
    };
    Duration::try_from_secs_f64(text[..split].parse::<f64>().ok()? * unit).ok()
}

impl Inner {
    async fn inject_faults(&self, operation: &'static str, path: &[u8]) -> Result<()> {
        let FaultPlan {
            latency,
            errors,
            overload,
            deny,
            gone,
        } = &self.faults_planned;
        if !latency.is_zero() {
            tokio::time::sleep(*latency).await;
        }
        let calls = self.calls.fetch_add(1, Ordering::Relaxed);
        if gone.is_some_and(|gone| calls >= gone) {
            let message = "the storage went away, as configured";
            return Err(Error::new(ErrorKind::Gone, operation, path, message));
        }
        if operation == "list" && deny.as_deref() == Some(path) {
            let message = "permission denied, as configured";
            return Err(Error::new(ErrorKind::Denied, operation, path, message));
        }
        if *errors == 0 && *overload == 0 {
            return Ok(());
        }
        let mut hasher = DefaultHasher::new();
        (operation, path).hash(&mut hasher);
        let key = hasher.finish();
        let time = {
            let mut request_counts = self.request_counts.lock();
            let times = request_counts.entry(key).or_insert(0);
            *times += 1;
            *times
        };
        let roll = Rng::new(self.tree.spec().seed ^ key).split(time).below(100);
        let kind = match roll {
            roll if roll < *errors => ErrorKind::Temporary,
            roll if roll < errors + overload => {
                ErrorKind::Overload(Some(Duration::from_millis(20)))
            }
            _ => return Ok(()),
        };
        self.faults.fetch_add(1, Ordering::Relaxed);
        Err(Error::new(kind, operation, path, "failed, as configured"))
    }

    fn find(&self, operation: &'static str, folder: &Folder, name: Option<&[u8]>) -> Result<Node> {
        let path = || name.map_or_else(|| folder.as_bytes().to_vec(), |name| folder.join(name));
        let found = self.tree.find(folder.names().chain(name));
        found.ok_or_else(|| Error::new(ErrorKind::NotFound, operation, &path(), "not in the tree"))
    }

    fn entry(&self, node: &Node) -> Entry {
        let kind = match node.kind() {
            headworks_synth::Kind::Folder => Kind::Folder,
            headworks_synth::Kind::File => Kind::File,
        };
        let modified = i64::try_from(node.modified().as_nanos()).ok();
        Entry {
            size: node.size(),
            modified,
            ..Entry::new(self.tree.name(node), kind)
        }
    }
}

struct SynthListing {
    inner: Arc<Inner>,
    path: Vec<u8>,
    folder: Node,
    mark: Option<u64>,
}

impl Listing for SynthListing {
    fn next(&mut self) -> BoxFuture<'_, Result<Option<Page>>> {
        Box::pin(async {
            let Some(mark) = self.mark else {
                return Ok(None);
            };
            if mark > 0 {
                self.inner.inject_faults("list", &self.path).await?;
            }
            let mut children = self.inner.tree.children_from(&self.folder, mark);
            let mut entries = Vec::new();
            let next = loop {
                match children.next() {
                    None => break None,
                    Some(node) => entries.push(self.inner.entry(&node)),
                }
                if entries.len() >= self.inner.page && children.position().is_some() {
                    break children.position();
                }
            };
            self.mark = next;
            let cursor = next.map(|mark| mark.to_le_bytes().to_vec());
            Ok(Some(Page { entries, cursor }))
        })
    }
}

struct SynthChunks {
    inner: Arc<Inner>,
    file: Node,
    offset: u64,
    end: u64,
}

impl Chunks for SynthChunks {
    fn is_checked(&self) -> bool {
        true
    }

    fn next(&mut self) -> BoxFuture<'_, Result<Option<Bytes>>> {
        let wanted = self.end.saturating_sub(self.offset).min(CHUNK) as usize;
        let mut buffer = vec![0; wanted];
        let count = self.inner.tree.read(&self.file, self.offset, &mut buffer);
        buffer.truncate(count);
        self.offset += count as u64;
        let chunk = (count > 0).then(|| Bytes::from(buffer));
        Box::pin(std::future::ready(Ok(chunk)))
    }
}

impl Backend for Synth {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            resumable_listing: true,
            modified: Some(Duration::from_nanos(1)),
            ..Capabilities::read_only()
        }
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn list<'a>(
        &'a self,
        folder: &'a Folder,
        from: Option<&'a Cursor>,
    ) -> BoxFuture<'a, Result<Box<dyn Listing>>> {
        Box::pin(async move {
            self.inner.lists.fetch_add(1, Ordering::Relaxed);
            self.inner.inject_faults("list", folder.as_bytes()).await?;
            let node = self.inner.find("list", folder, None)?;
            let mark = from.and_then(|from| from.as_slice().try_into().ok());
            let listing = SynthListing {
                inner: self.inner.clone(),
                path: folder.as_bytes().to_vec(),
                folder: node,
                mark: Some(mark.map_or(0, u64::from_le_bytes)),
            };
            Ok(Box::new(listing) as Box<dyn Listing>)
        })
    }

    fn stat<'a>(
        &'a self,
        folder: &'a Folder,
        name: Option<&'a [u8]>,
    ) -> BoxFuture<'a, Result<Entry>> {
        let found = self.inner.find("look at", folder, name);
        let entry = found.map(|node| self.inner.entry(&node));
        Box::pin(std::future::ready(entry))
    }

    fn read<'a>(
        &'a self,
        folder: &'a Folder,
        name: &'a [u8],
        offset: u64,
        length: u64,
    ) -> BoxFuture<'a, Result<Box<dyn Chunks>>> {
        Box::pin(async move {
            self.inner.reads.fetch_add(1, Ordering::Relaxed);
            self.inner.inject_faults("read", &folder.join(name)).await?;
            let file = self.inner.find("read", folder, Some(name))?;
            let chunks = SynthChunks {
                inner: self.inner.clone(),
                file,
                offset,
                end: offset.saturating_add(length),
            };
            Ok(Box::new(chunks) as Box<dyn Chunks>)
        })
    }
}
