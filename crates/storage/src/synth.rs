//! A tree computed from a seed, behind a backend's calls, with latency and faults to order.

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

/// How many calls a backend got.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Calls {
    /// Folders whose listing was begun.
    pub lists: u64,
    /// Files of which reading was begun.
    pub reads: u64,
    /// Calls that were made to fail.
    pub faults: u64,
}

/// A synthetic tree as a storage; it can only be read.
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
    weather: Weather,
    page: usize,
    lists: AtomicU64,
    reads: AtomicU64,
    faults: AtomicU64,
    calls: AtomicU64,
    /// How often each thing was asked for, so that faults do not depend on who asks first.
    asked: Mutex<HashMap<u64, u64>>,
}

/// What the far side does to calls.
#[derive(Clone, Debug, Default)]
struct Weather {
    latency: Duration,
    /// Percent of calls that fail.
    errors: u64,
    /// Percent of calls that are told to come back later.
    overload: u64,
    /// A folder that cannot be listed, ever.
    deny: Option<Vec<u8>>,
    /// After so many calls the whole storage is gone, as far as this process can tell.
    gone: Option<u64>,
}

impl Synth {
    /// From `key=value` pairs joined by `&`: those of [`TreeSpec`], and `fanout` (the same as
    /// `dirs`), `latency`, `errors`, `overload` (percent of calls), `deny` (a path), `gone` (calls
    /// until the storage goes away), `page` (entries).
    ///
    /// # Errors
    /// When a key is not known or its value makes no sense.
    pub fn parse(text: &str) -> Result<Synth> {
        let mut weather = Weather::default();
        let mut page = PAGE;
        let mut tree = Vec::new();
        for pair in text.split('&').filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            let percent = || value.parse().ok().filter(|percent| *percent <= 100);
            match key {
                "latency" => {
                    weather.latency =
                        duration(value).ok_or_else(|| bad(pair, "a time, as in 5ms"))?;
                }
                "errors" => {
                    weather.errors = percent().ok_or_else(|| bad(pair, "percent from 0 to 100"))?;
                }
                "overload" => {
                    weather.overload =
                        percent().ok_or_else(|| bad(pair, "percent from 0 to 100"))?;
                }
                "deny" => weather.deny = Some(Folder::from_bytes(value.into()).as_bytes().to_vec()),
                "gone" => {
                    let calls = value.parse().map_err(|_| bad(pair, "a number of calls"))?;
                    weather.gone = Some(calls);
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
            weather,
            page: page.max(1),
            lists: AtomicU64::new(0),
            reads: AtomicU64::new(0),
            faults: AtomicU64::new(0),
            calls: AtomicU64::new(0),
            asked: Mutex::default(),
        };
        Ok(Synth {
            inner: Arc::new(inner),
        })
    }

    /// How many calls it got so far.
    #[must_use]
    pub fn calls(&self) -> Calls {
        Calls {
            lists: self.inner.lists.load(Ordering::Relaxed),
            reads: self.inner.reads.load(Ordering::Relaxed),
            faults: self.inner.faults.load(Ordering::Relaxed),
        }
    }

    /// The tree behind it.
    #[must_use]
    pub fn tree(&self) -> &Tree {
        &self.inner.tree
    }
}

fn bad(pair: &str, expected: &str) -> Error {
    let words = format!("expected {expected}");
    Error::new(ErrorKind::Other, "read the setting", pair.as_bytes(), words)
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
    async fn weather(&self, operation: &'static str, path: &[u8]) -> Result<()> {
        let Weather {
            latency,
            errors,
            overload,
            deny,
            gone,
        } = &self.weather;
        if !latency.is_zero() {
            tokio::time::sleep(*latency).await;
        }
        let calls = self.calls.fetch_add(1, Ordering::Relaxed);
        if gone.is_some_and(|gone| calls >= gone) {
            let words = "the storage went away, as ordered";
            return Err(Error::new(ErrorKind::Gone, operation, path, words));
        }
        if operation == "list" && deny.as_deref() == Some(path) {
            let words = "permission denied, as ordered";
            return Err(Error::new(ErrorKind::Denied, operation, path, words));
        }
        if *errors == 0 && *overload == 0 {
            return Ok(());
        }
        let mut hasher = DefaultHasher::new();
        (operation, path).hash(&mut hasher);
        let key = hasher.finish();
        let time = {
            let mut asked = self.asked.lock();
            let times = asked.entry(key).or_insert(0);
            *times += 1;
            *times
        };
        let drawn = Rng::new(self.tree.spec().seed ^ key).split(time).below(100);
        let kind = match drawn {
            drawn if drawn < *errors => ErrorKind::Temporary,
            drawn if drawn < errors + overload => {
                ErrorKind::Overload(Some(Duration::from_millis(20)))
            }
            _ => return Ok(()),
        };
        self.faults.fetch_add(1, Ordering::Relaxed);
        Err(Error::new(kind, operation, path, "failed, as ordered"))
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
                self.inner.weather("list", &self.path).await?;
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
            self.inner.weather("list", folder.as_bytes()).await?;
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
            self.inner.weather("read", &folder.join(name)).await?;
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
