//! Locations as URLs.

use super::limiter::Limits;
use super::percent;
use crate::error::{Error, ErrorKind, Result};
use std::time::Duration;

/// The parts of `scheme://host/path?key=value`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Url {
    /// The host or bucket, with the port if there is one.
    pub(crate) host: String,
    /// The path without its first slash, decoded, and ending with a slash unless it is empty.
    pub(crate) prefix: Vec<u8>,
    settings: Vec<(String, String)>,
}

impl Url {
    /// Parses a location. Credentials in it are refused, because locations are stored and
    /// displayed.
    pub(crate) fn parse(location: &[u8]) -> Result<Url> {
        let fail =
            |message: &str| Error::new(ErrorKind::Other, "open", &redacted(location), message);
        let text = std::str::from_utf8(location).map_err(|_| fail("the URL is not UTF-8"))?;
        let rest = text.split_once("://").map_or(text, |(_, rest)| rest);
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
        // A fragment is never sent, so it can only be a mistake.
        if text.contains('#') {
            return Err(fail(
                "the URL has a fragment; write `%23` for a `#` in a name",
            ));
        }
        let endpoint = query
            .split('&')
            .find_map(|pair| pair.strip_prefix("endpoint="));
        if host.contains('@')
            || endpoint.is_some_and(|url| url.contains('@') || url.contains("%40"))
        {
            let message = "the URL contains credentials, which would be stored and displayed; pass them by environment or profile";
            return Err(fail(message));
        }
        let authority = endpoint.map(|url| url.split_once("://").map_or(url, |(_, rest)| rest));
        let authority = authority.and_then(|rest| rest.split('/').next());
        if [Some(host), authority]
            .into_iter()
            .flatten()
            .any(has_bad_port)
        {
            return Err(fail("the port is not a number from 1 to 65535"));
        }
        if host.is_empty() {
            return Err(fail("the URL has no host or bucket"));
        }
        let mut prefix = percent::decode(path.as_bytes());
        if !prefix.is_empty() && !prefix.ends_with(b"/") {
            prefix.push(b'/');
        }
        let pair = |pair: &str| {
            let (key, value) = pair.split_once('=').unwrap_or((pair, "true"));
            let value = percent::decode(value.as_bytes());
            (key.to_owned(), String::from_utf8_lossy(&value).into_owned())
        };
        let pairs = query.split('&').filter(|pair| !pair.is_empty());
        Ok(Url {
            host: host.to_owned(),
            prefix,
            settings: pairs.map(pair).collect(),
        })
    }

    /// Refuses unknown settings.
    pub(crate) fn allow_only(&self, known: &[&str]) -> Result<()> {
        let unknown = self
            .settings
            .iter()
            .find(|(key, _)| !known.contains(&key.as_str()));
        match unknown {
            None => Ok(()),
            Some((key, _)) => {
                let message = format!("unknown setting; known are {}", known.join(", "));
                let operation = "use the setting";
                Err(Error::new(
                    ErrorKind::Other,
                    operation,
                    key.as_bytes(),
                    message,
                ))
            }
        }
    }

    pub(crate) fn get(&self, key: &str) -> Option<&str> {
        let found = self.settings.iter().find(|(name, _)| name == key);
        found.map(|(_, value)| value.as_str())
    }

    /// Returns the limits in the location: `at_once` concurrent calls (`default_concurrent` by
    /// default) and `requests` per second.
    pub(crate) fn limits(&self, default_concurrent: usize) -> Result<Limits> {
        let positive = |key: &str| match self.get(key) {
            None => Ok(None),
            Some(text) => match text.parse::<f64>() {
                Ok(number) if (0.001..=1e6).contains(&number) => Ok(Some(number)),
                _ => {
                    let message = format!("`{text}` is not a number above 0");
                    let (operation, key) = ("read the setting", key.as_bytes());
                    Err(Error::new(ErrorKind::Other, operation, key, message))
                }
            },
        };
        let interval = positive("requests")?.map(|rate| Duration::from_secs_f64(1.0 / rate));
        Ok(Limits {
            concurrent: positive("at_once")?
                .map_or(default_concurrent, |number| number.max(1.0) as usize),
            interval: interval.unwrap_or_default(),
        })
    }

    pub(crate) fn flag(&self, key: &str) -> Result<Option<bool>> {
        match self.get(key) {
            None => Ok(None),
            Some("true" | "1" | "yes") => Ok(Some(true)),
            Some("false" | "0" | "no") => Ok(Some(false)),
            Some(other) => {
                let message = format!("`{other}` is neither true nor false");
                let operation = "read the setting";
                Err(Error::new(
                    ErrorKind::Other,
                    operation,
                    key.as_bytes(),
                    message,
                ))
            }
        }
    }
}

/// Returns whether the part after the last colon of a host is an invalid port. Colons inside
/// `[::1]` do not count.
fn has_bad_port(host: &str) -> bool {
    let after = host.rsplit_once(']').map_or(host, |(_, after)| after);
    let port = after.rsplit_once(':').map(|(_, port)| port);
    port.is_some_and(|port| !port.parse::<u16>().is_ok_and(|port| port > 0))
}

/// Returns a location without possible secrets: the part before an `@`, and the settings.
pub(crate) fn redacted(location: &[u8]) -> Vec<u8> {
    let visible = location.split(|&byte| matches!(byte, b'?' | b'#')).next();
    let visible = visible.unwrap_or_default();
    match visible.iter().rposition(|&byte| byte == b'@') {
        None => visible.to_vec(),
        Some(at) => [b"...".as_slice(), &visible[at..]].concat(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_parsed() {
        let url = Url::parse(b"s3://bucket/a%20b/c?region=r&anonymous").unwrap();
        assert_eq!(
            (url.host.as_str(), url.prefix.as_slice()),
            ("bucket", &b"a b/c/"[..])
        );
        assert_eq!(url.get("region"), Some("r"));
        assert_eq!(url.flag("anonymous").unwrap(), Some(true));
        assert!(
            url.allow_only(&["region"])
                .unwrap_err()
                .to_string()
                .contains("anonymous")
        );
        assert_eq!(Url::parse(b"s3://bucket").unwrap().prefix, b"");
    }

    #[test]
    fn an_invalid_port_is_refused() {
        for url in [
            "webdav://h:99999/x",
            "webdav://h:0",
            "webdav://h:",
            "webdav://[::1]:x/",
            "s3://b?endpoint=http://h:70000",
            "s3://b?endpoint=http://h:1x/",
        ] {
            let refused = Url::parse(url.as_bytes()).unwrap_err().to_string();
            assert!(refused.contains("port"), "{url}: {refused}");
        }
        for url in [
            "webdav://h:80/x",
            "webdav://[::1]/",
            "s3://b?endpoint=http://[::1]:9",
        ] {
            Url::parse(url.as_bytes()).unwrap();
        }
    }

    #[test]
    fn credentials_in_a_url_are_refused_and_not_repeated() {
        let refused = Url::parse(b"s3://key:topsecret@bucket/x").unwrap_err();
        assert!(refused.to_string().contains("environment"), "{refused}");
        assert!(!format!("{refused} {refused:?}").contains("topsecret"));
        for url in [
            "s3://b?endpoint=http://user:topsecret@h",
            "webdav://h/#topsecret",
            "webdav://u:topsecret@h?x=topsecret",
        ] {
            let refused = Url::parse(url.as_bytes()).unwrap_err();
            assert!(
                !format!("{refused} {refused:?}").contains("topsecret"),
                "{refused}"
            );
        }
    }
}
