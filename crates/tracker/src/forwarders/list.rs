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
    /// The file cannot be read.
    #[error("cannot read the list of forwarders {0}: {1}")]
    Read(String, String),
    /// The file is not valid YAML.
    #[error("the list of forwarders {0} is not valid YAML: {1}")]
    Yaml(String, String),
    /// An entry is invalid.
    #[error("invalid entry {1} in the list of forwarders {0}: {2}")]
    Entry(String, usize, String),
}

/// Reads a list of forwarders from a file.
///
/// # Errors
/// The first problem with the file.
pub fn read(path: &Path) -> Result<Vec<Forwarder>, ListError> {
    let name = path.display().to_string();
    let text = bounded_file::read(path).and_then(|bytes| {
        let text = String::from_utf8(bytes);
        text.map_err(|_| "not UTF-8".to_owned())
    });
    let text = text.map_err(|cause| ListError::Read(name.clone(), cause))?;
    parse(&name, &text)
}

/// Parses a list of forwarders. An entry is a URI, or a mapping with `uri` and optionally `name`,
/// `ip` and `host`.
///
/// ```
/// let text = "- uri: http://a.example/announce\n  name: a\n- udp://b.example:80\n";
/// let list = headworks_tracker::forwarders::parse("list.yml", text).unwrap();
/// assert_eq!((list[0].name(), list[1].name()), ("a".into(), "b.example:80".into()));
/// ```
///
/// # Errors
/// The first problem with the text.
pub fn parse(name: &str, text: &str) -> Result<Vec<Forwarder>, ListError> {
    if !headworks_service::config::is_shallow_yaml(text) {
        let message = "nested too deeply for a list of forwarders";
        return Err(ListError::Yaml(name.into(), message.into()));
    }
    let documents = Yaml::load_from_str(text)
        .map_err(|error| ListError::Yaml(name.into(), error.info().into()))?;
    let invalid = |entry: usize, text: String| ListError::Entry(name.into(), entry + 1, text);
    let mut forwarders = Vec::new();
    for document in &documents {
        if document.is_null() {
            continue;
        }
        let list = document.as_vec();
        let list = list.or_else(|| document.as_mapping_get("forwarders")?.as_vec());
        let list = list.ok_or_else(|| invalid(0, "expected a list of `- uri: …`".into()))?;
        for (number, entry) in list.iter().enumerate() {
            let forwarder = parse_entry(entry).map_err(|text| invalid(number, text))?;
            forwarder.check().map_err(|text| invalid(number, text))?;
            forwarders.push(forwarder);
        }
    }
    Ok(forwarders)
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
