//! Access lists: which torrents and clients are served, and which torrents are never forwarded.

use crate::config::TrackerConfig;
use headworks_service::bounded_file;
use headworks_service::proxies::Network;
use headworks_tracker_wire::InfoHash;
use std::collections::HashSet;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// The access lists. An absent list allows everything.
#[derive(Debug, Default)]
pub(crate) struct Access {
    allowed: Option<Hashes>,
    denied: Option<Hashes>,
    private: Option<Hashes>,
    allowed_clients: Option<Vec<Network>>,
    denied_clients: Vec<Network>,
}

type Hashes = HashSet<InfoHash>;

/// The reason why a list of torrents cannot be used.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum AccessError {
    /// The file cannot be read.
    #[error("cannot read the list of torrents {}: {cause}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        cause: String,
    },
    /// A line does not begin with an info hash.
    #[error("invalid line {line} in the list of torrents {}: expected 40 (or 64) hexadecimal digits, got `{text}`", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// The number of the line.
        line: usize,
        /// The text instead of an info hash.
        text: String,
    },
}

impl Access {
    /// Reads the lists that the section names.
    pub(crate) fn read(config: &TrackerConfig) -> Result<Access, AccessError> {
        let list = |path: &Option<PathBuf>| path.as_deref().map(read).transpose();
        Ok(Access {
            allowed: list(&config.allow_hashes_file)?,
            denied: list(&config.deny_hashes_file)?,
            private: list(&config.never_forward_file)?,
            allowed_clients: config.allow_clients.clone(),
            denied_clients: config.deny_clients.clone(),
        })
    }

    /// Returns the message for a client that may not announce a torrent.
    pub(crate) fn denies(&self, hash: &InfoHash, client: IpAddr) -> Option<&'static str> {
        if self.denies_client(client) {
            return Some("this client is not served here");
        }
        self.denies_torrent(hash)
            .then_some("this torrent is not served here")
    }

    /// Whether a client is denied. A denied network takes precedence over an allowed one.
    pub(crate) fn denies_client(&self, client: IpAddr) -> bool {
        let among = |networks: &[Network]| networks.iter().any(|network| network.contains(client));
        let missing = |networks: &Vec<Network>| !among(networks);
        among(&self.denied_clients) || self.allowed_clients.as_ref().is_some_and(missing)
    }

    /// Whether a torrent is denied. A denied torrent takes precedence over an allowed one.
    pub(crate) fn denies_torrent(&self, hash: &InfoHash) -> bool {
        let denied = |list: &Hashes| list.contains(hash);
        let missing = |list: &Hashes| !list.contains(hash);
        self.denied.as_ref().is_some_and(denied) || self.allowed.as_ref().is_some_and(missing)
    }

    /// Whether announces of the torrent must not be forwarded.
    pub(crate) fn is_private(&self, hash: &InfoHash) -> bool {
        self.private
            .as_ref()
            .is_some_and(|list| list.contains(hash))
    }
}

/// The largest list in bytes, enough for twenty million torrents.
const MAX_LIST: u64 = 1 << 30;

fn read(path: &Path) -> Result<Hashes, AccessError> {
    let text = bounded_file::read_up_to(path, MAX_LIST).and_then(|bytes| {
        let text = String::from_utf8(bytes);
        text.map_err(|_| "not UTF-8".to_owned())
    });
    let path = || path.to_owned();
    let text = text.map_err(|cause| AccessError::Read {
        path: path(),
        cause,
    })?;
    parse(&text).map_err(|(line, text)| AccessError::Line {
        path: path(),
        line,
        text,
    })
}

/// Parses a list with one info hash per line. The rest of a line is ignored, and so is everything
/// after `#`. An error names the first invalid line and its text.
pub(crate) fn parse(text: &str) -> Result<Hashes, (usize, String)> {
    let mut hashes = Hashes::new();
    for (number, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default();
        let Some(word) = line.split_whitespace().next() else {
            continue;
        };
        let hash = parse_hash(word).ok_or_else(|| {
            let excerpt: String = word.chars().take(80).collect();
            (number + 1, excerpt)
        })?;
        hashes.insert(hash);
    }
    Ok(hashes)
}

/// Parses an info hash of 40 hexadecimal digits, or of 64 for version 2, where trackers use the
/// first 40.
pub(crate) fn parse_hash(word: &str) -> Option<InfoHash> {
    let digits = word.bytes().all(|byte| byte.is_ascii_hexdigit());
    match word.len() {
        40 => InfoHash::from_hex(word),
        64 if digits => InfoHash::from_hex(&word[..40]),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_parsed_line_by_line() {
        let (one, two) = ("11".repeat(20), "22".repeat(32));
        let text = format!("# torrents\n{one}\n\n{two} a name # a remark\n");
        let hashes = parse(&text).unwrap();
        assert!(hashes.contains(&InfoHash([0x11; 20])) && hashes.contains(&InfoHash([0x22; 20])));
        assert_eq!(parse("11\n").unwrap_err(), (1, "11".to_owned()));
        assert_eq!(
            parse(&format!("{one}\nnonsense")).unwrap_err(),
            (2, "nonsense".to_owned())
        );
    }

    #[test]
    fn denied_entries_take_precedence_over_allowed_ones() {
        let networks = |text: &[&str]| text.iter().map(|text| text.parse().unwrap()).collect();
        let access = Access {
            allowed: Some(Hashes::from([InfoHash([1; 20]), InfoHash([2; 20])])),
            denied: Some(Hashes::from([InfoHash([2; 20])])),
            private: None,
            allowed_clients: Some(networks(&["10.0.0.0/8", "fd00::/8"])),
            denied_clients: networks(&["10.9.0.0/16"]),
        };
        let denies = |hash: u8, client: &str| {
            access
                .denies(&InfoHash([hash; 20]), client.parse().unwrap())
                .is_some()
        };
        assert!(!denies(1, "10.0.0.1") && !denies(1, "::ffff:10.0.0.1") && !denies(1, "fd00::1"));
        assert!(denies(1, "10.9.0.1") && denies(1, "192.0.2.1") && denies(1, "::1"));
        assert!(denies(2, "10.0.0.1") && denies(3, "10.0.0.1"));
        let nobody = Access {
            allowed_clients: Some(Vec::new()),
            ..Access::default()
        };
        assert!(nobody.denies_client([10, 0, 0, 1].into()), "fails closed");
        assert!(!Access::default().denies_client([10, 0, 0, 1].into()));
    }
}
