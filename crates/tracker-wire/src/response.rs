//! Announce responses over HTTP: written for clients, parsed from other trackers.

use crate::bencode::{self, DecodeError, Limits, Value, Writer};
use crate::compact;
use crate::retry::RetryIn;
use crate::types::{Counts, PeerId};
use std::net::{IpAddr, SocketAddr};

/// The fields of an announce response other than its peers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResponseFields<'a> {
    /// Seconds until the next announce.
    pub interval: u32,
    /// Seconds before which the client must not announce again.
    pub min_interval: u32,
    /// The totals of the swarm.
    pub counts: Counts,
    /// The client's address as this tracker sees it (BEP 24).
    pub external_ip: Option<IpAddr>,
    /// An id that the client sends back with its next announce.
    pub tracker_id: Option<&'a [u8]>,
    /// A warning for the user; the announce succeeded.
    pub warning: Option<&'a str>,
}

/// Appends a response in compact form. `peers` holds IPv4 addresses, `peers6` IPv6 addresses; an
/// empty `peers6` is omitted.
pub fn write_compact(fields: &ResponseFields<'_>, peers: &[u8], peers6: &[u8], out: &mut Vec<u8>) {
    let mut writer = begin(fields, out);
    writer.bytes(b"peers").bytes(peers);
    if !peers6.is_empty() {
        writer.bytes(b"peers6").bytes(peers6);
    }
    end(fields, &mut writer);
}

/// Appends a response with one dictionary per peer, for clients that predate BEP 23.
pub fn write_dict<I>(fields: &ResponseFields<'_>, peers: I, out: &mut Vec<u8>)
where
    I: IntoIterator<Item = (Option<PeerId>, SocketAddr)>,
{
    let mut writer = begin(fields, out);
    writer.bytes(b"peers").begin_list();
    for (id, address) in peers {
        writer.begin_dict();
        writer
            .bytes(b"ip")
            .bytes(address.ip().to_string().as_bytes());
        if let Some(PeerId(id)) = id {
            writer.bytes(b"peer id").bytes(&id);
        }
        writer.bytes(b"port").int(i64::from(address.port())).end();
    }
    writer.end();
    end(fields, &mut writer);
}

/// Appends a failure. `retry_after` is in seconds: `interval` carries it unchanged, `retry in` in
/// whole minutes, rounded up (BEP 31).
pub fn write_failure(reason: &str, retry_after: Option<u32>, out: &mut Vec<u8>) {
    let mut writer = Writer::new(out);
    writer
        .begin_dict()
        .bytes(b"failure reason")
        .bytes(reason.as_bytes());
    if let Some(seconds) = retry_after {
        let minutes = seconds.div_ceil(60).to_string();
        writer.bytes(b"interval").int(i64::from(seconds));
        writer.bytes(b"retry in").bytes(minutes.as_bytes());
    }
    writer.end();
}

fn begin<'a>(fields: &ResponseFields<'_>, out: &'a mut Vec<u8>) -> Writer<'a> {
    let mut writer = Writer::new(out);
    writer.begin_dict();
    writer
        .bytes(b"complete")
        .int(i64::from(fields.counts.complete));
    writer
        .bytes(b"downloaded")
        .int(i64::from(fields.counts.downloaded));
    match fields.external_ip {
        Some(IpAddr::V4(ip)) => writer.bytes(b"external ip").bytes(&ip.octets()),
        Some(IpAddr::V6(ip)) => writer.bytes(b"external ip").bytes(&ip.octets()),
        None => &mut writer,
    };
    writer
        .bytes(b"incomplete")
        .int(i64::from(fields.counts.incomplete));
    writer.bytes(b"interval").int(i64::from(fields.interval));
    writer
        .bytes(b"min interval")
        .int(i64::from(fields.min_interval));
    writer
}

fn end(fields: &ResponseFields<'_>, writer: &mut Writer<'_>) {
    if let Some(id) = fields.tracker_id {
        writer.bytes(b"tracker id").bytes(id);
    }
    if let Some(warning) = fields.warning {
        writer.bytes(b"warning message").bytes(warning.as_bytes());
    }
    writer.end();
}

/// A response from another tracker.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AnnounceResponse {
    /// The announce succeeded.
    Peers(PeerList),
    /// The tracker rejected the announce.
    Failure {
        /// The failure reason.
        reason: String,
        /// The time after which an announce is accepted again.
        retry_in: Option<RetryIn>,
    },
}

/// The peers of a response and its other fields.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PeerList {
    /// Seconds until the next announce.
    pub interval: Option<u32>,
    /// Seconds before which the tracker rejects another announce.
    pub min_interval: Option<u32>,
    /// Seeders.
    pub complete: Option<u32>,
    /// Leechers.
    pub incomplete: Option<u32>,
    /// Peer addresses, each with its peer id if the response had one.
    pub peers: Vec<(SocketAddr, Option<PeerId>)>,
    /// A warning for the user.
    pub warning: Option<String>,
    /// An id to send with the next announce.
    pub tracker_id: Option<Vec<u8>>,
    /// Our address as the tracker sees it.
    pub external_ip: Option<IpAddr>,
}

/// The most peers kept from one response.
pub const MAX_PEERS: usize = 2000;

/// The most bytes kept of a message.
const MAX_TEXT: usize = 500;

/// Parses a response to an announce.
///
/// ```
/// use headworks_tracker_wire::response::{AnnounceResponse, parse};
/// let bytes = b"d8:intervali60e5:peers6:\x0a\0\0\x01\x1a\xe1e";
/// let Ok(AnnounceResponse::Peers(peers)) = parse(bytes) else { panic!() };
/// assert_eq!(peers.peers[0].0.to_string(), "10.0.0.1:6881");
/// ```
///
/// # Errors
/// When the bytes are not a bencoded dictionary.
pub fn parse(bytes: &[u8]) -> Result<AnnounceResponse, DecodeError> {
    let value = bencode::decode(bytes, Limits::default())?;
    if !matches!(value, Value::Dict(_)) {
        return Err(DecodeError::Unexpected(0));
    }
    if let Some(reason) = value.get("failure reason") {
        return Ok(AnnounceResponse::Failure {
            reason: text(reason).unwrap_or_default(),
            retry_in: value.get("retry in").and_then(RetryIn::parse),
        });
    }
    let number = |key| value.get(key).and_then(Value::number).and_then(to_u32);
    Ok(AnnounceResponse::Peers(PeerList {
        interval: number("interval"),
        min_interval: number("min interval"),
        complete: number("complete"),
        incomplete: number("incomplete"),
        peers: peers(&value),
        warning: value.get("warning message").and_then(text),
        tracker_id: tracker_id(&value),
        external_ip: value.get("external ip").and_then(external_ip),
    }))
}

fn peers(response: &Value<'_>) -> Vec<(SocketAddr, Option<PeerId>)> {
    let mut peers = Vec::new();
    match response.get("peers") {
        Some(Value::Bytes(packed)) => {
            peers.extend(compact::unpack_all4(packed).map(|peer| (peer, None)));
        }
        Some(Value::List(list)) => peers.extend(list.iter().filter_map(dict_peer)),
        _ => {}
    }
    match response.get("peers6") {
        Some(Value::Bytes(packed)) => {
            peers.extend(compact::unpack_all6(packed).map(|peer| (peer, None)));
        }
        Some(Value::List(list)) => peers.extend(list.iter().filter_map(dict_peer)),
        _ => {}
    }
    peers.retain(|(address, _)| address.port() != 0);
    peers.truncate(MAX_PEERS);
    peers
}

/// Parses a peer dictionary. Host names are rejected: a forwarder must not be able to trigger DNS
/// lookups.
fn dict_peer(value: &Value<'_>) -> Option<(SocketAddr, Option<PeerId>)> {
    let ip = std::str::from_utf8(value.get("ip")?.bytes()?).ok()?;
    let ip: IpAddr = ip.trim().parse().ok()?;
    let port = u16::try_from(value.get("port")?.number()?).ok()?;
    let id = value.get("peer id").and_then(Value::bytes);
    let id = id.and_then(|id| id.try_into().ok()).map(PeerId);
    Some((SocketAddr::new(ip.to_canonical(), port), id))
}

fn external_ip(value: &Value<'_>) -> Option<IpAddr> {
    let bytes = value.bytes()?;
    if let Ok(v4) = <[u8; 4]>::try_from(bytes) {
        return Some(IpAddr::from(v4));
    }
    <[u8; 16]>::try_from(bytes).ok().map(IpAddr::from)
}

fn tracker_id(response: &Value<'_>) -> Option<Vec<u8>> {
    let id = response.get("tracker id")?.bytes()?;
    (id.len() <= 128).then(|| id.to_vec())
}

fn text(value: &Value<'_>) -> Option<String> {
    let bytes = value.bytes()?;
    let bytes = &bytes[..bytes.len().min(MAX_TEXT)];
    Some(String::from_utf8_lossy(bytes).into_owned())
}

fn to_u32(number: i64) -> Option<u32> {
    let number = u64::try_from(number).ok()?;
    Some(u32::try_from(number).unwrap_or(u32::MAX))
}
