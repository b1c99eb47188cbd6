//! Announce answers over HTTP: written for clients, read from other trackers.

use crate::bencode::{self, DecodeError, Limits, Value, Writer};
use crate::compact;
use crate::retry::RetryIn;
use crate::types::{Counts, PeerId};
use std::net::{IpAddr, SocketAddr};

/// What an answer says beside its peers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Head<'a> {
    /// Seconds until the client should ask again.
    pub interval: u32,
    /// Seconds before which it must not.
    pub min_interval: u32,
    /// The swarm.
    pub counts: Counts,
    /// The client's address as we see it (BEP 24).
    pub external_ip: Option<IpAddr>,
    /// What the client should send with its next announce.
    pub tracker_id: Option<&'a [u8]>,
    /// Something for the user to read, although all is well.
    pub warning: Option<&'a str>,
}

/// Appends an answer with packed addresses. `peers` has IPv4, `peers6` IPv6, which is left out if
/// there are none.
pub fn write_compact(head: &Head<'_>, peers: &[u8], peers6: &[u8], out: &mut Vec<u8>) {
    let mut writer = begin(head, out);
    writer.bytes(b"peers").bytes(peers);
    if !peers6.is_empty() {
        writer.bytes(b"peers6").bytes(peers6);
    }
    end(head, &mut writer);
}

/// Appends an answer with a dictionary for each peer, as clients from before BEP 23 want it.
pub fn write_dict<I>(head: &Head<'_>, peers: I, out: &mut Vec<u8>)
where
    I: IntoIterator<Item = (Option<PeerId>, SocketAddr)>,
{
    let mut writer = begin(head, out);
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
    end(head, &mut writer);
}

/// Appends a refusal. `retry_in` is in whole minutes, rounded up, as BEP 31 has it; the interval
/// says it in seconds.
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

fn begin<'a>(head: &Head<'_>, out: &'a mut Vec<u8>) -> Writer<'a> {
    let mut writer = Writer::new(out);
    writer.begin_dict();
    writer
        .bytes(b"complete")
        .int(i64::from(head.counts.complete));
    writer
        .bytes(b"downloaded")
        .int(i64::from(head.counts.downloaded));
    match head.external_ip {
        Some(IpAddr::V4(ip)) => writer.bytes(b"external ip").bytes(&ip.octets()),
        Some(IpAddr::V6(ip)) => writer.bytes(b"external ip").bytes(&ip.octets()),
        None => &mut writer,
    };
    writer
        .bytes(b"incomplete")
        .int(i64::from(head.counts.incomplete));
    writer.bytes(b"interval").int(i64::from(head.interval));
    writer
        .bytes(b"min interval")
        .int(i64::from(head.min_interval));
    writer
}

fn end(head: &Head<'_>, writer: &mut Writer<'_>) {
    if let Some(id) = head.tracker_id {
        writer.bytes(b"tracker id").bytes(id);
    }
    if let Some(warning) = head.warning {
        writer.bytes(b"warning message").bytes(warning.as_bytes());
    }
    writer.end();
}

/// What another tracker answered.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reply {
    /// Peers.
    Peers(Peers),
    /// A refusal.
    Failure {
        /// Its words.
        reason: String,
        /// When it wants to be asked again.
        retry_in: Option<RetryIn>,
    },
}

/// The peers of an answer, and what came with them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Peers {
    /// Seconds until it wants to be asked again.
    pub interval: Option<u32>,
    /// Seconds before which it does not.
    pub min_interval: Option<u32>,
    /// Its seeders.
    pub complete: Option<u32>,
    /// Its leechers.
    pub incomplete: Option<u32>,
    /// The addresses, with the peer's name where the answer had it.
    pub peers: Vec<(SocketAddr, Option<PeerId>)>,
    /// Something for the user to read.
    pub warning: Option<String>,
    /// To be sent with the next announce.
    pub tracker_id: Option<Vec<u8>>,
    /// Our address as it sees it.
    pub external_ip: Option<IpAddr>,
}

/// More peers than this of one answer are ignored.
pub const MAX_PEERS: usize = 2000;

/// Longer words than this are cut.
const MAX_WORDS: usize = 500;

/// Reads an answer to an announce.
///
/// ```
/// use headworks_tracker_wire::answer::{Reply, read};
/// let Ok(Reply::Peers(peers)) = read(b"d8:intervali60e5:peers6:\x0a\0\0\x01\x1a\xe1e") else { panic!() };
/// assert_eq!(peers.peers[0].0.to_string(), "10.0.0.1:6881");
/// ```
///
/// # Errors
/// When it is no bencode.
pub fn read(bytes: &[u8]) -> Result<Reply, DecodeError> {
    let value = bencode::decode(bytes, Limits::default())?;
    if !matches!(value, Value::Dict(_)) {
        return Err(DecodeError::Unexpected(0));
    }
    if let Some(reason) = value.get("failure reason") {
        return Ok(Reply::Failure {
            reason: words(reason).unwrap_or_default(),
            retry_in: value.get("retry in").and_then(RetryIn::read),
        });
    }
    let number = |key| value.get(key).and_then(Value::number).and_then(to_u32);
    Ok(Reply::Peers(Peers {
        interval: number("interval"),
        min_interval: number("min interval"),
        complete: number("complete"),
        incomplete: number("incomplete"),
        peers: peers(&value),
        warning: value.get("warning message").and_then(words),
        tracker_id: tracker_id(&value),
        external_ip: value.get("external ip").and_then(external_ip),
    }))
}

fn peers(answer: &Value<'_>) -> Vec<(SocketAddr, Option<PeerId>)> {
    let mut peers = Vec::new();
    match answer.get("peers") {
        Some(Value::Bytes(packed)) => peers.extend(compact::all4(packed).map(|peer| (peer, None))),
        Some(Value::List(list)) => peers.extend(list.iter().filter_map(entry)),
        _ => {}
    }
    match answer.get("peers6") {
        Some(Value::Bytes(packed)) => peers.extend(compact::all6(packed).map(|peer| (peer, None))),
        Some(Value::List(list)) => peers.extend(list.iter().filter_map(entry)),
        _ => {}
    }
    peers.retain(|(address, _)| address.port() != 0);
    peers.truncate(MAX_PEERS);
    peers
}

/// A peer as a dictionary. Names of hosts are not addresses: nobody should be made to look them up.
fn entry(value: &Value<'_>) -> Option<(SocketAddr, Option<PeerId>)> {
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

fn tracker_id(answer: &Value<'_>) -> Option<Vec<u8>> {
    let id = answer.get("tracker id")?.bytes()?;
    (id.len() <= 128).then(|| id.to_vec())
}

fn words(value: &Value<'_>) -> Option<String> {
    let bytes = value.bytes()?;
    let bytes = &bytes[..bytes.len().min(MAX_WORDS)];
    Some(String::from_utf8_lossy(bytes).into_owned())
}

fn to_u32(number: i64) -> Option<u32> {
    let number = u64::try_from(number).ok()?;
    Some(u32::try_from(number).unwrap_or(u32::MAX))
}
