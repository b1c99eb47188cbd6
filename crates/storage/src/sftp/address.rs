//! SFTP locations: host, user and folder.

use crate::cloud::percent;
use crate::cloud::url::{Url, redacted};
use crate::error::{Error, ErrorKind, Result};

/// Default number of connections.
const DEFAULT_CONNECTIONS: usize = 4;
/// Maximum number of connections that servers accept by default.
const MAX_CONNECTIONS: usize = 16;

/// The parts of `sftp://user@host:port/path`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Address {
    pub(super) user: Option<String>,
    pub(super) host: String,
    pub(super) port: Option<u16>,
    /// The path of the root, ending with a slash: absolute, or relative to the user's initial
    /// folder.
    pub(super) root: Vec<u8>,
    pub(super) connections: usize,
}

impl Address {
    pub(super) fn parse(location: &[u8]) -> Result<Address> {
        let fail =
            |message: &str| Error::new(ErrorKind::Other, "open", &redacted(location), message);
        let (user, rest) = split_user(location);
        let user = user.map(|user| String::from_utf8_lossy(&percent::decode(user)).into_owned());
        if user.as_ref().is_some_and(|user| user.contains(':')) {
            let message = "the URL contains a password, which would be stored and displayed; pass it as SFTP_PASSWORD";
            return Err(fail(message));
        }
        if user
            .as_ref()
            .is_some_and(|user| !is_safe_argument(user, "._-+@\\"))
        {
            return Err(fail("the user name contains invalid characters"));
        }
        let url = Url::parse(&rest)?;
        url.allow_only(&["connections"])?;
        let connections = match url.get("connections").map(str::parse) {
            None => DEFAULT_CONNECTIONS,
            Some(Ok(count @ 1..=MAX_CONNECTIONS)) => count,
            Some(_) => return Err(fail("`connections` is not a number from 1 to 16")),
        };
        let (host, port) = split_port(&url.host).ok_or_else(|| fail("invalid port"))?;
        if !is_safe_argument(host, ".-_:") {
            return Err(fail("the host name contains invalid characters"));
        }
        let root = match url.prefix.strip_prefix(b"~/") {
            Some(below) => below.to_vec(),
            None => [b"/", url.prefix.as_slice()].concat(),
        };
        Ok(Address {
            user,
            host: host.to_owned(),
            port,
            root,
            connections,
        })
    }

    /// Returns the arguments of `ssh` for this address.
    pub(super) fn ssh_arguments(&self) -> String {
        let port = self
            .port
            .map_or(String::new(), |port| format!("-p {port} "));
        let user = self.user.as_ref().map(|user| format!("{user}@"));
        format!("{port}{}{}", user.unwrap_or_default(), self.host)
    }
}

/// Splits a URL into the user and the rest.
fn split_user(location: &[u8]) -> (Option<&[u8]>, Vec<u8>) {
    let begin = b"sftp://".len().min(location.len());
    let is_end = |byte: &u8| matches!(byte, b'/' | b'?' | b'#');
    let end = location[begin..].iter().position(is_end);
    let end = end.map_or(location.len(), |at| begin + at);
    match location[begin..end].iter().rposition(|&byte| byte == b'@') {
        None => (None, location.to_vec()),
        Some(at) => {
            let rest = [&location[..begin], &location[begin + at + 1..]].concat();
            (Some(&location[begin..begin + at]), rest)
        }
    }
}

/// Splits a host, possibly in brackets, and its port.
fn split_port(host: &str) -> Option<(&str, Option<u16>)> {
    let (host, port) = match host.strip_prefix('[') {
        Some(rest) => rest.split_once(']')?,
        None => match host.find(':') {
            Some(at) => host.split_at(at),
            None => (host, ""),
        },
    };
    match port.strip_prefix(':') {
        Some(port) => Some((host, Some(port.parse().ok().filter(|&port| port > 0)?))),
        None => port.is_empty().then_some((host, None)),
    }
}

/// Returns whether a word is safe as an argument of `ssh`, and in a command line of the user's
/// configuration (`ProxyCommand`).
fn is_safe_argument(word: &str, others: &str) -> bool {
    let fits = |c: char| c.is_alphanumeric() || others.contains(c);
    !word.is_empty() && !word.starts_with('-') && word.chars().all(fits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_parsed() {
        let address = Address::parse(b"sftp://me@example.org:2222/data/a%20b").unwrap();
        assert_eq!(address.ssh_arguments(), "-p 2222 me@example.org");
        assert_eq!(address.root, b"/data/a b/");
        let root = |url: &str| Address::parse(url.as_bytes()).unwrap().root;
        assert_eq!(root("sftp://alias"), b"/");
        assert_eq!(root("sftp://alias/~"), b"");
        assert_eq!(root("sftp://alias/~/"), b"");
        assert_eq!(root("sftp://alias/~/sub"), b"sub/");
        assert_eq!(root("sftp://alias/%ff@x"), b"/\xff@x/");
        let six = Address::parse(b"sftp://[fe80::1]:22/x").unwrap();
        assert_eq!((six.host.as_str(), six.port), ("fe80::1", Some(22)));
    }

    #[test]
    fn unsafe_hosts_and_users_are_refused() {
        for url in [
            "sftp://-oProxyCommand=x/",
            "sftp://-x@host/",
            "sftp://a;b@host/",
            "sftp://$(x)/",
            "sftp://h`x`/",
            "sftp://host:0/",
            "sftp://host:99999/",
            "sftp://me@/x",
            "sftp://@host/x",
            "sftp://h?connections=0",
            "sftp://h?connections=99",
            "sftp://h?password=x",
        ] {
            assert!(Address::parse(url.as_bytes()).is_err(), "{url}");
        }
    }

    #[test]
    fn passwords_are_refused_and_not_repeated() {
        for url in ["sftp://me:topsecret@h/", "sftp://me%3Atopsecret@h/"] {
            let refused = Address::parse(url.as_bytes()).unwrap_err();
            assert!(refused.to_string().contains("SFTP_PASSWORD"), "{refused}");
            assert!(!format!("{refused} {refused:?}").contains("topsecret"));
        }
    }
}
