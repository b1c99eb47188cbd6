//! The pages for operators: `/stats`, `/metrics`, `/healthz` and the scrape of all torrents.
//!
//! Anybody may ask for a page as often as a connection allows, and building one takes locks and
//! work for every forwarder. The announce threads therefore leave that to a task of low priority. A
//! connection waits for its page, and its thread serves the others meanwhile.

use super::request::{Request, header_lines};
use super::response::{PLAIN_TEXT, Status};
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

    /// Returns the age up to which a page is served again. It bounds the work that requests can
    /// cause. Collectors of metrics ask rarely and expect the values of the moment.
    fn max_age(self) -> Duration {
        match self {
            Page::Metrics => Duration::from_millis(200),
            _ => Duration::from_secs(1),
        }
    }

    fn build(self, started: Instant, announces: &AnnounceHandler) -> Built {
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
    state: Mutex<SlotState>,
}

#[derive(Default)]
struct SlotState {
    /// The time at which the last build began.
    started: Option<Instant>,
    built: Option<Arc<Built>>,
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
                let started = Instant::now();
                slot.state.lock().started = Some(started);
                let built = Arc::new(page.build(started, announces));
                slot.state.lock().built = Some(built);
                self.wake_threads();
            }
        }
    }

    /// Returns a page for a request. If the last one is too old, another one is built, and
    /// `waits_since` remembers when the request began to wait.
    pub(super) fn get(&self, page: Page, waits_since: &mut Option<Instant>) -> Option<Arc<Built>> {
        let slot = &self.slots[page as usize];
        let now = Instant::now();
        let first = waits_since.is_none();
        let asked = *waits_since.get_or_insert(now);
        let is_new = |started: Instant| started + page.max_age() > asked;
        let state = slot.state.lock();
        let built = state.built.clone().filter(|built| is_new(built.started));
        // Later polls ask for nothing: the first one is followed by a build that is new enough. A
        // request that polls late would cause one more.
        if built.is_none() && first && !state.started.is_some_and(is_new) {
            slot.wanted.store(true, Ordering::Release);
            self.wanted.notify_one();
        }
        if built.is_some() {
            *waits_since = None;
        }
        built
    }
}

/// Appends the page at `path` for a client to `body` and returns its head; `None` if the request
/// must wait.
pub(super) fn write(
    (announces, pages): (&AnnounceHandler, &Pages),
    client: IpAddr,
    path: &[u8],
    request: &Request<'_>,
    waits_since: &mut Option<Instant>,
    body: &mut Vec<u8>,
) -> Option<Status> {
    Some(match path {
        b"/healthz" => {
            body.extend_from_slice(b"ok\n");
            Status::of(200, PLAIN_TEXT)
        }
        b"/stats" | b"/stats.json" => {
            let page = match check_token(announces, client, request) {
                None => Page::Stats,
                Some(AuthOutcome::Accepted) => Page::Clients,
                Some(AuthOutcome::Rejected) => {
                    body.extend_from_slice(b"invalid token\n");
                    return Some(Status::of(401, PLAIN_TEXT));
                }
                Some(AuthOutcome::RateLimited(wait)) => {
                    let wait = wait.as_secs() + 1;
                    let text = format!("too many invalid tokens: retry in {wait} s\n");
                    body.extend_from_slice(text.as_bytes());
                    return Some(Status {
                        retry_after: Some(wait),
                        ..Status::of(429, PLAIN_TEXT)
                    });
                }
            };
            let page = pages.get(page, waits_since)?;
            match path == b"/stats.json" || wants_json(request) {
                true => {
                    body.extend_from_slice(&page.json);
                    Status::of(200, "application/json")
                }
                false => {
                    body.extend_from_slice(&page.text);
                    Status::of(200, PLAIN_TEXT)
                }
            }
        }
        b"/metrics" => {
            let page = pages.get(Page::Metrics, waits_since)?;
            body.extend_from_slice(&page.text);
            Status::of(200, headworks_service::metrics::CONTENT_TYPE)
        }
        _ => {
            body.extend_from_slice(
                b"not found; try /announce, /scrape, /stats, /metrics or /healthz\n",
            );
            Status::of(404, PLAIN_TEXT)
        }
    })
}

/// Checks the admin token of a request, in `Authorization: Bearer` or as `?token=`; `None` if it
/// has none. Only with the token clients' addresses are shown. Guesses are limited by address, as
/// at the admin listener.
fn check_token(
    announces: &AnnounceHandler,
    client: IpAddr,
    request: &Request<'_>,
) -> Option<AuthOutcome> {
    let state = &announces.state;
    let auth = state.client_auth.get()?;
    let bearer = |(name, value): (&'_ [u8], &'_ [u8])| {
        let named = name.eq_ignore_ascii_case(b"authorization");
        let (scheme, token) = value.split_at_checked(7)?;
        let token = String::from_utf8_lossy(token.trim_ascii());
        (named && scheme.eq_ignore_ascii_case(b"bearer ")).then(|| token.into_owned())
    };
    let in_query = query::value(request.query, "token");
    let token = header_lines(request.headers).find_map(bearer);
    let token = token.or(in_query.map(|token| String::from_utf8_lossy(token).into_owned()));
    let outcome = auth.check(Instant::now(), client, &token?);
    if outcome == AuthOutcome::Rejected
        && let Some(rejected) = state.rejected_tokens.note(1)
    {
        tracing::warn!(%client, rejected, "request for statistics rejected: invalid token");
    }
    Some(outcome)
}

fn wants_json(request: &Request<'_>) -> bool {
    let json = |(name, value): (&[u8], &[u8])| {
        name.eq_ignore_ascii_case(b"accept") && value.starts_with(b"application/json")
    };
    query::value(request.query, "format") == Some(b"json")
        || header_lines(request.headers).any(json)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_waiting_request_asks_for_its_page_once() {
        let (pages, mut waits_since) = (Pages::default(), None);
        let wanted = &pages.slots[Page::Metrics as usize].wanted;
        assert!(pages.get(Page::Metrics, &mut waits_since).is_none());
        assert!(wanted.swap(false, Ordering::AcqRel), "the builder begins");
        assert!(pages.get(Page::Metrics, &mut waits_since).is_none());
        assert!(!wanted.load(Ordering::Acquire), "no second build");
        let mut other = None;
        assert!(pages.get(Page::Metrics, &mut other).is_none());
        assert!(wanted.load(Ordering::Acquire), "a later request asks again");
    }

    #[test]
    fn requests_during_a_build_wait_for_it() {
        let pages = Pages::default();
        let slot = &pages.slots[Page::Stats as usize];
        let began = |ago: Duration| slot.state.lock().started = Instant::now().checked_sub(ago);
        began(Page::Stats.max_age() * 2);
        assert!(pages.get(Page::Stats, &mut None).is_none());
        assert!(slot.wanted.swap(false, Ordering::AcqRel), "it is too old");
        // In the future, so that a busy machine does not make it old.
        slot.state.lock().started = Some(Instant::now() + Duration::from_secs(3600));
        assert!(pages.get(Page::Stats, &mut None).is_none());
        assert!(!slot.wanted.load(Ordering::Acquire));
    }
}
