//! The UDP protocol (BEP 15) and its options (BEP 41): parses and writes requests and responses.

use crate::types::{Announce, Counts, Event, InfoHash, PeerId};
use std::net::{IpAddr, Ipv4Addr};
use thiserror::Error;

const MAGIC: u64 = 0x0417_2710_1980;
const CONNECT: u32 = 0;
const ANNOUNCE: u32 = 1;
const SCRAPE: u32 = 2;
const ERROR: u32 = 3;

/// The most torrents in one scrape.
pub const MAX_SCRAPE: usize = 74;

/// The number by which a client matches a response to its request.
pub type TransactionId = u32;
/// The number that a tracker issues and that a client sends with every later request.
pub type ConnectionId = u64;

/// A request from a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request<'a> {
    /// Asks for a connection id.
    Connect {
        /// Repeated in the response.
        transaction: TransactionId,
    },
    /// Announces a peer.
    Announce {
        /// The id from the connect response.
        connection: ConnectionId,
        /// Repeated in the response.
        transaction: TransactionId,
        /// The announce itself.
        announce: Announce,
        /// The options that follow, not parsed.
        options: &'a [u8],
    },
    /// Asks for the totals of torrents.
    Scrape {
        /// The id from the connect response.
        connection: ConnectionId,
        /// Repeated in the response.
        transaction: TransactionId,
        /// The torrents.
        hashes: &'a [[u8; 20]],
    },
}

/// The reason why a packet is not a valid request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum RequestError {
    /// The packet is not a tracker request. It gets no response.
    #[error("not a tracker request")]
    Unrecognized,
    /// The packet is a malformed request. Its sender may be informed.
    #[error("{text}")]
    Invalid {
        /// The connection id it carried.
        connection: ConnectionId,
        /// Repeated in the response.
        transaction: TransactionId,
        /// The problem.
        text: &'static str,
    },
}

/// Parses a packet from a client.
///
/// ```
/// use headworks_tracker_wire::udp::{Request, parse_request, write_connect};
/// let mut packet = Vec::new();
/// write_connect(7, &mut packet);
/// assert_eq!(parse_request(&packet), Ok(Request::Connect { transaction: 7 }));
/// ```
///
/// # Errors
/// When the packet is not a valid request. The error text is short, so a response never amplifies a
/// spoofed packet.
pub fn parse_request(packet: &[u8]) -> Result<Request<'_>, RequestError> {
    let (head, rest) = packet
        .split_first_chunk::<16>()
        .ok_or(RequestError::Unrecognized)?;
    let connection = u64_at(head, 0);
    let (action, transaction) = (u32_at(head, 8), u32_at(head, 12));
    let invalid = |text| RequestError::Invalid {
        connection,
        transaction,
        text,
    };
    match action {
        CONNECT if connection == MAGIC => Ok(Request::Connect { transaction }),
        CONNECT => Err(RequestError::Unrecognized),
        ANNOUNCE => {
            let (body, options) = rest
                .split_first_chunk::<82>()
                .ok_or_else(|| invalid("announce is too short"))?;
            Ok(Request::Announce {
                connection,
                transaction,
                announce: parse_announce(body),
                options,
            })
        }
        SCRAPE => {
            let (hashes, _) = rest.as_chunks::<20>();
            if hashes.is_empty() {
                return Err(invalid("scrape names no torrent"));
            }
            Ok(Request::Scrape {
                connection,
                transaction,
                hashes: &hashes[..hashes.len().min(MAX_SCRAPE)],
            })
        }
        _ => Err(RequestError::Unrecognized),
    }
}

fn parse_announce(body: &[u8; 82]) -> Announce {
    let ip = Ipv4Addr::from_bits(u32_at(body, 68));
    let numwant = u32_at(body, 76);
    Announce {
        info_hash: InfoHash(array_at(body, 0)),
        peer_id: PeerId(array_at(body, 20)),
        downloaded: u64_at(body, 40),
        left: Some(u64_at(body, 48)),
        uploaded: u64_at(body, 56),
        event: Event::from_number(u32_at(body, 64)),
        ip: (!ip.is_unspecified()).then_some(IpAddr::V4(ip)),
        key: Some(u32_at(body, 72)),
        // −1 asks for the default. Other negative numbers are client bugs and mean the same.
        numwant: (numwant <= i32::MAX as u32).then_some(numwant),
        port: u16::from_be_bytes(array_at(body, 80)),
        compact: Some(true),
        no_peer_id: true,
    }
}

/// Appends a connect request.
pub fn write_connect(transaction: TransactionId, out: &mut Vec<u8>) {
    request_head(MAGIC, CONNECT, transaction, out);
}

/// Appends an announce request. `path` is the path and query of the tracker's URI; if it is not
/// empty, it travels as URL data options.
pub fn write_announce(
    connection: ConnectionId,
    transaction: TransactionId,
    announce: &Announce,
    path: &[u8],
    out: &mut Vec<u8>,
) {
    request_head(connection, ANNOUNCE, transaction, out);
    out.extend_from_slice(&announce.info_hash.0);
    out.extend_from_slice(&announce.peer_id.0);
    out.extend_from_slice(&announce.downloaded.to_be_bytes());
    out.extend_from_slice(&announce.left.unwrap_or(1).to_be_bytes());
    out.extend_from_slice(&announce.uploaded.to_be_bytes());
    out.extend_from_slice(&(announce.event as u32).to_be_bytes());
    let ip = match announce.ip {
        Some(IpAddr::V4(ip)) => ip,
        _ => Ipv4Addr::UNSPECIFIED,
    };
    out.extend_from_slice(&ip.octets());
    out.extend_from_slice(&announce.key.unwrap_or(0).to_be_bytes());
    let numwant = announce
        .numwant
        .map_or(-1, |n| n.min(i32::MAX as u32) as i32);
    out.extend_from_slice(&numwant.to_be_bytes());
    out.extend_from_slice(&announce.port.to_be_bytes());
    for part in path.chunks(255) {
        out.extend_from_slice(&[2, part.len() as u8]);
        out.extend_from_slice(part);
    }
}

/// Appends a scrape request for at most [`MAX_SCRAPE`] torrents.
pub fn write_scrape(
    connection: ConnectionId,
    transaction: TransactionId,
    hashes: &[InfoHash],
    out: &mut Vec<u8>,
) {
    request_head(connection, SCRAPE, transaction, out);
    for hash in hashes.iter().take(MAX_SCRAPE) {
        out.extend_from_slice(&hash.0);
    }
}

/// Returns the path and query in the options of an announce (BEP 41). A malformed option ends the
/// list; the announce stays valid.
#[must_use]
pub fn url_data(options: &[u8]) -> Vec<u8> {
    let (mut url, mut rest) = (Vec::new(), options);
    loop {
        rest = match rest {
            [1, rest @ ..] => rest,
            [2, length, rest @ ..] if rest.len() >= usize::from(*length) => {
                let (part, rest) = rest.split_at(usize::from(*length));
                url.extend_from_slice(part);
                rest
            }
            _ => return url,
        };
    }
}

/// A response from a tracker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Response<'a> {
    /// A connection id.
    Connect {
        /// The number from the request.
        transaction: TransactionId,
        /// The id for later requests.
        connection: ConnectionId,
    },
    /// Peers in 6 bytes each over IPv4 and 18 bytes each over IPv6.
    Announce {
        /// The number from the request.
        transaction: TransactionId,
        /// Seconds until the next announce.
        interval: u32,
        /// The totals of the swarm.
        counts: Counts,
        /// Compact peer addresses.
        peers: &'a [u8],
    },
    /// Totals in the order of the request.
    Scrape {
        /// The number from the request.
        transaction: TransactionId,
        /// One entry per torrent.
        counts: Vec<Counts>,
    },
    /// An error message.
    Error {
        /// The number from the request.
        transaction: TransactionId,
        /// The message.
        text: &'a [u8],
    },
}

/// Parses a packet from a tracker; `None` if it is malformed.
#[must_use]
pub fn parse_response(packet: &[u8]) -> Option<Response<'_>> {
    let (head, rest) = packet.split_first_chunk::<8>()?;
    let (action, transaction) = (u32_at(head, 0), u32_at(head, 4));
    Some(match action {
        CONNECT => Response::Connect {
            transaction,
            connection: u64_at(rest.first_chunk::<8>()?, 0),
        },
        ANNOUNCE => {
            let (numbers, peers) = rest.split_first_chunk::<12>()?;
            Response::Announce {
                transaction,
                interval: u32_at(numbers, 0),
                counts: Counts {
                    incomplete: u32_at(numbers, 4),
                    complete: u32_at(numbers, 8),
                    downloaded: 0,
                },
                peers,
            }
        }
        SCRAPE => Response::Scrape {
            transaction,
            counts: rest.as_chunks::<12>().0.iter().map(parse_counts).collect(),
        },
        ERROR => Response::Error {
            transaction,
            text: rest,
        },
        _ => return None,
    })
}

fn parse_counts(bytes: &[u8; 12]) -> Counts {
    Counts {
        complete: u32_at(bytes, 0),
        downloaded: u32_at(bytes, 4),
        incomplete: u32_at(bytes, 8),
    }
}

/// Appends a connect response.
pub fn write_connect_response(
    transaction: TransactionId,
    connection: ConnectionId,
    out: &mut Vec<u8>,
) {
    response_head(CONNECT, transaction, out);
    out.extend_from_slice(&connection.to_be_bytes());
}

/// Appends an announce response without its peers; the caller appends them in compact form.
pub fn write_announce_response(
    transaction: TransactionId,
    interval: u32,
    counts: Counts,
    out: &mut Vec<u8>,
) {
    response_head(ANNOUNCE, transaction, out);
    out.extend_from_slice(&interval.to_be_bytes());
    out.extend_from_slice(&counts.incomplete.to_be_bytes());
    out.extend_from_slice(&counts.complete.to_be_bytes());
}

/// Appends a scrape response.
pub fn write_scrape_response(
    transaction: TransactionId,
    torrents: impl IntoIterator<Item = Counts>,
    out: &mut Vec<u8>,
) {
    response_head(SCRAPE, transaction, out);
    for counts in torrents {
        out.extend_from_slice(&counts.complete.to_be_bytes());
        out.extend_from_slice(&counts.downloaded.to_be_bytes());
        out.extend_from_slice(&counts.incomplete.to_be_bytes());
    }
}

/// Appends an error response.
pub fn write_error_response(transaction: TransactionId, text: &str, out: &mut Vec<u8>) {
    response_head(ERROR, transaction, out);
    out.extend_from_slice(text.as_bytes());
}

fn request_head(
    connection: ConnectionId,
    action: u32,
    transaction: TransactionId,
    out: &mut Vec<u8>,
) {
    out.extend_from_slice(&connection.to_be_bytes());
    response_head(action, transaction, out);
}

fn response_head(action: u32, transaction: TransactionId, out: &mut Vec<u8>) {
    out.extend_from_slice(&action.to_be_bytes());
    out.extend_from_slice(&transaction.to_be_bytes());
}

fn array_at<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes[at..at + N]
        .try_into()
        .expect("a slice of N bytes is an array of N")
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(array_at(bytes, at))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_be_bytes(array_at(bytes, at))
}
