//! The pages for operators: `/stats`, `/metrics` and `/healthz`.

use super::http::request::{Request, lines};
use crate::plane::Plane;
use crate::stats::{self, Stats};
use headworks_tracker_wire::query;

const PLAIN: &str = "text/plain; charset=utf-8";

/// Appends the page at `path` to `body`: its status and kind.
pub(super) fn answer(
    plane: &Plane,
    path: &[u8],
    request: &Request<'_>,
    body: &mut Vec<u8>,
) -> (u16, &'static str) {
    match path {
        b"/healthz" => {
            body.extend_from_slice(b"ok\n");
            (200, PLAIN)
        }
        b"/stats" if wants_json(request) => json(plane, body),
        b"/stats.json" => json(plane, body),
        b"/stats" => {
            body.extend_from_slice(Stats::of(plane).to_string().as_bytes());
            (200, PLAIN)
        }
        b"/metrics" => {
            body.extend_from_slice(stats::metrics(plane).as_bytes());
            (200, headworks_service::metrics::CONTENT_TYPE)
        }
        _ => {
            body.extend_from_slice(b"there is /announce, /scrape, /stats, /metrics and /healthz\n");
            (404, PLAIN)
        }
    }
}

fn json(plane: &Plane, body: &mut Vec<u8>) -> (u16, &'static str) {
    let _ = serde_json::to_writer_pretty(body, &Stats::of(plane));
    (200, "application/json")
}

fn wants_json(request: &Request<'_>) -> bool {
    let json = |(name, value): (&[u8], &[u8])| {
        name.eq_ignore_ascii_case(b"accept") && value.starts_with(b"application/json")
    };
    query::value(request.query, "format") == Some(b"json") || lines(request.headers).any(json)
}
