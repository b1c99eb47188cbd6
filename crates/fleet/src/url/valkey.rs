//! `valkey://` and `redis://` URLs.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use percent_encoding::utf8_percent_encode;

use super::Tls;
use super::authority::{Host, split};
use super::parameters::Parameters;
use super::postgres::ENCODED;
use crate::error::{Error, Result};

const ADVICE: &str = "set VALKEYCLI_AUTH or REDISCLI_AUTH";

const KNOWN: &[&str] = &["prefix", "sslrootcert"];

/// The address of a Valkey or Redis server. It never contains a password.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValkeyUrl {
    pub(crate) user: Option<String>,
    pub(crate) host: Host,
    pub(crate) database: u16,
    pub(crate) prefix: String,
    pub(crate) tls: Tls,
}

impl ValkeyUrl {
    /// The user in the URL.
    #[must_use]
    pub fn user(&self) -> Option<&str> {
        self.user.as_deref()
    }

    /// The server.
    #[must_use]
    pub fn host(&self) -> &Host {
        &self.host
    }

    /// The prefix of all keys; two fleets on one server need different ones.
    #[must_use]
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// How connections are protected.
    #[must_use]
    pub fn tls(&self) -> &Tls {
        &self.tls
    }
}

impl FromStr for ValkeyUrl {
    type Err = Error;

    fn from_str(text: &str) -> Result<ValkeyUrl> {
        let encrypted = text.starts_with("rediss://") || text.starts_with("valkeys://");
        let mut pieces = split(text, 6379, ADVICE)?;
        let mut parameters = Parameters::parse(pieces.query, KNOWN, ADVICE)?;
        let (Some(host), true) = (pieces.hosts.pop(), pieces.hosts.is_empty()) else {
            return Err(Error::Url("name one server".to_owned()));
        };
        let database = match pieces.path {
            "" => 0,
            number => number.parse().map_err(|_| {
                Error::Url("the database is a number: `valkey://host:port/0`".to_owned())
            })?,
        };
        let roots = parameters.take("sslrootcert").map(PathBuf::from);
        let prefix = parameters.take("prefix");
        Ok(ValkeyUrl {
            user: pieces.user,
            tls: tls(encrypted, roots, &host)?,
            host,
            database,
            prefix: checked_prefix(prefix.unwrap_or_else(|| "headworks".to_owned()))?,
        })
    }
}

fn tls(encrypted: bool, roots: Option<PathBuf>, host: &Host) -> Result<Tls> {
    match (encrypted, roots) {
        (true, roots) => Ok(Tls::Verified { roots }),
        (false, Some(_)) => Err(Error::Url("`sslrootcert` needs `rediss://`".to_owned())),
        (false, None) if host.is_loopback() => Ok(Tls::Off),
        (false, None) => Err(Error::Url(
            "a server on another machine needs TLS: use `rediss://` or `valkeys://`".to_owned(),
        )),
    }
}

/// Braces would move the hash tag of the keys.
fn checked_prefix(prefix: String) -> Result<String> {
    let fits = |b: u8| b.is_ascii_alphanumeric() || b"-_:.".contains(&b);
    if (1..=64).contains(&prefix.len()) && prefix.bytes().all(fits) {
        Ok(prefix)
    } else {
        Err(Error::Url(
            "`prefix` has 1 to 64 letters, digits, `-`, `_`, `.` and `:`".to_owned(),
        ))
    }
}

impl fmt::Display for ValkeyUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let encoded = |text| utf8_percent_encode(text, ENCODED);
        let scheme = match self.tls {
            Tls::Off => "valkey",
            Tls::Verified { .. } => "valkeys",
        };
        write!(f, "{scheme}://")?;
        if let Some(user) = &self.user {
            write!(f, "{}@", encoded(user))?;
        }
        write!(f, "{}/{}?prefix={}", self.host, self.database, self.prefix)?;
        match &self.tls {
            Tls::Verified { roots: Some(roots) } => {
                write!(f, "&sslrootcert={}", encoded(&roots.to_string_lossy()))
            }
            _ => Ok(()),
        }
    }
}
