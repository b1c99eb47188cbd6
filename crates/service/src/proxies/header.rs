//! The hops in a client header, left to right.

use std::net::{IpAddr, SocketAddr};

use http::HeaderMap;

use super::ClientHeader;

/// The address of a hop; `None` if it is hidden or malformed.
pub(super) type Hop = Option<IpAddr>;

pub(super) fn hops(header: ClientHeader, headers: &HeaderMap) -> Vec<Hop> {
    match header {
        ClientHeader::XForwardedFor => {
            let lines = lines(headers, "x-forwarded-for");
            lines
                .flat_map(|line| line.split(',').map(address))
                .collect()
        }
        // This header is not a list: of several lines, the nearest proxy added the last.
        ClientHeader::XRealIp => lines(headers, "x-real-ip")
            .last()
            .map(address)
            .into_iter()
            .collect(),
        ClientHeader::Forwarded => {
            let lines = lines(headers, "forwarded");
            lines.flat_map(forwarded_hops).collect()
        }
    }
}

/// The lines of a header. A line that is not text counts as a hidden hop, which ends the walk;
/// dropping it would extend trust to the hops before it.
fn lines<'h>(headers: &'h HeaderMap, name: &str) -> impl Iterator<Item = &'h str> {
    headers
        .get_all(name)
        .into_iter()
        .map(|value| value.to_str().unwrap_or("unknown"))
}

/// `1.2.3.4`, `1.2.3.4:80`, `2001:db8::1`, `[2001:db8::1]`, `[2001:db8::1]:80`
fn address(text: &str) -> Hop {
    let text = text.trim();
    if let Ok(address) = text.parse::<IpAddr>() {
        return Some(address);
    }
    if let Ok(address) = text.parse::<SocketAddr>() {
        return Some(address.ip());
    }
    text.strip_prefix('[')?.strip_suffix(']')?.parse().ok()
}

/// The hops of one `Forwarded` line. A quote that a client left open would swallow the elements
/// that the proxy appended, so the whole line counts as hidden.
fn forwarded_hops(line: &str) -> Vec<Hop> {
    match split_unquoted(line, ',') {
        Some(forwarded_hops) => forwarded_hops.into_iter().map(forwarded).collect(),
        None => vec![None],
    }
}

/// The `for` parameter of one element.
fn forwarded(element: &str) -> Hop {
    split_unquoted(element, ';')?.into_iter().find_map(|pair| {
        let (name, value) = pair.split_once('=')?;
        name.trim().eq_ignore_ascii_case("for").then_some(())?;
        address(value.trim().trim_matches('"'))
    })
}

/// Splits at `mark` outside quotes; returns `None` if a quote is not closed.
fn split_unquoted(text: &str, mark: char) -> Option<Vec<&str>> {
    let (mut parts, mut start) = (Vec::new(), 0);
    let (mut quoted, mut escaped) = (false, false);
    for (at, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            _ if c == mark && !quoted => {
                parts.push(&text[start..at]);
                start = at + c.len_utf8();
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    (!quoted).then_some(parts)
}
