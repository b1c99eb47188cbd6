//! The nouns of the protocol.

use std::fmt;
use std::net::IpAddr;

/// A torrent: SHA-1 of its info dictionary, or the first 20 bytes of SHA-256 (version 2).
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InfoHash(pub [u8; 20]);

/// A client's name for itself in one swarm.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PeerId(pub [u8; 20]);

impl InfoHash {
    /// The hash that 40 hexadecimal digits name.
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

/// What happened at the client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Event {
    /// Nothing: a regular announce.
    #[default]
    None = 0,
    /// It has the whole torrent now.
    Completed = 1,
    /// It joins.
    Started = 2,
    /// It leaves.
    Stopped = 3,
}

impl Event {
    /// The word for it in a query; a regular announce has none.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Event::None => "",
            Event::Completed => "completed",
            Event::Started => "started",
            Event::Stopped => "stopped",
        }
    }

    /// The event a word names. Words that nobody knows (`paused`, `empty`) are a regular announce.
    #[must_use]
    pub fn from_word(word: &[u8]) -> Event {
        match word {
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

/// What a client tells a tracker, over whichever transport.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Announce {
    /// The torrent.
    pub info_hash: InfoHash,
    /// The client.
    pub peer_id: PeerId,
    /// Where it listens.
    pub port: u16,
    /// Bytes it sent since it started.
    pub uploaded: u64,
    /// Bytes it received since it started.
    pub downloaded: u64,
    /// Bytes it still needs. A client that does not say counts as one that needs something.
    pub left: Option<u64>,
    /// What happened.
    pub event: Event,
    /// How many peers it wants; `None` for as many as the tracker thinks right.
    pub numwant: Option<u32>,
    /// A number by which it proves that it is the same client at another address.
    pub key: Option<u32>,
    /// The address it claims to have.
    pub ip: Option<IpAddr>,
    /// Whether it wants addresses packed (`1`) or as dictionaries (`0`).
    pub compact: Option<bool>,
    /// Whether dictionaries should leave out the peers' names.
    pub no_peer_id: bool,
}

impl Announce {
    /// Whether the client has everything.
    #[must_use]
    pub fn is_seeder(&self) -> bool {
        self.left == Some(0) || self.event == Event::Completed
    }
}

/// How many peers a swarm has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Peers that have everything.
    pub complete: u32,
    /// Peers that do not.
    pub incomplete: u32,
    /// How often somebody finished.
    pub downloaded: u32,
}
