//! The pages for operators: `/stats`, `/metrics` and `/healthz`.

use super::request::{Request, header_lines};
use super::response::PLAIN_TEXT;
use crate::announce::AnnounceHandler;
use crate::metrics;
use crate::stats::Stats;
use headworks_service::authenticator::AuthOutcome;
use headworks_tracker_wire::query;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

/// Appends the page at `path` to `body` and returns its status and content type.
pub(super) fn write(
    announces: &AnnounceHandler,
    peer: IpAddr,
    path: &[u8],
    request: &Request<'_>,
    body: &mut Vec<u8>,
) -> (u16, &'static str) {
    match path {
        b"/healthz" => {
            body.extend_from_slice(b"ok\n");
            (200, PLAIN_TEXT)
        }
        b"/stats" | b"/stats.json" => {
            let page = match may_see_clients(announces, peer, request) {
                true => {
                    let mut stats = Stats::of(announces);
                    stats.add_clients(announces);
                    Arc::new(stats.render())
                }
                false => announces.stats_page.get(announces),
            };
            if path == b"/stats.json" || wants_json(request) {
                body.extend_from_slice(page.json.as_bytes());
                return (200, "application/json");
            }
            body.extend_from_slice(page.text.as_bytes());
            (200, PLAIN_TEXT)
        }
        b"/metrics" => {
            body.extend_from_slice(metrics::render(announces).as_bytes());
            (200, headworks_service::metrics::CONTENT_TYPE)
        }
        _ => {
            body.extend_from_slice(
                b"not found; try /announce, /scrape, /stats, /metrics or /healthz\n",
            );
            (404, PLAIN_TEXT)
        }
    }
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
