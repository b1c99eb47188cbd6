//! Routes a request to announce, scrape or a page. A request for a page that is still being built
//! waits.

use super::pages::{self, Page, Pages};
use super::request::{self, Request};
use super::response::{PLAIN_TEXT, Status, write_head};
use crate::active_config::ActiveConfig;
use crate::announce::{AnnounceHandler, AnnounceOutcome, ResponseBuffers};
use crate::clock::Seconds;
use crate::counters::Counters;
use crate::request::{AddressFamilies, AnnounceRequest};
use fastrand::Rng;
use headworks_tracker_wire::response::{self, ResponseFields};
use headworks_tracker_wire::{query, scrape};
use http::{HeaderMap, HeaderName, HeaderValue};
use std::net::IpAddr;
use std::time::Instant;

/// The most torrents in one scrape.
const MAX_SCRAPE: usize = 200;

/// Handles the requests that one connection has ready.
pub(super) struct HttpHandler<'a> {
    pub(super) announces: &'a AnnounceHandler,
    pub(super) pages: &'a Pages,
    pub(super) active: &'a ActiveConfig,
    pub(super) counters: &'a Counters,
    pub(super) buffers: &'a mut ResponseBuffers,
    pub(super) body: &'a mut Vec<u8>,
    pub(super) now: Seconds,
    pub(super) random: &'a mut Rng,
}

impl HttpHandler<'_> {
    /// Appends the response to a request. Returns `false` if the request must wait for a page.
    pub(super) fn handle(
        &mut self,
        peer: IpAddr,
        request: &Request<'_>,
        waits_since: &mut Option<Instant>,
        out: &mut Vec<u8>,
    ) -> bool {
        self.body.clear();
        let path = request.path.strip_suffix(b"/").unwrap_or(request.path);
        let status = match path {
            b"/announce" | b"/announce.php" => {
                self.announce(peer, request);
                Some(Status::of(200, PLAIN_TEXT))
            }
            b"/scrape" | b"/scrape.php" => {
                let scraped = self.scrape(peer, request, waits_since);
                scraped.map(|()| Status::of(200, PLAIN_TEXT))
            }
            _ => {
                let sources = (self.announces, self.pages);
                let client = self.client(peer, request);
                pages::write(sources, client, path, request, waits_since, self.body)
            }
        };
        let Some(status) = status else {
            return false;
        };
        // A reload may have answered a request that waited for a page.
        *waits_since = None;
        let length = self.body.len();
        write_head(&status, length, request.keep_alive, out);
        if !request.head_only {
            out.extend_from_slice(self.body);
        }
        true
    }

    fn announce(&mut self, peer: IpAddr, request: &Request<'_>) {
        let announce = match query::parse_announce(request.query) {
            Ok(announce) => announce,
            Err(error) => {
                self.counters.http_bad.add(1);
                return response::write_failure(&error.to_string(), None, self.body);
            }
        };
        self.counters.http_announces.add(1);
        let client = self.client(peer, request);
        let as_dicts = announce.compact == Some(false);
        let request = AnnounceRequest {
            active: self.active,
            now: self.now,
            client,
            announce: &announce,
            families: AddressFamilies::Both,
            as_dicts,
            random: self.random.u32(..),
            counters: self.counters,
        };
        match self.announces.announce(&request, self.buffers) {
            AnnounceOutcome::Peers { interval, counts } => {
                let id = &self.active.config.tracker_id;
                let fields = ResponseFields {
                    interval,
                    // A client that lost its peers may come back earlier.
                    min_interval: interval / 2,
                    counts,
                    external_ip: Some(client),
                    tracker_id: (!id.is_empty()).then_some(id.as_bytes()),
                    warning: None,
                };
                if as_dicts {
                    let keep = |id| if announce.no_peer_id { None } else { id };
                    let peers = self.buffers.with_ids.iter();
                    let peers = peers.map(|(id, address)| (keep(*id), *address));
                    response::write_dict(&fields, peers, self.body);
                } else {
                    let ResponseBuffers { v4, v6, .. } = &self.buffers;
                    response::write_compact(&fields, v4, v6, self.body);
                }
            }
            AnnounceOutcome::Rejected { reason, retry } => {
                response::write_failure(&reason.message(retry), Some(retry), self.body);
            }
            AnnounceOutcome::Denied(message) => response::write_failure(message, None, self.body),
        }
    }

    /// Returns the client's address: that of the connection, or the one a trusted proxy reports.
    fn client(&self, peer: IpAddr, request: &Request<'_>) -> IpAddr {
        if !self.active.trusted.contains(peer) {
            return peer;
        }
        let header = |(name, value): (&[u8], &[u8])| {
            let name = HeaderName::from_bytes(name).ok()?;
            Some((name, HeaderValue::from_bytes(value).ok()?))
        };
        let headers: HeaderMap = request::header_lines(request.headers)
            .filter_map(header)
            .collect();
        self.active.trusted.client(peer, &headers).to_canonical()
    }

    /// Writes the response to a scrape; `None` if it must wait.
    fn scrape(
        &mut self,
        peer: IpAddr,
        request: &Request<'_>,
        waits_since: &mut Option<Instant>,
    ) -> Option<()> {
        if waits_since.is_none() {
            self.counters.http_scrapes.add(1);
        }
        let client = self.client(peer, request);
        if self.active.access.denies_client(client) {
            response::write_failure("this client is not served here", None, self.body);
            return Some(());
        }
        let mut torrents = Vec::new();
        for hash in query::parse_scrape(request.query).take(MAX_SCRAPE) {
            match hash {
                Ok(hash) => torrents.push((hash, self.announces.scrape(self.active, &hash))),
                Err(error) => {
                    response::write_failure(&error.to_string(), None, self.body);
                    return Some(());
                }
            }
        }
        if !torrents.is_empty() {
            torrents.sort_unstable_by_key(|(hash, _)| *hash);
            torrents.dedup_by_key(|(hash, _)| *hash);
            scrape::write(torrents, self.body);
        } else if self.active.config.full_scrape {
            let page = self.pages.get(Page::Scrape, waits_since)?;
            self.body.extend_from_slice(&page.text);
        } else {
            let text = "missing info_hash: a scrape of all torrents is not allowed here";
            response::write_failure(text, None, self.body);
        }
        Some(())
    }
}
