//! Lists of forwarders at URLs, as people publish them.
//!
//! The last good copy of a list stays in force until there is something better: an outage, an error
//! page or an empty file at the other end changes nothing. The copies survive a restart in a
//! folder.

use crate::client::{is_public, redirect_target};
use crate::config::TrackerConfig;
use crate::forwarders::{List, ListError, parse, read};
use bytes::Bytes;
use headworks_service::bounded_file;
use headworks_service::outbound::Outbound;
use http::header::{ETAG, IF_NONE_MATCH, LOCATION, USER_AGENT};
use http::{Request, Uri};
use http_body_util::{BodyExt, Empty, Limited};
use parking_lot::Mutex;
use siphasher::sip::SipHasher13;
use std::collections::HashMap;
use std::hash::Hasher;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// The largest list accepted.
const MAX_LIST: usize = 4 << 20;
const MAX_REDIRECTS: usize = 5;
const TIMEOUT: Duration = Duration::from_secs(60);
/// The pause after a failed fetch; it doubles up to the time between two fetches.
const RETRY: Duration = Duration::from_secs(60);

/// The lists at URLs.
#[derive(Default)]
pub(crate) struct Subscriptions {
    folder: Option<PathBuf>,
    lists: Mutex<HashMap<String, Subscription>>,
    changed: Notify,
}

/// The last good copy of a list.
#[derive(Clone, Default)]
struct Subscription {
    etag: Option<String>,
    list: List,
    /// The time of the next fetch; unset until the first.
    next: Option<Instant>,
    failures: u32,
}

/// The result of fetching the lists that are due.
pub(crate) struct Refreshed {
    /// Whether any list has changed.
    pub(crate) changed: bool,
    /// The time until the next list is due.
    pub(crate) pause: Duration,
    /// Lists that were fetched, or are unchanged.
    pub(crate) fetched: u64,
    /// Lists that could not be fetched.
    pub(crate) failed: u64,
}

/// The result of a fetch.
enum Fetched {
    Unchanged,
    List {
        etag: Option<String>,
        text: String,
        list: List,
    },
}

fn is_url(source: &str) -> bool {
    source.starts_with("http://") || source.starts_with("https://")
}

/// Loads a list of forwarders from a file or a URL.
pub(crate) async fn load(source: &str, outbound: &Outbound) -> Result<List, ListError> {
    if !is_url(source) {
        return read(Path::new(source));
    }
    let fetched = fetch(source, None, outbound).await;
    match fetched.map_err(|cause| ListError::Read(source.into(), cause))? {
        Fetched::List { list, .. } => Ok(list),
        Fetched::Unchanged => Ok(List::default()),
    }
}

impl Subscriptions {
    /// Reads the copies of the lists that the section names.
    pub(crate) fn open(config: &TrackerConfig) -> Subscriptions {
        let subscriptions = Subscriptions {
            folder: folder(config),
            ..Subscriptions::default()
        };
        for source in config.list_sources().filter(|source| is_url(source)) {
            subscriptions.read_copy(&source);
        }
        subscriptions
    }

    /// Returns the list at a URL, empty if it was never fetched; `None` if the source is a file.
    pub(crate) fn list(&self, source: &str) -> Option<List> {
        let lists = self.lists.lock();
        is_url(source).then(|| {
            lists
                .get(source)
                .map_or_else(List::default, |s| s.list.clone())
        })
    }

    /// Fetches the lists that are due.
    pub(crate) async fn refresh(
        &self,
        sources: &[String],
        outbound: &Outbound,
        every: Duration,
    ) -> Refreshed {
        let (mut changed, mut pause) = (false, every);
        let (mut fetches, mut failed) = (0, 0);
        for source in sources.iter().filter(|source| is_url(source)) {
            if !self.lists.lock().contains_key(source) {
                self.read_copy(source);
                changed = true;
            }
            let known = self.lists.lock().get(source).cloned().unwrap_or_default();
            let now = Instant::now();
            if let Some(next) = known.next.filter(|next| *next > now) {
                pause = pause.min(next - now);
                continue;
            }
            let fetched = fetch(source, known.etag.as_deref(), outbound).await;
            fetches += 1;
            failed += u64::from(fetched.is_err());
            let failures = if fetched.is_err() {
                known.failures + 1
            } else {
                0
            };
            let wait = match failures {
                0 => every,
                failures => every.min(RETRY * (1 << failures.min(16))),
            };
            pause = pause.min(wait);
            let mut lists = self.lists.lock();
            let subscription = lists.entry(source.clone()).or_default();
            subscription.next = Some(Instant::now() + wait);
            subscription.failures = failures;
            match fetched {
                Ok(Fetched::Unchanged) => {}
                Ok(Fetched::List { etag, text, list }) => {
                    changed |= subscription.list != list;
                    tracing::info!(
                        list = shown(source),
                        forwarders = list.forwarders.len(),
                        "list of forwarders fetched"
                    );
                    (subscription.etag, subscription.list) = (etag, list);
                    self.write_copy(source, subscription.etag.as_deref(), &text);
                }
                Err(error) => {
                    let kept = subscription.list.forwarders.len();
                    tracing::warn!(
                        list = shown(source),
                        error,
                        kept,
                        "cannot fetch a list of forwarders: the last good copy stays in force"
                    );
                }
            }
        }
        Refreshed {
            changed,
            pause,
            fetched: fetches - failed,
            failed,
        }
    }

    /// Wakes the task that fetches, because the configuration has changed.
    pub(crate) fn notify(&self) {
        self.changed.notify_one();
    }

    /// Waits until [`notify`](Self::notify) is called.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }

    fn copy_of(&self, source: &str) -> Option<PathBuf> {
        // The name is a hash, because a URL may hold a secret.
        let mut hasher = SipHasher13::new_with_keys(0x6c69, 0x7374);
        hasher.write(source.as_bytes());
        let name = format!("forwarders-{:016x}.list", hasher.finish());
        Some(self.folder.as_ref()?.join(name))
    }

    fn read_copy(&self, source: &str) {
        let path = self.copy_of(source);
        let bytes = path.and_then(|path| bounded_file::read(&path).ok());
        let text = bytes.and_then(|bytes| String::from_utf8(bytes).ok());
        let mut subscription = Subscription::default();
        // The first line is the entity tag.
        if let Some((etag, body)) = text.as_deref().and_then(|text| text.split_once('\n'))
            && let Ok(list) = parse(shown(source), body)
            && !list.forwarders.is_empty()
        {
            subscription.etag = Some(etag.to_owned()).filter(|etag| !etag.is_empty());
            subscription.list = list;
        }
        self.lists.lock().insert(source.to_owned(), subscription);
    }

    fn write_copy(&self, source: &str, etag: Option<&str>, text: &str) {
        let Some(path) = self.copy_of(source) else {
            return;
        };
        let new = path.with_extension("new");
        let written = (path.parent().map_or(Ok(()), std::fs::create_dir_all))
            .and_then(|()| std::fs::write(&new, format!("{}\n{text}", etag.unwrap_or_default())))
            .and_then(|()| std::fs::rename(&new, &path));
        if let Err(error) = written {
            tracing::warn!(path = %path.display(), %error, "cannot keep a copy of a list of forwarders: set `forwarder_lists_folder`");
        }
    }
}

/// Returns the folder for copies.
fn folder(config: &TrackerConfig) -> Option<PathBuf> {
    let snapshot = config.snapshot_file.as_deref().and_then(Path::parent);
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let home = || Some(PathBuf::from(variable("HOME")?).join(".local/state"));
    let state = || variable("XDG_STATE_HOME").map(PathBuf::from).or_else(home);
    (config.forwarder_lists_folder.clone())
        .or_else(|| snapshot.map(Path::to_owned))
        .or_else(|| variable("STATE_DIRECTORY").map(PathBuf::from))
        .or_else(|| state().map(|state| state.join("headworks")))
}

/// Returns a URL without its query, which may hold a secret.
fn shown(source: &str) -> &str {
    source.split('?').next().unwrap_or_default()
}

async fn fetch(source: &str, etag: Option<&str>, outbound: &Outbound) -> Result<Fetched, String> {
    let fetched = tokio::time::timeout(TIMEOUT, get(source, etag, outbound)).await;
    let fetched = fetched.unwrap_or_else(|_| Err("no response in time".into()))?;
    let Some((etag, body)) = fetched else {
        return Ok(Fetched::Unchanged);
    };
    let text = String::from_utf8(body).map_err(|_| "not UTF-8".to_owned())?;
    let list = parse(shown(source), &text).map_err(|error| error.to_string())?;
    match list.forwarders.is_empty() {
        true => Err("the list has no usable forwarder".into()),
        false => Ok(Fetched::List { etag, text, list }),
    }
}

/// Returns the entity tag and the body at a URL; `None` if it is unchanged.
async fn get(
    source: &str,
    etag: Option<&str>,
    outbound: &Outbound,
) -> Result<Option<(Option<String>, Vec<u8>)>, String> {
    let invalid = || "not a valid URL".to_owned();
    let first: Uri = source.parse().map_err(|_| invalid())?;
    let mut uri = first.clone();
    for _ in 0..=MAX_REDIRECTS {
        let mut request = Request::get(uri.clone())
            .header(USER_AGENT, concat!("headworks/", env!("CARGO_PKG_VERSION")));
        if let Some(etag) = etag {
            request = request.header(IF_NONE_MATCH, etag);
        }
        let request = request.body(Empty::<Bytes>::new()).map_err(|_| invalid())?;
        let response = outbound.send(request).await;
        let response = response.map_err(|error| error.to_string())?;
        let header = |name| {
            let value = response.headers().get(name);
            value
                .and_then(|value| value.to_str().ok())
                .map(str::to_owned)
        };
        match response.status().as_u16() {
            304 if etag.is_some() => return Ok(None),
            200 => {
                let etag = header(ETAG);
                let body = Limited::new(response.into_body(), MAX_LIST).collect().await;
                let body = body.map_err(|error| format!("cannot read the list: {error}"))?;
                return Ok(Some((etag, body.to_bytes().to_vec())));
            }
            301 | 302 | 303 | 307 | 308 => {
                let location = header(LOCATION).ok_or("redirected to nowhere")?;
                let to = redirect_target(&uri, &location).ok_or("redirected to no web address")?;
                let names = outbound.dns_cache();
                if uri.scheme_str() == Some("https") && to.scheme_str() != Some("https") {
                    return Err("redirected from https to http: not followed".into());
                }
                if !is_public(names, &to).await && is_public(names, &first).await {
                    return Err("redirected into a private network: not followed".into());
                }
                uri = to;
            }
            status => return Err(format!("status {status}")),
        }
    }
    Err("too many redirects".into())
}
