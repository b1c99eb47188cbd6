//! The part of a URL that names user and hosts.

use std::fmt;
use std::net::IpAddr;

use percent_encoding::percent_decode_str;

use crate::error::{Error, Result};

/// A server's host and port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// A name or an address, without brackets.
    pub name: String,
    /// The TCP port.
    pub port: u16,
}

impl Host {
    /// Returns whether this host is the machine itself. A name is believed only if it is
    /// `localhost`; the connection checks the address that it resolves to.
    #[must_use]
    pub fn is_loopback(&self) -> bool {
        self.name.eq_ignore_ascii_case("localhost")
            || self
                .name
                .parse::<IpAddr>()
                .is_ok_and(|address| address.is_loopback())
    }

    fn parse(text: &str, default_port: u16) -> Result<Host> {
        let (name, port) = match text.strip_prefix('[') {
            Some(rest) => {
                let (address, after) = rest
                    .split_once(']')
                    .ok_or_else(|| Error::Url("`[` without `]` in the host".to_owned()))?;
                (address, after.strip_prefix(':'))
            }
            None => match text.split_once(':') {
                Some((name, port)) => (name, Some(port)),
                None => (text, None),
            },
        };
        let name = decode(name, "host")?;
        let fits = |c: char| c.is_ascii_alphanumeric() || "-._:%".contains(c);
        if name.is_empty() || !name.chars().all(fits) {
            return Err(Error::Url(
                "no usable host name: expected `scheme://user@host:port/…`".to_owned(),
            ));
        }
        let port = match port {
            None => default_port,
            Some(port) => match port.parse() {
                Ok(port) if port > 0 => port,
                _ => {
                    return Err(Error::Url(
                        "the port is not a number from 1 to 65535".into(),
                    ));
                }
            },
        };
        Ok(Host { name, port })
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.name.contains(':') {
            write!(f, "[{}]:{}", self.name, self.port)
        } else {
            write!(f, "{}:{}", self.name, self.port)
        }
    }
}

/// The pieces of `scheme://user@hosts/path?query`, not yet decoded.
pub(super) struct Pieces<'a> {
    pub(super) user: Option<String>,
    pub(super) hosts: Vec<Host>,
    pub(super) path: &'a str,
    pub(super) query: &'a str,
}

/// Splits a URL. `advice` says where a password belongs.
pub(super) fn split<'a>(
    text: &'a str,
    default_port: u16,
    advice: &'static str,
) -> Result<Pieces<'a>> {
    let (_, rest) = text
        .split_once("://")
        .ok_or_else(|| Error::Url("no `://`".to_owned()))?;
    if rest.contains(|c: char| c.is_control() || c == '#') {
        return Err(Error::Url("control characters or `#`".to_owned()));
    }
    // The last `@` of everything: a password with `/` or `?` must be recognised as one, too.
    let (user, rest) = match rest.rsplit_once('@') {
        Some((user, _)) if user.contains(':') => return Err(Error::PasswordInUrl(advice)),
        Some((user, rest)) => (Some(decode(user, "user")?), rest),
        None => (None, rest),
    };
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (hosts, path) = rest.split_once('/').unwrap_or((rest, ""));
    let hosts: Result<Vec<Host>> = hosts
        .split(',')
        .map(|host| Host::parse(host, default_port))
        .collect();
    Ok(Pieces {
        user: user.filter(|user| !user.is_empty()),
        hosts: hosts?,
        path,
        query,
    })
}

/// Decodes `%41` and the like.
pub(super) fn decode(text: &str, what: &str) -> Result<String> {
    let decoded = percent_decode_str(text).decode_utf8();
    match decoded {
        Ok(decoded) if !decoded.contains('\0') => Ok(decoded.into_owned()),
        _ => Err(Error::Url(format!("the {what} is not UTF-8 text"))),
    }
}
