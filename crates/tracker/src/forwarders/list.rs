//! Forwarders as the operator lists them.

use headworks_service::bounded_file;
use headworks_service::config::Secret;
use http::Uri;
use saphyr::{LoadableYamlNode, Yaml};
use serde::{Deserialize, Serialize};
use std::net::IpAddr;
use std::path::Path;
use thiserror::Error;

/// One tracker to forward announces to. Its URI may hold a passkey and is never shown: logs, pages
/// and metrics carry its name instead.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Forwarder {
    /// `http://`, `https://` or `udp://`, with path and query as the tracker wants them.
    pub uri: Secret,
    /// The name to show; host and port by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The client address to announce, instead of the one that the forwarder sees.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ip: Option<IpAddr>,
    /// The `Host` header to send, if it differs from the host of the URI.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
}

impl Forwarder {
    /// Creates a forwarder from its URI alone.
    #[must_use]
    pub fn at(uri: &str) -> Forwarder {
        Forwarder {
            uri: Secret::from(uri),
            name: None,
            ip: None,
            host: None,
        }
    }

    /// Returns the name to show.
    #[must_use]
    pub fn name(&self) -> String {
        let host = || Some(self.parsed()?.authority()?.to_string());
        let plain = |host: String| host.rsplit('@').next().unwrap_or_default().to_owned();
        let name = self.name.clone().filter(|name| !name.is_empty());
        name.unwrap_or_else(|| host().map(plain).unwrap_or_else(|| "?".into()))
    }

    pub(crate) fn parsed(&self) -> Option<Uri> {
        self.uri.reveal().trim().parse().ok()
    }

    /// Returns a text that is the same for two ways to write one tracker.
    pub(crate) fn identity(&self) -> String {
        let Some(uri) = self.parsed() else {
            return self.uri.reveal().to_owned();
        };
        let authority = uri.authority().map_or("", http::uri::Authority::as_str);
        let scheme = uri.scheme_str().unwrap_or_default();
        let default = if scheme == "https" { ":443" } else { ":80" };
        let authority = authority.to_ascii_lowercase();
        let authority = match scheme {
            "udp" => &authority,
            _ => authority.strip_suffix(default).unwrap_or(&authority),
        };
        let path = uri.path_and_query().map_or("", |path| path.as_str());
        // The path of a UDP tracker is an option that few trackers read.
        let path = match (scheme, path) {
            ("udp", "/" | "/announce") | (_, "/") => "",
            (_, path) => path,
        };
        format!("{scheme}://{authority}{path}")
    }

    /// Checks the URI.
    ///
    /// # Errors
    /// The problem as a message that does not contain the URI.
    pub fn check(&self) -> Result<(), String> {
        let name = self.name();
        let Some(uri) = self.parsed() else {
            return Err(format!("the uri of forwarder `{name}` is not a valid URI"));
        };
        // Without the user and password before the host.
        let host_and_port = uri.authority().map_or("", http::uri::Authority::as_str);
        let host_and_port = host_and_port.rsplit('@').next().unwrap_or_default();
        if uri.host().is_some_and(|host| host_and_port != host) && uri.port_u16().is_none() {
            return Err(format!(
                "the port of forwarder `{name}` is not a number from 0 to 65535"
            ));
        }
        match uri.scheme_str() {
            Some("http" | "https") if uri.host().is_some() => Ok(()),
            Some("udp") if uri.port_u16().is_some() => Ok(()),
            Some("udp") => Err(format!("the uri of forwarder `{name}` has no port")),
            _ => Err(format!(
                "forwarder `{name}`: the uri must begin with http://, https:// or udp://"
            )),
        }
    }
}

/// The reason why a list of forwarders cannot be used.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ListError {
    /// The list cannot be read.
    #[error("cannot read the list of forwarders {0}: {1}")]
    Read(String, String),
    /// The text is neither YAML, JSON nor one URI per line.
    #[error("the list of forwarders {0} is neither YAML, JSON nor one URI per line: {1}")]
    Format(String, String),
}

/// A list of forwarders, and the entries that cannot be used.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct List {
    /// The forwarders.
    pub forwarders: Vec<Forwarder>,
    /// The other entries.
    pub skipped: Vec<Skipped>,
}

/// An entry of a list that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Skipped {
    /// The number of the entry, or of the line.
    pub entry: usize,
    /// The reason, which does not contain the URI.
    pub reason: String,
}

impl List {
    fn push(&mut self, entry: usize, forwarder: Result<Forwarder, String>) {
        let checked = forwarder.and_then(|forwarder| forwarder.check().map(|()| forwarder));
        match checked {
            Ok(forwarder) => self.forwarders.push(forwarder),
            Err(reason) => self.skipped.push(Skipped { entry, reason }),
        }
    }

    /// Logs the entries that cannot be used.
    pub(crate) fn log_skipped(&self, name: &str) {
        if let Some(first) = self.skipped.first() {
            tracing::warn!(
                list = name,
                skipped = self.skipped.len(),
                entry = first.entry,
                reason = first.reason,
                "entries of a list of forwarders cannot be used"
            );
        }
    }
}

/// Reads a list of forwarders from a file.
///
/// # Errors
/// When the file cannot be read or is no list.
pub fn read(path: &Path) -> Result<List, ListError> {
    let name = path.display().to_string();
    let text = bounded_file::read(path).and_then(|bytes| {
        let text = String::from_utf8(bytes);
        text.map_err(|_| "not UTF-8".to_owned())
    });
    let text = text.map_err(|cause| ListError::Read(name.clone(), cause))?;
    parse(&name, &text)
}

/// Parses a list of forwarders: plain text with one URI per line, or YAML or JSON whose entries are
/// URIs or mappings with `uri` and optionally `name`, `ip` and `host`. Entries that cannot be used
/// are skipped: published lists contain some, such as `wss://`.
///
/// ```
/// use headworks_tracker::forwarders::parse;
///
/// let text = "- uri: http://a.example/announce\n  name: a\n- udp://b.example:80\n";
/// let list = parse("list.yml", text).unwrap().forwarders;
/// assert_eq!((list[0].name(), list[1].name()), ("a".into(), "b.example:80".into()));
///
/// let list = parse("list.txt", "# best\nudp://b.example:80\n\nwss://c.example\n").unwrap();
/// assert_eq!((list.forwarders.len(), list.skipped[0].entry), (1, 4));
/// ```
///
/// # Errors
/// When the text is no list.
pub fn parse(name: &str, text: &str) -> Result<List, ListError> {
    let text = text.trim_start_matches('\u{feff}');
    match is_plain(text) {
        true => Ok(parse_plain(text)),
        false => parse_yaml(name, text),
    }
}

/// Returns the lines of a plain list with their numbers, without comments.
fn plain_lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let lines = text.lines().enumerate();
    let lines = lines.map(|(index, line)| (index + 1, line.trim()));
    // A `#` inside a line may be part of a URI.
    lines.filter(|(_, line)| !line.is_empty() && !line.starts_with(['#', ';']))
}

/// Whether a text is a plain list: its first line is a URI.
fn is_plain(text: &str) -> bool {
    let first = plain_lines(text).next();
    let scheme = first.and_then(|(_, line)| Some(line.split_once("://")?.0));
    scheme.is_some_and(|scheme| {
        !scheme.is_empty() && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric())
    })
}

fn parse_plain(text: &str) -> List {
    let mut list = List::default();
    for (number, line) in plain_lines(text) {
        // Some lists put several on a line.
        for uri in line.split([',', ' ', '\t']).filter(|uri| !uri.is_empty()) {
            list.push(number, Ok(Forwarder::at(uri)));
        }
    }
    list
}

fn parse_yaml(name: &str, text: &str) -> Result<List, ListError> {
    let invalid = |text: &str| ListError::Format(name.into(), text.into());
    if !headworks_service::config::is_shallow_yaml(text) {
        return Err(invalid("nested too deeply"));
    }
    let documents = Yaml::load_from_str(text).map_err(|error| invalid(error.info()))?;
    let mut list = List::default();
    for document in &documents {
        if document.is_null() {
            continue;
        }
        let entries = document.as_vec();
        let entries = entries.or_else(|| document.as_mapping_get("forwarders")?.as_vec());
        let entries = entries.ok_or_else(|| invalid("expected a list of `- uri: …`"))?;
        for (index, entry) in entries.iter().enumerate() {
            list.push(index + 1, parse_entry(entry));
        }
    }
    Ok(list)
}

fn parse_entry(entry: &Yaml<'_>) -> Result<Forwarder, String> {
    if let Some(uri) = entry.as_str() {
        return Ok(Forwarder::at(uri));
    }
    let text = |key: &str| {
        let value = entry.as_mapping_get(key)?;
        let number = || value.as_integer().map(|number| number.to_string());
        value.as_str().map(str::to_owned).or_else(number)
    };
    let ip = match text("ip").filter(|ip| !ip.is_empty()) {
        Some(ip) => Some(
            ip.parse()
                .map_err(|_| format!("`{ip}` is not an IP address"))?,
        ),
        None => None,
    };
    Ok(Forwarder {
        uri: Secret::from(text("uri").ok_or("`uri` is missing")?.as_str()),
        name: text("name"),
        ip,
        host: text("host").filter(|host| !host.is_empty()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_as_people_publish_them() {
        let uris = |text: &str| -> Vec<String> {
            let list = parse("list", text).unwrap();
            let uris = list.forwarders.iter();
            uris.map(|one| one.uri.reveal().to_owned()).collect()
        };
        let two = ["udp://a.example:1/announce", "http://b.example/announce"];
        for text in [
            "udp://a.example:1/announce\n\nhttp://b.example/announce\n\n",
            "\u{feff}# the best\r\nudp://a.example:1/announce\r\n; more\r\nhttp://b.example/announce",
            "udp://a.example:1/announce, http://b.example/announce",
            "- udp://a.example:1/announce\n- uri: http://b.example/announce\n",
            "forwarders:\n- udp://a.example:1/announce\n- http://b.example/announce\n",
            "[\"udp://a.example:1/announce\", {\"uri\": \"http://b.example/announce\"}]",
        ] {
            assert_eq!(uris(text), two, "{text}");
        }
        assert!(parse("list", "<html><body>502</body></html>").is_err());
        assert!(uris("").is_empty());
    }

    #[test]
    fn unusable_entries_are_named_and_not_fatal() {
        let text = "wss://a.example\nudp://b.example\nudp://c.example:1\nhttp://d.example:99999/\n";
        let list = parse("list", text).unwrap();
        assert_eq!(list.forwarders.len(), 1);
        let skipped: Vec<_> = list.skipped.iter().map(|one| one.entry).collect();
        assert_eq!(skipped, [1, 2, 4]);
        assert!(list.skipped[0].reason.contains("a.example"));
        let list = parse("list", "- 7\n- uri: udp://c.example:1\n").unwrap();
        assert_eq!((list.forwarders.len(), list.skipped.len()), (1, 1));
    }
}
