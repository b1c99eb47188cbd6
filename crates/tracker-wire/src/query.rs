//! Announce and scrape requests as HTTP queries.

use crate::percent;
use crate::types::{Announce, Event, InfoHash, PeerId};
use std::fmt::Write;
use std::net::IpAddr;
use thiserror::Error;

/// The problem with a query. The message is sent to the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum QueryError {
    /// A required key is missing.
    #[error("missing {0}")]
    Missing(&'static str),
    /// The value of a key is invalid.
    #[error("invalid {0}")]
    Invalid(&'static str),
}

/// Keys parsed per query; real clients send fewer than twenty.
const MAX_KEYS: usize = 64;

/// Parses the query of an announce. Unknown keys are ignored; of repeated keys the last one counts.
///
/// ```
/// use headworks_tracker_wire::{Event, query};
/// let query = concat!(
///     "info_hash=aaaaaaaaaaaaaaaaaaa%FF&peer_id=-XX0001-abcdefghijkl",
///     "&port=6881&left=0&event=started",
/// );
/// let announce = query::parse_announce(query.as_bytes()).unwrap();
/// assert_eq!((announce.port, announce.event), (6881, Event::Started));
/// assert!(announce.is_seeder());
/// ```
///
/// # Errors
/// The first key that is missing or invalid.
pub fn parse_announce(query: &[u8]) -> Result<Announce, QueryError> {
    let mut announce = Announce::default();
    let (mut hash, mut id, mut port) = (None, None, None);
    for (key, value) in pairs(query).take(MAX_KEYS) {
        match key {
            b"info_hash" => hash = Some(parse_20_bytes(value, "info_hash")?),
            b"peer_id" => id = Some(parse_20_bytes(value, "peer_id")?),
            b"port" => port = Some(number(value).ok_or(QueryError::Invalid("port"))?),
            // Totals affect nothing here and some clients send garbage: an invalid number counts as
            // 0.
            b"uploaded" => announce.uploaded = number(value).unwrap_or(0),
            b"downloaded" => announce.downloaded = number(value).unwrap_or(0),
            b"left" => announce.left = number(value),
            b"event" => announce.event = Event::from_name(value),
            b"numwant" | b"num want" => announce.numwant = number(value).map(saturate_u32),
            b"key" => announce.key = parse_key(value),
            b"compact" => announce.compact = Some(value != b"0"),
            b"no_peer_id" => announce.no_peer_id = value != b"0",
            b"ip" | b"ipv4" | b"ipv6" => announce.ip = address(value).or(announce.ip),
            _ => {}
        }
    }
    announce.info_hash = InfoHash(hash.ok_or(QueryError::Missing("info_hash"))?);
    announce.peer_id = PeerId(id.ok_or(QueryError::Missing("peer_id"))?);
    let port: u64 = port.ok_or(QueryError::Missing("port"))?;
    announce.port = u16::try_from(port).map_err(|_| QueryError::Invalid("port"))?;
    // A client that leaves needs no port; any other client cannot be reached at port 0.
    if announce.port == 0 && announce.event != Event::Stopped {
        return Err(QueryError::Invalid("port"));
    }
    Ok(announce)
}

/// Parses the torrents of a scrape. An invalid hash is an error in its position.
pub fn parse_scrape(query: &[u8]) -> impl Iterator<Item = Result<InfoHash, QueryError>> + '_ {
    pairs(query)
        .filter(|(key, _)| *key == b"info_hash")
        .map(|(_, value)| parse_20_bytes(value, "info_hash").map(InfoHash))
}

/// Returns the value of the first key called `name`, still percent-encoded.
#[must_use]
pub fn value<'a>(query: &'a [u8], name: &str) -> Option<&'a [u8]> {
    pairs(query)
        .find(|(key, _)| *key == name.as_bytes())
        .map(|(_, value)| value)
}

/// Appends an announce as a query, without the leading `?`.
pub fn write_announce(announce: &Announce, tracker_id: Option<&[u8]>, out: &mut String) {
    out.push_str("info_hash=");
    percent::encode(&announce.info_hash.0, out);
    out.push_str("&peer_id=");
    percent::encode(&announce.peer_id.0, out);
    let Announce {
        port,
        uploaded,
        downloaded,
        left,
        ..
    } = announce;
    // A client that did not send `left` is a leecher here; 0 would make it a seeder there.
    let left = left.unwrap_or(1);
    let _ = write!(
        out,
        "&port={port}&uploaded={uploaded}&downloaded={downloaded}&left={left}&compact=1"
    );
    if announce.event != Event::None {
        let _ = write!(out, "&event={}", announce.event.name());
    }
    if let Some(numwant) = announce.numwant {
        let _ = write!(out, "&numwant={numwant}");
    }
    if let Some(key) = announce.key {
        let _ = write!(out, "&key={key:08X}");
    }
    if let Some(ip) = announce.ip {
        let _ = write!(out, "&ip={ip}");
    }
    if let Some(id) = tracker_id {
        out.push_str("&trackerid=");
        percent::encode(id, out);
    }
}

fn pairs(query: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    query.split(|byte| *byte == b'&').map(|pair| {
        let at = pair.iter().position(|byte| *byte == b'=');
        at.map_or((pair, &[][..]), |at| (&pair[..at], &pair[at + 1..]))
    })
}

fn parse_20_bytes(value: &[u8], name: &'static str) -> Result<[u8; 20], QueryError> {
    let mut bytes = [0; 20];
    match percent::decode(value, &mut bytes) {
        Some(20) => Ok(bytes),
        _ => Err(QueryError::Invalid(name)),
    }
}

fn number(value: &[u8]) -> Option<u64> {
    // A u64 has at most 20 digits. Percent-encoded digits are not accepted.
    if value.is_empty() || value.len() > 20 {
        return None;
    }
    value.iter().try_fold(0u64, |number, byte| {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
        number.checked_mul(10)?.checked_add(digit)
    })
}

fn saturate_u32(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// Parses a key. Most clients send hexadecimal digits; anything else is hashed, because a key is
/// only ever compared for equality.
fn parse_key(value: &[u8]) -> Option<u32> {
    let text = std::str::from_utf8(value).ok()?;
    u32::from_str_radix(text, 16).ok().or_else(|| {
        let mix = |sum: u32, byte: &u8| sum.wrapping_mul(31).wrapping_add(u32::from(*byte));
        (!value.is_empty()).then(|| value.iter().take(64).fold(7, mix))
    })
}

fn address(value: &[u8]) -> Option<IpAddr> {
    let mut bytes = [0; 64];
    let len = percent::decode(value, &mut bytes)?;
    std::str::from_utf8(&bytes[..len]).ok()?.parse().ok()
}
