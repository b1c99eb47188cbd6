//! Announces over HTTP/1.1, on connections that stay open.

mod connection;
pub(crate) mod request;

pub(crate) use connection::{Buffers, Connection, Turn};

use crate::counters::Counters;
use crate::plan::Plan;
use crate::plane::{Call, Families, Peers, Plane, Verdict};
use crate::serve::pages;
use crate::swarm::Seconds;
use headworks_tracker_wire::response::{self, ResponseFields};
use headworks_tracker_wire::{query, scrape};
use http::{HeaderMap, HeaderName, HeaderValue};
use request::Request;
use std::net::IpAddr;

/// Torrents in a scrape, at most.
const MAX_SCRAPE: usize = 200;

/// What requests are answered with.
pub(crate) struct Desk<'a> {
    pub(crate) plane: &'a Plane,
    pub(crate) plan: &'a Plan,
    pub(crate) counters: &'a Counters,
    pub(crate) peers: &'a mut Peers,
    pub(crate) body: &'a mut Vec<u8>,
    pub(crate) now: Seconds,
    pub(crate) random: &'a mut dyn FnMut() -> u32,
}

const PLAIN: &str = "text/plain; charset=utf-8";

impl Desk<'_> {
    /// Appends the answer to a request.
    pub(crate) fn answer(&mut self, peer: IpAddr, request: &Request<'_>, out: &mut Vec<u8>) {
        self.body.clear();
        let path = request.path.strip_suffix(b"/").unwrap_or(request.path);
        let (status, kind) = match path {
            b"/announce" | b"/announce.php" => {
                self.announce(peer, request);
                (200, PLAIN)
            }
            b"/scrape" | b"/scrape.php" => {
                self.scrape(peer, request);
                (200, PLAIN)
            }
            _ => pages::answer(self.plane, peer, path, request, self.body),
        };
        head(status, kind, self.body.len(), request.keep_alive, out);
        if !request.head_only {
            out.extend_from_slice(self.body);
        }
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
        let named = announce.compact == Some(false);
        let call = Call {
            plan: self.plan,
            now: self.now,
            client,
            announce: &announce,
            families: Families::Both,
            named,
            random: (self.random)(),
            counters: self.counters,
        };
        match self.plane.announce(&call, self.peers) {
            Verdict::Peers { interval, counts } => {
                let id = &self.plan.config.tracker_id;
                let head = ResponseFields {
                    interval,
                    // Half of it: a client that lost its peers may come earlier.
                    min_interval: interval / 2,
                    counts,
                    external_ip: Some(client),
                    tracker_id: (!id.is_empty()).then_some(id.as_bytes()),
                    warning: None,
                };
                if named {
                    let keep = |id| if announce.no_peer_id { None } else { id };
                    let named = self.peers.named.iter().map(|(id, at)| (keep(*id), *at));
                    response::write_dict(&head, named, self.body);
                } else {
                    response::write_compact(&head, &self.peers.v4, &self.peers.v6, self.body);
                }
            }
            Verdict::Refused { why, retry } => {
                response::write_failure(&why.words(retry), Some(retry), self.body);
            }
            Verdict::Denied(words) => response::write_failure(words, None, self.body),
        }
    }

    /// The client's address: its own, or what a trusted proxy says of it.
    fn client(&self, peer: IpAddr, request: &Request<'_>) -> IpAddr {
        if !self.plan.trusted.contains(peer) {
            return peer;
        }
        let header = |(name, value): (&[u8], &[u8])| {
            let name = HeaderName::from_bytes(name.trim_ascii()).ok()?;
            Some((name, HeaderValue::from_bytes(value).ok()?))
        };
        let headers: HeaderMap = request::lines(request.headers).filter_map(header).collect();
        self.plan.trusted.client(peer, &headers)
    }

    fn scrape(&mut self, peer: IpAddr, request: &Request<'_>) {
        self.counters.http_scrapes.add(1);
        let client = self.client(peer, request);
        if self.plan.access.refuses_client(client) {
            return response::write_failure("this client is not served here", None, self.body);
        }
        let mut torrents = Vec::new();
        for hash in query::parse_scrape(request.query).take(MAX_SCRAPE) {
            match hash {
                Ok(hash) => torrents.push((hash, self.plane.scrape(self.plan, &hash))),
                Err(error) => return response::write_failure(&error.to_string(), None, self.body),
            }
        }
        if torrents.is_empty() {
            if !self.plan.config.full_scrape {
                let text = "missing info_hash: a scrape of everything is not allowed here";
                return response::write_failure(text, None, self.body);
            }
            let by = self.plane.shared.count_by;
            let swarms = &self.plane.shared.swarms;
            swarms.each(|hash, swarm| {
                if !self.plan.access.refuses_torrent(hash) {
                    torrents.push((*hash, swarm.counts(by)));
                }
            });
        }
        torrents.sort_unstable_by_key(|(hash, _)| *hash);
        torrents.dedup_by_key(|(hash, _)| *hash);
        scrape::write(torrents, self.body);
    }
}

/// Appends the head of an answer. Pieces, not a format string: this is done for every request.
pub(super) fn head(status: u16, kind: &str, length: usize, keep_alive: bool, out: &mut Vec<u8>) {
    let reason = match status {
        200 => "200 OK",
        400 => "400 Bad Request",
        404 => "404 Not Found",
        405 => "405 Method Not Allowed",
        431 => "431 Request Header Fields Too Large",
        _ => "505 HTTP Version Not Supported",
    };
    let connection = if keep_alive { "keep-alive" } else { "close" };
    let pieces = [
        "HTTP/1.1 ",
        reason,
        "\r\nContent-Type: ",
        kind,
        "\r\nConnection: ",
        connection,
        "\r\nContent-Length: ",
    ];
    for piece in pieces {
        out.extend_from_slice(piece.as_bytes());
    }
    digits(length, out);
    out.extend_from_slice(b"\r\n\r\n");
}

fn digits(mut number: usize, out: &mut Vec<u8>) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}
