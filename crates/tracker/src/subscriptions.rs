//! Lists of forwarders at URLs, as people publish them.
//!
//! The last good copy of a list stays in force until there is something better: an outage, an error
//! page or an empty file at the other end changes nothing. The copies survive a restart in a
//! folder.

use crate::client::{
    HttpReach, Reach, is_from_internet, is_refused, reach_of_redirect, redirect_target,
};
use crate::config::TrackerConfig;
use crate::forwarders::{
    List, ListError, ListOrigin, MAX_FORWARDERS, authorization, dedup, parse_from, read, shown_url,
    without_user,
};
use bytes::Bytes;
use headworks_service::bounded_file;
use headworks_service::outbound::Outbound;
use http::header::{AUTHORIZATION, ETAG, IF_NONE_MATCH, LOCATION, USER_AGENT};
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

/// The lists that are due.
pub(crate) struct DueLists {
    pub(crate) sources: Vec<String>,
    /// Whether the copy of a new list was read.
    pub(crate) changed: bool,
    /// The time until the next one of the others is due.
    pub(crate) pause: Duration,
}

/// The result of fetching a list.
pub(crate) struct Refreshed {
    /// Whether the list has changed.
    pub(crate) changed: bool,
    /// The time until it is due again.
    pub(crate) pause: Duration,
    /// Whether it could not be fetched.
    pub(crate) failed: bool,
}

/// The result of a fetch.
enum Fetched {
    Unchanged,
    List {
        origin: ListOrigin,
        etag: Option<String>,
        text: String,
        list: List,
    },
}

/// The response of a server.
struct Body {
    origin: ListOrigin,
    etag: Option<String>,
    bytes: Vec<u8>,
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
    match fetched.map_err(|cause| ListError::Read(shown_url(source), cause))? {
        Fetched::List { list, .. } => Ok(list),
        Fetched::Unchanged => Ok(List::default()),
    }
}

impl Subscriptions {
    /// Creates a subscription with a list that was fetched.
    #[cfg(test)]
    pub(crate) fn with_list(source: &str, text: &str) -> Subscriptions {
        let subscriptions = Subscriptions::default();
        let subscription = Subscription {
            list: parse_from(ListOrigin::Private, source, text).unwrap(),
            ..Subscription::default()
        };
        (subscriptions.lists.lock()).insert(source.to_owned(), subscription);
        subscriptions
    }

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

    /// Returns the lists that are due, and reads the copies of new ones.
    pub(crate) fn due(&self, sources: &[String], every: Duration) -> DueLists {
        let mut due = DueLists {
            sources: Vec::new(),
            changed: false,
            pause: every,
        };
        for source in sources.iter().filter(|source| is_url(source)) {
            if !self.lists.lock().contains_key(source) {
                self.read_copy(source);
                due.changed = true;
            }
            let next = self.lists.lock().get(source).and_then(|list| list.next);
            let now = Instant::now();
            match next.filter(|next| *next > now) {
                Some(next) => due.pause = due.pause.min(next - now),
                None if due.sources.contains(source) => {}
                None => due.sources.push(source.clone()),
            }
        }
        due
    }

    /// Fetches a list.
    pub(crate) async fn refresh(
        &self,
        source: &str,
        outbound: &Outbound,
        every: Duration,
    ) -> Refreshed {
        let known = self.lists.lock().get(source).cloned().unwrap_or_default();
        let fetched = fetch(source, known.etag.as_deref(), outbound).await;
        let failed = fetched.is_err();
        let failures = if failed { known.failures + 1 } else { 0 };
        let pause = match failures {
            0 => every,
            failures => every.min(RETRY * (1 << (failures - 1).min(16))),
        };
        let mut changed = false;
        let mut lists = self.lists.lock();
        let subscription = lists.entry(source.to_owned()).or_default();
        subscription.next = Some(Instant::now() + pause);
        subscription.failures = failures;
        match fetched {
            Ok(Fetched::Unchanged) => {}
            Ok(Fetched::List {
                origin,
                etag,
                text,
                list,
            }) => {
                changed = subscription.list != list;
                tracing::info!(
                    list = shown_url(source),
                    forwarders = list.forwarders.len(),
                    "list of forwarders fetched"
                );
                (subscription.etag, subscription.list) = (etag, list);
                self.write_copy(source, origin, subscription.etag.as_deref(), &text);
            }
            Err(error) => {
                let kept = subscription.list.forwarders.len();
                tracing::warn!(
                    list = shown_url(source),
                    error,
                    kept,
                    "cannot fetch a list of forwarders: the last good copy stays in force"
                );
            }
        }
        Refreshed {
            changed,
            pause,
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
        let name = shown_url(source);
        if let Some(copy) = text.as_deref().and_then(|text| parse_copy(&name, text)) {
            subscription.etag = copy.etag.map(str::to_owned);
            subscription.list = copy.list;
        }
        self.lists.lock().insert(source.to_owned(), subscription);
    }

    fn write_copy(&self, source: &str, origin: ListOrigin, etag: Option<&str>, text: &str) {
        let Some(path) = self.copy_of(source) else {
            return;
        };
        let new = path.with_extension("new");
        let origin = match origin {
            ListOrigin::Private => PRIVATE,
            ListOrigin::Public => PUBLIC,
        };
        let copy = format!("{origin}{}\n{text}", etag.unwrap_or_default());
        let written = (path.parent().map_or(Ok(()), std::fs::create_dir_all))
            .and_then(|()| std::fs::write(&new, copy))
            .and_then(|()| std::fs::rename(&new, &path));
        if let Err(error) = written {
            tracing::warn!(path = %path.display(), %error, "cannot keep a copy of a list of forwarders: set `forwarder_lists_folder`");
        }
    }
}

/// The beginnings of a copy, before the entity tag.
const PRIVATE: &str = "private ";
const PUBLIC: &str = "public ";

/// The stored copy of a list.
pub(crate) struct ListCopy<'a> {
    pub(crate) origin: ListOrigin,
    etag: Option<&'a str>,
    pub(crate) list: List,
}

/// Reads the stored copy of a list; `None` if it cannot be used.
pub(crate) fn parse_copy<'a>(name: &str, text: &'a str) -> Option<ListCopy<'a>> {
    let (head, body) = text.split_once('\n')?;
    let (origin, etag) = parse_copy_head(head);
    let list = parse_usable(origin, name, body).ok()?;
    Some(ListCopy { origin, etag, list })
}

/// Returns the origin and the entity tag in the first line of a copy. Without an origin the list is
/// fetched in full, and not trusted until then.
fn parse_copy_head(head: &str) -> (ListOrigin, Option<&str>) {
    let public = || Some((ListOrigin::Public, head.strip_prefix(PUBLIC)?));
    let private = head.strip_prefix(PRIVATE);
    let private = private.map(|etag| (ListOrigin::Private, etag));
    let Some((origin, etag)) = private.or_else(public) else {
        return (ListOrigin::Public, None);
    };
    (origin, Some(etag).filter(|etag| !etag.is_empty()))
}

/// Returns the folder for copies of published lists: the configured one, the snapshot's,
/// `$STATE_DIRECTORY`, or `headworks` in the user's state folder.
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

async fn fetch(source: &str, etag: Option<&str>, outbound: &Outbound) -> Result<Fetched, String> {
    let fetched = tokio::time::timeout(TIMEOUT, get(source, etag, outbound)).await;
    let fetched = fetched.unwrap_or_else(|_| Err("no response in time".into()))?;
    let Some(Body {
        origin,
        etag,
        bytes,
    }) = fetched
    else {
        return Ok(Fetched::Unchanged);
    };
    let text = String::from_utf8(bytes).map_err(|_| "not UTF-8".to_owned())?;
    let name = shown_url(source);
    // A long list takes its time, and signals must not wait for it.
    let parsed = tokio::task::spawn_blocking(move || {
        let list = parse_usable(origin, &name, &text)?;
        Ok(Fetched::List {
            origin,
            etag,
            text,
            list,
        })
    });
    let ended = |_| Err("the tracker is stopping".to_owned());
    parsed.await.unwrap_or_else(ended)
}

/// Parses a list that can be applied.
fn parse_usable(origin: ListOrigin, name: &str, text: &str) -> Result<List, String> {
    let list = parse_from(origin, name, text).map_err(|error| error.to_string())?;
    let mut distinct = list.forwarders.clone();
    dedup(&mut distinct);
    let words = list.skipped.iter().filter(|one| !one.is_uri).count();
    match distinct.len() {
        // A sentence of an error page may begin with the address of a status page. Entries such as
        // `wss://` are fine, however many there are.
        count if words > count => Err("most entries are not URIs: not a list of forwarders".into()),
        0 => Err("the list has no usable forwarder".into()),
        count if count > MAX_FORWARDERS => Err(format!(
            "the list has {count} forwarders, more than {MAX_FORWARDERS}"
        )),
        _ => Ok(list),
    }
}

/// Returns the response at a URL; `None` if it is unchanged.
async fn get(
    source: &str,
    etag: Option<&str>,
    outbound: &Outbound,
) -> Result<Option<Body>, String> {
    let invalid = || "not a valid URL".to_owned();
    let first: Uri = source.parse().map_err(|_| invalid())?;
    let (password, mut uri) = (authorization(&first), first.clone());
    if let Some(plain) = without_user(&uri) {
        uri = plain;
    }
    let first = uri.clone();
    let client = HttpReach::new(outbound.clone());
    // The operator names the first server.
    let mut reach = Reach::Anywhere;
    for _ in 0..=MAX_REDIRECTS {
        let mut request = Request::get(uri.clone())
            .header(USER_AGENT, concat!("headworks/", env!("CARGO_PKG_VERSION")));
        // The password is meant for this server, and for no other.
        let same = uri.scheme() == first.scheme() && uri.authority() == first.authority();
        if let Some(password) = password.as_ref().filter(|_| same) {
            request = request.header(AUTHORIZATION, password);
        }
        if let Some(etag) = etag {
            request = request.header(IF_NONE_MATCH, etag);
        }
        let request = request.body(Empty::<Bytes>::new()).map_err(|_| invalid())?;
        let response = client.send(reach, request).await;
        let response = response.map_err(|error| match is_refused(&*error) {
            true => "redirected into a private network that its server is not in: not followed"
                .to_owned(),
            false => error.to_string(),
        })?;
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
                let origin = match is_from_internet(&response, &uri) {
                    true => ListOrigin::Public,
                    false => ListOrigin::Private,
                };
                let body = Limited::new(response.into_body(), MAX_LIST).collect().await;
                let body = body.map_err(|error| format!("cannot read the list: {error}"))?;
                return Ok(Some(Body {
                    origin,
                    etag,
                    bytes: body.to_bytes().to_vec(),
                }));
            }
            301 | 302 | 303 | 307 | 308 => {
                let location = header(LOCATION).ok_or("redirected to nowhere")?;
                let to = redirect_target(&uri, &location).ok_or("redirected to no web address")?;
                if uri.scheme_str() == Some("https") && to.scheme_str() != Some("https") {
                    return Err("redirected from https to http: not followed".into());
                }
                reach = reach_of_redirect(&response, &uri);
                uri = to;
            }
            status => return Err(format!("status {status}")),
        }
    }
    Err("too many redirects".into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use headworks_service::outbound::OutboundConfig;
    use std::sync::Arc;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    #[test]
    fn a_copy_remembers_where_its_list_is_from() {
        let public = (ListOrigin::Public, Some("\"a b\""));
        assert_eq!(parse_copy_head("public \"a b\""), public);
        let private = (ListOrigin::Private, None);
        assert_eq!(parse_copy_head("private "), private);
        let unknown = (ListOrigin::Public, None);
        assert_eq!(parse_copy_head("\"a\""), unknown);
    }

    /// A server that answers one request after the other with these responses. Returns its URL and
    /// the requests that it received.
    async fn serve(responses: Vec<String>) -> (String, Arc<Mutex<Vec<String>>>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/list.txt", listener.local_addr().unwrap());
        let requests = Arc::<Mutex<Vec<String>>>::default();
        let log = requests.clone();
        tokio::spawn(async move {
            for response in responses {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut request = Vec::new();
                while !request.ends_with(b"\r\n\r\n") {
                    request.push(stream.read_u8().await.unwrap());
                }
                let request = String::from_utf8(request).unwrap().to_lowercase();
                log.lock().push(request);
                stream.write_all(response.as_bytes()).await.unwrap();
            }
        });
        (url, requests)
    }

    fn response(status: &str, etag: &str, body: &str) -> String {
        let length = body.len();
        format!(
            "HTTP/1.1 {status}\r\nETag: {etag}\r\nContent-Length: {length}\r\n\
             Connection: close\r\n\r\n{body}"
        )
    }

    #[tokio::test]
    async fn a_list_is_refreshed_as_long_as_the_tracker_runs() {
        let failure = || response("500 X", "\"no\"", "");
        let mut responses = vec![
            response("200 OK", "\"one\"", "udp://127.0.0.1:1\n"),
            response("304 Not Modified", "\"one\"", ""),
            response(
                "200 OK",
                "\"two\"",
                "udp://127.0.0.1:1\nudp://127.0.0.1:2\n",
            ),
        ];
        responses.extend((0..4).map(|_| failure()));
        responses.push(response("304 Not Modified", "\"two\"", ""));
        responses.push(failure());
        let (url, requests) = serve(responses).await;
        let proxies = hyper_util::client::proxy::matcher::Matcher::builder().build();
        let outbound = Outbound::with_proxies(&OutboundConfig::default(), proxies).unwrap();
        let (lists, sources) = (Subscriptions::default(), [url.clone()]);
        let every = Duration::from_secs(200);
        // Changed, failed, the pause, the forwarders, and the tag that is sent.
        for (number, (changed, failed, pause, forwarders, tag)) in [
            (true, false, 200, 1, None),
            (false, false, 200, 1, Some("one")),
            (true, false, 200, 2, Some("one")),
            (false, true, 60, 2, Some("two")),
            (false, true, 120, 2, Some("two")),
            (false, true, 200, 2, Some("two")),
            (false, true, 200, 2, Some("two")),
            (false, false, 200, 2, Some("two")),
            (false, true, 60, 2, Some("two")),
        ]
        .into_iter()
        .enumerate()
        {
            let due = lists.due(&sources, every);
            assert_eq!(due.sources, sources, "{number}");
            assert_eq!(due.changed, number == 0, "the copy of a new list");
            let refreshed = lists.refresh(&url, &outbound, every).await;
            let got = (
                refreshed.changed,
                refreshed.failed,
                refreshed.pause.as_secs(),
            );
            assert_eq!(got, (changed, failed, pause), "{number}");
            let list = lists.list(&url).unwrap();
            assert_eq!(list.forwarders.len(), forwarders, "{number}");
            let request = requests.lock()[number].clone();
            let sent = tag.map(|tag| format!("if-none-match: \"{tag}\"\r\n"));
            let expected = sent.is_none_or(|sent| request.contains(&sent));
            let any = request.contains("if-none-match");
            assert!(expected && any == tag.is_some(), "{number}: {request}");
            let waits = lists.due(&sources, every);
            assert!(waits.sources.is_empty(), "{number}");
            assert!(waits.pause <= refreshed.pause, "{number}");
            tokio::time::pause();
            tokio::time::advance(refreshed.pause).await;
            tokio::time::resume();
        }
    }

    #[test]
    fn a_list_of_mostly_unsupported_uris_is_used_and_a_sentence_is_not() {
        let list = "wss://a.example/\nwss://b.example/\nudp://c.example:1/announce\n";
        assert_eq!(
            parse_usable(ListOrigin::Public, "list", list)
                .unwrap()
                .forwarders
                .len(),
            1
        );
        let twice = "udp://c.example:1/announce\n".repeat(9);
        assert!(parse_usable(ListOrigin::Public, "list", &twice).is_ok());
        let sentence = "https://status.example is down for maintenance";
        assert!(parse_usable(ListOrigin::Public, "list", sentence).is_err());
    }
}
