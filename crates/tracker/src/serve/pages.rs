//! The pages for operators: `/stats`, `/metrics` and `/healthz`.

use super::http::request::{Request, lines};
use crate::metrics;
use crate::plane::Plane;
use crate::stats::Stats;
use headworks_service::token::Answer;
use headworks_tracker_wire::query;
use std::net::IpAddr;
use std::time::Instant;

const PLAIN: &str = "text/plain; charset=utf-8";

/// Appends the page at `path` to `body`: its status and kind.
pub(super) fn answer(
    plane: &Plane,
    peer: IpAddr,
    path: &[u8],
    request: &Request<'_>,
    body: &mut Vec<u8>,
) -> (u16, &'static str) {
    match path {
        b"/healthz" => {
            body.extend_from_slice(b"ok\n");
            (200, PLAIN)
        }
        b"/stats" | b"/stats.json" => {
            let mut stats = Stats::of(plane);
            if may_see_clients(plane, peer, request) {
                stats.with_clients(plane);
            }
            if path == b"/stats.json" || wants_json(request) {
                let _ = serde_json::to_writer_pretty(body, &stats);
                return (200, "application/json");
            }
            body.extend_from_slice(stats.to_string().as_bytes());
            (200, PLAIN)
        }
        b"/metrics" => {
            body.extend_from_slice(metrics::metrics(plane).as_bytes());
            (200, headworks_service::metrics::CONTENT_TYPE)
        }
        _ => {
            body.extend_from_slice(b"there is /announce, /scrape, /stats, /metrics and /healthz\n");
            (404, PLAIN)
        }
    }
}

/// Clients' addresses are for whoever has the admin token, in `Authorization: Bearer` or as
/// `?token=`.
fn may_see_clients(plane: &Plane, peer: IpAddr, request: &Request<'_>) -> bool {
    let Some(door) = plane.shared.door.get() else {
        return false;
    };
    let bearer = |(name, value): (&'_ [u8], &'_ [u8])| {
        let named = name.eq_ignore_ascii_case(b"authorization");
        let token = value.strip_prefix(b"Bearer ")?.trim_ascii();
        named.then(|| String::from_utf8_lossy(token).into_owned())
    };
    let in_query = query::value(request.query, "token");
    let token = lines(request.headers).find_map(bearer);
    let token = token.or(in_query.map(|token| String::from_utf8_lossy(token).into_owned()));
    let now = Instant::now();
    token.is_some_and(|token| door.knock(now, peer, &token) == Answer::Welcome)
}

fn wants_json(request: &Request<'_>) -> bool {
    let json = |(name, value): (&[u8], &[u8])| {
        name.eq_ignore_ascii_case(b"accept") && value.starts_with(b"application/json")
    };
    query::value(request.query, "format") == Some(b"json") || lines(request.headers).any(json)
}
