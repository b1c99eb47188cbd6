//! Types shared by the HTTP and the UDP protocol.

use std::fmt;
use std::net::IpAddr;

/// The id of a torrent: the SHA-1 of its info dictionary, or the first 20 bytes of the SHA-256 for
/// a version 2 torrent.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InfoHash(pub [u8; 20]);

/// The id that a client chose for itself.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PeerId(pub [u8; 20]);

impl InfoHash {
    /// Parses 40 hexadecimal digits.
    ///
    /// ```
    /// # use headworks_tracker_wire::InfoHash;
    /// let hash = InfoHash::from_hex("00112233445566778899aabbccddeeff00112233").unwrap();
    /// assert_eq!(hash.to_string(), "00112233445566778899aabbccddeeff00112233");
    /// ```
    #[must_use]
    pub fn from_hex(text: &str) -> Option<InfoHash> {
        let digits = text.as_bytes();
        if digits.len() != 40 {
            return None;
        }
        let mut hash = [0; 20];
        for (byte, pair) in hash.iter_mut().zip(digits.chunks_exact(2)) {
            let high = char::from(pair[0]).to_digit(16)?;
            let low = char::from(pair[1]).to_digit(16)?;
            *byte = (high << 4 | low) as u8;
        }
        Some(InfoHash(hash))
    }
}

impl fmt::Display for InfoHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for InfoHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "InfoHash({self})")
    }
}

impl fmt::Debug for PeerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PeerId({})", self.0.escape_ascii())
    }
}

/// The `event` of an announce.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Event {
    /// A regular announce.
    #[default]
    None = 0,
    /// The client has just finished the download.
    Completed = 1,
    /// The client joins the swarm.
    Started = 2,
    /// The client leaves the swarm.
    Stopped = 3,
}

impl Event {
    /// The value in an HTTP query; empty for a regular announce.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Event::None => "",
            Event::Completed => "completed",
            Event::Started => "started",
            Event::Stopped => "stopped",
        }
    }

    /// Parses the value of an HTTP query. Unknown values (`paused`, `empty`) mean a regular
    /// announce.
    #[must_use]
    pub fn from_name(name: &[u8]) -> Event {
        match name {
            b"completed" => Event::Completed,
            b"started" => Event::Started,
            b"stopped" => Event::Stopped,
            _ => Event::None,
        }
    }

    pub(crate) const fn from_number(number: u32) -> Event {
        match number {
            1 => Event::Completed,
            2 => Event::Started,
            3 => Event::Stopped,
            _ => Event::None,
        }
    }
}

/// An announce request, independent of the transport.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Announce {
    /// The torrent.
    pub info_hash: InfoHash,
    /// The client.
    pub peer_id: PeerId,
    /// The port on which the client accepts peers.
    pub port: u16,
    /// Bytes uploaded since `started`.
    pub uploaded: u64,
    /// Bytes downloaded since `started`.
    pub downloaded: u64,
    /// Bytes left to download. A client that omits it counts as a leecher.
    pub left: Option<u64>,
    /// The reason for the announce.
    pub event: Event,
    /// The number of peers wanted; `None` for the tracker's default.
    pub numwant: Option<u32>,
    /// A secret that identifies the client when its address changes.
    pub key: Option<u32>,
    /// The address that the client claims to have.
    pub ip: Option<IpAddr>,
    /// Whether peers are wanted in compact form (`1`) or as dictionaries (`0`).
    pub compact: Option<bool>,
    /// Whether dictionaries should omit peer ids.
    pub no_peer_id: bool,
}

impl Announce {
    /// Whether the client has the whole torrent.
    #[must_use]
    pub fn is_seeder(&self) -> bool {
        self.left == Some(0) || self.event == Event::Completed
    }
}

/// The totals of a swarm.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Seeders.
    pub complete: u32,
    /// Leechers.
    pub incomplete: u32,
    /// Completed downloads.
    pub downloaded: u32,
}
