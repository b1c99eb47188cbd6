//! The UDP protocol (BEP 15) with its options (BEP 41): requests and answers, each read and
//! written.

use crate::types::{Announce, Counts, Event, InfoHash, PeerId};
use std::net::{IpAddr, Ipv4Addr};
use thiserror::Error;

const MAGIC: u64 = 0x0417_2710_1980;
const CONNECT: u32 = 0;
const ANNOUNCE: u32 = 1;
const SCRAPE: u32 = 2;
const ERROR: u32 = 3;

/// As many torrents as fit into one scrape.
pub const MAX_SCRAPE: usize = 74;

/// A client's number for one request.
pub type Transaction = u32;
/// A tracker's number that a client must show.
pub type Connection = u64;

/// What a client asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request<'a> {
    /// For a connection id.
    Connect {
        /// To be repeated in the answer.
        transaction: Transaction,
    },
    /// For peers.
    Announce {
        /// The id that a connect gave.
        connection: Connection,
        /// To be repeated in the answer.
        transaction: Transaction,
        /// What it says.
        announce: Announce,
        /// The options after it, unread.
        options: &'a [u8],
    },
    /// For counts.
    Scrape {
        /// The id that a connect gave.
        connection: Connection,
        /// To be repeated in the answer.
        transaction: Transaction,
        /// The torrents.
        hashes: &'a [[u8; 20]],
    },
}

/// Why a packet is no request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum RequestError {
    /// It is something else altogether and deserves no answer.
    #[error("not a tracker request")]
    Foreign,
    /// It looks like a request, and its sender may be told.
    #[error("{text}")]
    Invalid {
        /// The id it showed.
        connection: Connection,
        /// To be repeated in the answer.
        transaction: Transaction,
        /// What is wrong.
        text: &'static str,
    },
}

/// Reads a client's packet.
///
/// ```
/// use headworks_tracker_wire::udp::{Request, read_request, write_connect};
/// let mut packet = Vec::new();
/// write_connect(7, &mut packet);
/// assert_eq!(read_request(&packet), Ok(Request::Connect { transaction: 7 }));
/// ```
///
/// # Errors
/// When it is no request; never anything that one could send back larger than it came.
pub fn read_request(packet: &[u8]) -> Result<Request<'_>, RequestError> {
    let (head, rest) = packet
        .split_first_chunk::<16>()
        .ok_or(RequestError::Foreign)?;
    let connection = u64_at(head, 0);
    let (action, transaction) = (u32_at(head, 8), u32_at(head, 12));
    let invalid = |text| RequestError::Invalid {
        connection,
        transaction,
        text,
    };
    match action {
        CONNECT if connection == MAGIC => Ok(Request::Connect { transaction }),
        CONNECT => Err(RequestError::Foreign),
        ANNOUNCE => {
            let (body, options) = rest
                .split_first_chunk::<82>()
                .ok_or_else(|| invalid("announce is too short"))?;
            Ok(Request::Announce {
                connection,
                transaction,
                announce: read_announce(body),
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
        _ => Err(RequestError::Foreign),
    }
}

fn read_announce(body: &[u8; 82]) -> Announce {
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
        // −1 is the default; other negative numbers are somebody's mistake and mean the same.
        numwant: (numwant <= i32::MAX as u32).then_some(numwant),
        port: u16::from_be_bytes(array_at(body, 80)),
        compact: Some(true),
        no_peer_id: true,
    }
}

/// Appends a request for a connection id.
pub fn write_connect(transaction: Transaction, out: &mut Vec<u8>) {
    head(MAGIC, CONNECT, transaction, out);
}

/// Appends an announce. `path` is path and query of the tracker's address, carried as an option
/// where it says anything.
pub fn write_announce(
    connection: Connection,
    transaction: Transaction,
    announce: &Announce,
    path: &[u8],
    out: &mut Vec<u8>,
) {
    head(connection, ANNOUNCE, transaction, out);
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

/// Appends a scrape of at most [`MAX_SCRAPE`] torrents.
pub fn write_scrape(
    connection: Connection,
    transaction: Transaction,
    hashes: &[InfoHash],
    out: &mut Vec<u8>,
) {
    head(connection, SCRAPE, transaction, out);
    for hash in hashes.iter().take(MAX_SCRAPE) {
        out.extend_from_slice(&hash.0);
    }
}

/// Path and query that the options of an announce carry (BEP 41). Broken options end the reading,
/// not the announce.
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

/// What a tracker answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer<'a> {
    /// A connection id.
    Connect {
        /// The request's.
        transaction: Transaction,
        /// To be shown with what follows.
        connection: Connection,
    },
    /// Peers, packed in 6 or 18 bytes as the packet's own family has it.
    Announce {
        /// The request's.
        transaction: Transaction,
        /// Seconds until the next announce.
        interval: u32,
        /// The swarm.
        counts: Counts,
        /// Packed addresses.
        peers: &'a [u8],
    },
    /// Counts, in the order of the request.
    Scrape {
        /// The request's.
        transaction: Transaction,
        /// Each torrent's.
        counts: Vec<Counts>,
    },
    /// A refusal.
    Error {
        /// The request's.
        transaction: Transaction,
        /// Its words.
        text: &'a [u8],
    },
}

/// Reads a tracker's packet; `None` if it is none.
#[must_use]
pub fn read_answer(packet: &[u8]) -> Option<Answer<'_>> {
    let (head, rest) = packet.split_first_chunk::<8>()?;
    let (action, transaction) = (u32_at(head, 0), u32_at(head, 4));
    Some(match action {
        CONNECT => Answer::Connect {
            transaction,
            connection: u64_at(rest.first_chunk::<8>()?, 0),
        },
        ANNOUNCE => {
            let (numbers, peers) = rest.split_first_chunk::<12>()?;
            Answer::Announce {
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
        SCRAPE => Answer::Scrape {
            transaction,
            counts: rest.as_chunks::<12>().0.iter().map(read_counts).collect(),
        },
        ERROR => Answer::Error {
            transaction,
            text: rest,
        },
        _ => return None,
    })
}

fn read_counts(bytes: &[u8; 12]) -> Counts {
    Counts {
        complete: u32_at(bytes, 0),
        downloaded: u32_at(bytes, 4),
        incomplete: u32_at(bytes, 8),
    }
}

/// Appends the answer to a connect.
pub fn answer_connect(transaction: Transaction, connection: Connection, out: &mut Vec<u8>) {
    answer_head(CONNECT, transaction, out);
    out.extend_from_slice(&connection.to_be_bytes());
}

/// Appends the answer to an announce up to its peers, which the caller appends packed.
pub fn answer_announce(transaction: Transaction, interval: u32, counts: Counts, out: &mut Vec<u8>) {
    answer_head(ANNOUNCE, transaction, out);
    out.extend_from_slice(&interval.to_be_bytes());
    out.extend_from_slice(&counts.incomplete.to_be_bytes());
    out.extend_from_slice(&counts.complete.to_be_bytes());
}

/// Appends the answer to a scrape.
pub fn answer_scrape(
    transaction: Transaction,
    torrents: impl IntoIterator<Item = Counts>,
    out: &mut Vec<u8>,
) {
    answer_head(SCRAPE, transaction, out);
    for counts in torrents {
        out.extend_from_slice(&counts.complete.to_be_bytes());
        out.extend_from_slice(&counts.downloaded.to_be_bytes());
        out.extend_from_slice(&counts.incomplete.to_be_bytes());
    }
}

/// Appends a refusal.
pub fn answer_error(transaction: Transaction, text: &str, out: &mut Vec<u8>) {
    answer_head(ERROR, transaction, out);
    out.extend_from_slice(text.as_bytes());
}

fn head(connection: Connection, action: u32, transaction: Transaction, out: &mut Vec<u8>) {
    out.extend_from_slice(&connection.to_be_bytes());
    answer_head(action, transaction, out);
}

fn answer_head(action: u32, transaction: Transaction, out: &mut Vec<u8>) {
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
