//! The pages for operators: `/stats`, `/metrics`, `/healthz` and the scrape of all torrents.
//!
//! Anybody may ask for a page as often as a connection allows, and building one takes locks and
//! work for every forwarder. The announce threads therefore leave that to a task of low priority. A
//! connection waits for its page, and its thread serves the others meanwhile.

use super::request::{Request, header_lines};
use super::response::PLAIN_TEXT;
use crate::announce::AnnounceHandler;
use crate::counters::Counters;
use crate::metrics;
use crate::stats::Stats;
use headworks_service::authenticator::AuthOutcome;
use headworks_tracker_wire::{query, scrape};
use nix::sys::eventfd::EventFd;
use parking_lot::Mutex;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// A page that is built by the task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Page {
    Stats,
    /// The statistics with clients' addresses.
    Clients,
    Metrics,
    /// The scrape of all torrents.
    Scrape,
}

impl Page {
    const ALL: [Page; 4] = [Page::Stats, Page::Clients, Page::Metrics, Page::Scrape];

    /// Returns the age up to which a page is served again. Metrics are always built anew: their
    /// collectors ask rarely and expect the values of the moment.
    fn max_age(self) -> Duration {
        match self {
            Page::Metrics => Duration::ZERO,
            _ => Duration::from_secs(1),
        }
    }

    fn build(self, announces: &AnnounceHandler) -> Built {
        let started = Instant::now();
        let (text, json) = match self {
            Page::Stats => Stats::of(announces).render(),
            Page::Clients => {
                let mut stats = Stats::of(announces);
                stats.add_clients(announces);
                stats.render()
            }
            Page::Metrics => (metrics::render(announces).into_bytes(), Vec::new()),
            Page::Scrape => (scrape_all(announces), Vec::new()),
        };
        Built {
            started,
            text,
            json,
        }
    }
}

fn scrape_all(announces: &AnnounceHandler) -> Vec<u8> {
    let (state, active) = (&announces.state, announces.state.active());
    let mut torrents = Vec::new();
    state.swarms.for_each(|hash, swarm| {
        if !active.access.denies_torrent(hash) {
            torrents.push((*hash, swarm.counts(state.count_by)));
        }
    });
    torrents.sort_unstable_by_key(|(hash, _)| *hash);
    let mut body = Vec::new();
    scrape::write(torrents, &mut body);
    body
}

/// A page as it was at one time.
pub(super) struct Built {
    /// The time at which building began.
    started: Instant,
    pub(super) text: Vec<u8>,
    json: Vec<u8>,
}

/// The pages that were built last.
#[derive(Default)]
pub(in crate::serve) struct Pages {
    slots: [Slot; Page::ALL.len()],
    /// Wakes the task.
    wanted: Notify,
    /// Wake the HTTP threads from epoll.
    threads: Mutex<Vec<Arc<EventFd>>>,
}

#[derive(Default)]
struct Slot {
    wanted: AtomicBool,
    built: Mutex<Option<Arc<Built>>>,
}

impl Pages {
    /// Registers an HTTP thread, which is woken whenever a page is built.
    pub(in crate::serve) fn register(&self, thread: Arc<EventFd>) {
        self.threads.lock().push(thread);
    }

    /// Wakes the HTTP threads.
    pub(in crate::serve) fn wake_threads(&self) {
        for thread in self.threads.lock().iter() {
            // It fails only if the counter is full, and then the thread wakes anyway.
            let _ = thread.write(1);
        }
    }

    /// Starts the task that builds pages, on the current runtime.
    pub(in crate::serve) fn spawn_builder(self: Arc<Self>, announces: Arc<AnnounceHandler>) {
        let counters = announces.state.new_counters();
        tokio::spawn(async move {
            loop {
                self.wanted.notified().await;
                self.build_wanted(&announces, &counters);
            }
        });
    }

    fn build_wanted(&self, announces: &AnnounceHandler, counters: &Counters) {
        for (page, slot) in Page::ALL.into_iter().zip(&self.slots) {
            if slot.wanted.swap(false, Ordering::AcqRel) {
                counters.pages_built.add(1);
                let built = Arc::new(page.build(announces));
                *slot.built.lock() = Some(built);
                self.wake_threads();
            }
        }
    }

    /// Returns a page for a request. If the last one is too old, another one is built, and
    /// `waits_since` remembers when the request began to wait.
    pub(super) fn get(&self, page: Page, waits_since: &mut Option<Instant>) -> Option<Arc<Built>> {
        let slot = &self.slots[page as usize];
        let now = Instant::now();
        let asked = *waits_since.get_or_insert(now);
        let is_new = |built: &Arc<Built>| {
            built.started >= asked || now.duration_since(built.started) < page.max_age()
        };
        let built = slot.built.lock().clone().filter(is_new);
        match &built {
            Some(_) => *waits_since = None,
            None => {
                slot.wanted.store(true, Ordering::Release);
                self.wanted.notify_one();
            }
        }
        built
    }
}

/// The status and content type of a response, whose body is in the buffer.
pub(super) type Status = (u16, &'static str);

/// Appends the page at `path` to `body` and returns its status and content type; `None` if the
/// request must wait.
pub(super) fn write(
    (announces, pages): (&AnnounceHandler, &Pages),
    peer: IpAddr,
    path: &[u8],
    request: &Request<'_>,
    waits_since: &mut Option<Instant>,
    body: &mut Vec<u8>,
) -> Option<Status> {
    Some(match path {
        b"/healthz" => {
            body.extend_from_slice(b"ok\n");
            (200, PLAIN_TEXT)
        }
        b"/stats" | b"/stats.json" => {
            let page = match may_see_clients(announces, peer, request) {
                true => Page::Clients,
                false => Page::Stats,
            };
            let page = pages.get(page, waits_since)?;
            match path == b"/stats.json" || wants_json(request) {
                true => {
                    body.extend_from_slice(&page.json);
                    (200, "application/json")
                }
                false => {
                    body.extend_from_slice(&page.text);
                    (200, PLAIN_TEXT)
                }
            }
        }
        b"/metrics" => {
            let page = pages.get(Page::Metrics, waits_since)?;
            body.extend_from_slice(&page.text);
            (200, headworks_service::metrics::CONTENT_TYPE)
        }
        _ => {
            body.extend_from_slice(
                b"not found; try /announce, /scrape, /stats, /metrics or /healthz\n",
            );
            (404, PLAIN_TEXT)
        }
    })
}

/// Whether a request carries the admin token, in `Authorization: Bearer` or as `?token=`. Only then
/// clients' addresses are shown.
fn may_see_clients(announces: &AnnounceHandler, peer: IpAddr, request: &Request<'_>) -> bool {
    let Some(auth) = announces.state.client_auth.get() else {
        return false;
    };
    let bearer = |(name, value): (&'_ [u8], &'_ [u8])| {
        let named = name.eq_ignore_ascii_case(b"authorization");
        let token = value.strip_prefix(b"Bearer ")?.trim_ascii();
        named.then(|| String::from_utf8_lossy(token).into_owned())
    };
    let in_query = query::value(request.query, "token");
    let token = header_lines(request.headers).find_map(bearer);
    let token = token.or(in_query.map(|token| String::from_utf8_lossy(token).into_owned()));
    let now = Instant::now();
    token.is_some_and(|token| auth.check(now, peer, &token) == AuthOutcome::Accepted)
}

fn wants_json(request: &Request<'_>) -> bool {
    let json = |(name, value): (&[u8], &[u8])| {
        name.eq_ignore_ascii_case(b"accept") && value.starts_with(b"application/json")
    };
    query::value(request.query, "format") == Some(b"json")
        || header_lines(request.headers).any(json)
}
