//! Forwarders as the operator lists them.

use super::host::Host;
use super::skipped::{SkipReason, SkippedEntries};
use crate::address_scope::AddressScope;
use headworks_service::bounded_file;
use headworks_service::config::Secret;
use http::Uri;
use saphyr::{LoadableYamlNode, Yaml};
use serde::{Deserialize, Serialize};
use std::collections::{HashMap, HashSet};
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
    /// Whether only public lists name it. It must not lead into the operator's network then, also
    /// if a later answer of the name service says so.
    #[serde(skip)]
    pub(crate) published: bool,
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
            published: false,
        }
    }

    /// Returns the name to show.
    #[must_use]
    pub fn name(&self) -> String {
        let host = || Some(self.parsed()?.authority()?.to_string());
        let plain = |host: String| host.rsplit('@').next().unwrap_or_default().to_owned();
        // Anybody may have published the list, and names appear in logs and on terminals.
        let printable = |name: &String| -> String {
            let characters = name.chars();
            characters.filter(|one| !one.is_control()).collect()
        };
        let name = self.name.as_ref().map(printable);
        let name = name.filter(|name| !name.is_empty());
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
        let user = authority.rsplit_once('@').map_or("", |(user, _)| user);
        let scheme = uri.scheme_str().unwrap_or_default();
        let host = Host::parse(uri.host().unwrap_or_default());
        let port = port(&uri).unwrap_or_default();
        let path = uri.path_and_query().map_or("", |path| path.as_str());
        // The path of a UDP tracker is an option that few trackers read.
        let path = match (scheme, path) {
            ("udp", "/" | "/announce") | (_, "/") => "",
            (_, path) => path,
        };
        format!("{scheme}://{user}@{host}:{port}{path}")
    }

    /// Whether the URI names an address that is not public. A name is looked up when a request is
    /// made.
    fn is_in_private_network(&self) -> bool {
        let uri = self.parsed();
        let host = uri.as_ref().and_then(Uri::host).unwrap_or_default();
        let ips = Host::parse(host).local_addresses();
        (ips.iter()).any(|ip| AddressScope::of(*ip) != AddressScope::Public)
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
                "the port of forwarder `{name}` is not a number from 1 to 65535"
            ));
        }
        if uri.port_u16() == Some(0) {
            return Err(format!(
                "nothing can listen on the port of forwarder `{name}`"
            ));
        }
        if uri.host().is_none_or(|host| host.is_empty() || host == ".") {
            return Err(format!("the uri of forwarder `{name}` has no host"));
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

/// Returns the port of a URI, which may be that of its scheme.
pub(crate) fn port(uri: &Uri) -> Option<u16> {
    let default = match uri.scheme_str() {
        Some("http") => Some(80),
        Some("https") => Some(443),
        _ => None,
    };
    uri.port_u16().or(default)
}

/// The most forwarders since the start, which their ids can number.
pub(crate) const MAX_FORWARDERS: usize = u16::MAX as usize;

/// Removes entries that are the same tracker as an earlier one. The operator's word counts wherever
/// it stands: an entry is only published if all lists that name it are public.
pub(crate) fn dedup(list: &mut Vec<Forwarder>) {
    take_duplicates(list, |forwarder| forwarder);
}

/// Removes such entries of something that has a forwarder, and returns them.
pub(crate) fn take_duplicates<T>(
    list: &mut Vec<T>,
    forwarder: impl Fn(&mut T) -> &mut Forwarder,
) -> Vec<T> {
    let key = |forwarder: &Forwarder| (forwarder.identity(), forwarder.ip);
    let all = list.iter_mut().map(|entry| &*forwarder(entry));
    let own = all.filter(|forwarder| !forwarder.published);
    let own: HashSet<_> = own.map(key).collect();
    let mut seen = HashSet::new();
    let duplicates = list.extract_if(.., |entry| {
        let forwarder = forwarder(entry);
        let key = key(forwarder);
        forwarder.published &= !own.contains(&key);
        !seen.insert(key)
    });
    duplicates.collect()
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
    /// The names of the entries of a public list that are the same forwarder as an earlier one.
    pub(crate) duplicates: Vec<String>,
    /// The number of entries of a public list whose `ip`, `host` or `name` is ignored.
    pub ignored_fields: usize,
}

/// The origin of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ListOrigin {
    /// The operator, or a server in the operator's network.
    Private,
    /// A server on the internet. Its publisher must not be able to have requests sent to this
    /// machine or into its network, so such entries are skipped.
    Public,
}

/// An entry of a list that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Skipped {
    /// The number of the entry, or of the line.
    pub entry: usize,
    /// The reason, which does not contain the URI.
    pub reason: String,
    /// Whether it is a URI, such as one with `wss://`, and not a word of some other text.
    pub is_uri: bool,
}

/// The most forwarders used of a public list, in all and of one host. Its publisher must neither be
/// able to fill our memory nor to direct all trackers that use the list at one host.
const MAX_PUBLISHED: usize = 1000;
const MAX_PUBLISHED_OF_HOST: usize = 16;
/// The most entries of a public list that are named as unusable, and as duplicates.
const MAX_PUBLISHED_SKIPPED: usize = 10_000;

/// A list that is being read.
struct Reader {
    origin: ListOrigin,
    list: List,
    /// The forwarders of a public list so far, and their number by host.
    known: HashSet<String>,
    hosts: HashMap<Host, usize>,
}

impl Reader {
    fn new(origin: ListOrigin) -> Reader {
        Reader {
            origin,
            list: List::default(),
            known: HashSet::new(),
            hosts: HashMap::new(),
        }
    }

    fn push(&mut self, entry: usize, forwarder: Result<Forwarder, String>) {
        let (is_uri, checked) = match forwarder {
            Ok(forwarder) => {
                let is_uri = forwarder.uri.reveal().contains("://");
                let checked = forwarder.check().and_then(|()| match self.origin {
                    ListOrigin::Public => self.check_published(&forwarder),
                    ListOrigin::Private => Ok(Some(forwarder)),
                });
                (is_uri, checked)
            }
            Err(reason) => (false, Err(reason)),
        };
        let skipped = &mut self.list.skipped;
        let limited = self.origin == ListOrigin::Public;
        match checked {
            Ok(forwarder) => self.list.forwarders.extend(forwarder),
            Err(_) if limited && skipped.len() >= MAX_PUBLISHED_SKIPPED => {}
            Err(reason) => skipped.push(Skipped {
                entry,
                reason,
                is_uri,
            }),
        }
    }

    /// Checks an entry of a public list. Returns `None` for one that the list has already.
    fn check_published(&mut self, forwarder: &Forwarder) -> Result<Option<Forwarder>, String> {
        if forwarder.is_in_private_network() {
            let name = forwarder.name();
            return Err(format!(
                "forwarder `{name}` is in a private network, but its list is public"
            ));
        }
        let name = forwarder.name();
        if !self.known.insert(forwarder.identity()) {
            let duplicates = &mut self.list.duplicates;
            if duplicates.len() < MAX_PUBLISHED_SKIPPED {
                duplicates.push(name);
            }
            return Ok(None);
        }
        if self.list.forwarders.len() >= MAX_PUBLISHED {
            return Err(format!(
                "forwarder `{name}` is left out: a public list may name {MAX_PUBLISHED}"
            ));
        }
        let uri = forwarder.parsed();
        let host = Host::parse(uri.as_ref().and_then(Uri::host).unwrap_or_default());
        let of_host = self.hosts.entry(host).or_default();
        *of_host += 1;
        if *of_host > MAX_PUBLISHED_OF_HOST {
            return Err(format!(
                "forwarder `{name}` is left out: a public list may name {MAX_PUBLISHED_OF_HOST} of one host"
            ));
        }
        // Its publisher must not choose the address that clients are announced with, the virtual
        // host that is asked, nor a name that looks like one of the operator's.
        let Forwarder { ip, host, name, .. } = forwarder;
        if ip.is_some() || host.is_some() || name.is_some() {
            self.list.ignored_fields += 1;
        }
        Ok(Some(Forwarder {
            published: true,
            ..Forwarder::at(forwarder.uri.reveal())
        }))
    }
}

impl List {
    /// Counts and names the entries that are not used.
    pub(crate) fn note_skipped(&self, name: &str, skipped: &mut SkippedEntries) {
        for Skipped { entry, reason, .. } in &self.skipped {
            let entry = format!("{entry}: {reason}");
            skipped.add(name, &entry, SkipReason::Unusable);
        }
        for duplicate in &self.duplicates {
            skipped.add(name, duplicate, SkipReason::Duplicate);
        }
        if self.ignored_fields > 0 {
            tracing::warn!(
                list = name,
                entries = self.ignored_fields,
                "`ip`, `host` and `name` are ignored in a public list"
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
    parse_from(ListOrigin::Private, name, text)
}

/// Parses a list, like [`parse`], as far as its origin is trusted.
pub(crate) fn parse_from(origin: ListOrigin, name: &str, text: &str) -> Result<List, ListError> {
    let text = text.trim_start_matches('\u{feff}');
    match is_plain(text) {
        true => Ok(parse_plain(origin, text)),
        false => parse_yaml(origin, name, text),
    }
}

/// Returns the lines of a plain list with their numbers, without comments.
fn plain_lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let lines = text.lines().enumerate();
    let lines = lines.map(|(index, line)| (index + 1, line.trim()));
    // A `#` inside a word may be part of a URI.
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

fn parse_plain(origin: ListOrigin, text: &str) -> List {
    let mut reader = Reader::new(origin);
    for (number, line) in plain_lines(text) {
        // Some lists put several on a line, others a comment behind them.
        let words = line.split([',', ' ', '\t']).filter(|word| !word.is_empty());
        let is_comment = |word: &&str| word.starts_with(['#', ';']) || word.starts_with("//");
        for uri in words.take_while(|word| !is_comment(word)) {
            reader.push(number, Ok(Forwarder::at(uri)));
        }
    }
    reader.list
}

fn parse_yaml(origin: ListOrigin, name: &str, text: &str) -> Result<List, ListError> {
    let invalid = |text: &str| ListError::Format(name.into(), text.into());
    // Anybody may have published the list.
    if !headworks_service::config::is_plain_yaml(text) {
        return Err(invalid("nested too deeply, or with an alias"));
    }
    let documents = Yaml::load_from_str(text).map_err(|error| invalid(error.info()))?;
    let mut reader = Reader::new(origin);
    for document in &documents {
        if document.is_null() {
            continue;
        }
        let entries = document.as_vec();
        let entries = entries.or_else(|| document.as_mapping_get("forwarders")?.as_vec());
        let entries = entries.ok_or_else(|| invalid("expected a list of `- uri: …`"))?;
        for (index, entry) in entries.iter().enumerate() {
            reader.push(index + 1, parse_entry(entry));
        }
    }
    Ok(reader.list)
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
        published: false,
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
            "udp://a.example:1/announce # best\nhttp://b.example/announce ; good, udp://c:1\n",
            "udp://a.example:1/announce\t// best\nhttp://b.example/announce #\n",
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
    fn forwarders_without_a_host_or_a_port_are_skipped() {
        for uri in [
            "udp://127.0.0.1:0",
            "udp://:80",
            "http://:80/announce",
            "http://a.example:0/announce",
            "http://user@:80/announce",
            "http://./announce",
        ] {
            let list = parse("list", uri).unwrap();
            assert!(list.forwarders.is_empty(), "{uri}: {list:?}");
            assert_eq!(list.skipped.len(), 1, "{uri}");
        }
    }

    #[test]
    fn a_public_list_names_no_private_addresses() {
        let text = "http://169.254.169.254/latest\nhttp://192.168.1.1/reboot\nudp://127.1:5\n\
            http://[::1]:80/a\nhttp://[fd00::1]/a\nhttp://2130706433/a\nudp://0.0.0.0:5\n\
            http://localhost:8080/a\nhttp://a.localhost./a\nhttp://me@10.0.0.1/a\n\
            udp://8.8.8.8:1\nhttp://a.example/announce\nhttp://[2600::1]/a\n";
        let list = parse_from(ListOrigin::Public, "list", text).unwrap();
        assert_eq!((list.forwarders.len(), list.skipped.len()), (3, 10));
        assert!(list.skipped.iter().all(|one| one.is_uri));
        assert_eq!(list.skipped[1].entry, 2);
        assert!(list.skipped[1].reason.contains("`192.168.1.1`"));
        let yaml = "- uri: http://10.0.0.1/a\n- udp://a.example:1\n";
        let list = parse_from(ListOrigin::Public, "list", yaml).unwrap();
        assert_eq!((list.forwarders.len(), list.skipped.len()), (1, 1));
        assert_eq!(parse("list", text).unwrap().forwarders.len(), 13);
    }

    #[test]
    fn an_entry_of_the_operator_is_not_a_published_one() {
        let text = "udp://a.example:1\nudp://b.example:1\n";
        let public = parse_from(ListOrigin::Public, "list", text).unwrap();
        let own = parse("list", "udp://B.example:1/announce").unwrap();
        for lists in [[&public, &own], [&own, &public]] {
            let all = lists.iter().flat_map(|list| list.forwarders.clone());
            let mut all: Vec<_> = all.collect();
            dedup(&mut all);
            all.sort_by_key(Forwarder::identity);
            let published: Vec<_> = all.iter().map(|one| one.published).collect();
            assert_eq!(published, [true, false]);
        }
    }

    #[test]
    fn a_list_cannot_multiply_itself_with_aliases() {
        for text in [
            "- &a udp://a.example:1\n- *a\n",
            "- &a {uri: \"udp://a.example:1\"}\n- *a\n- *a\n",
            "x: &a [udp://a.example:1]\nforwarders: *a\n",
        ] {
            let list = parse("list", text);
            assert!(matches!(list, Err(ListError::Format(..))), "{list:?}");
        }
        let unused = parse("list", "- &a udp://a.example:1\n").unwrap();
        assert_eq!(unused.forwarders.len(), 1, "an anchor alone is harmless");
    }

    #[test]
    fn a_public_list_sets_no_addresses_headers_or_names() {
        let text = "- {uri: \"udp://a.example:1\", ip: 8.8.8.8, host: h, name: \"our own\"}\n";
        let list = parse_from(ListOrigin::Public, "list", text).unwrap();
        let one = &list.forwarders[0];
        assert_eq!((one.ip, one.host.clone()), (None, None));
        assert_eq!(one.name(), "a.example:1");
        let list = parse("list", text).unwrap();
        let own = &list.forwarders[0];
        assert_eq!((own.ip.is_some(), own.name().as_str()), (true, "our own"));
    }

    #[test]
    fn a_public_list_names_a_bounded_number_of_forwarders() {
        let hosts: String = (0..5000)
            .map(|n| format!("udp://h{n}.example:1\n"))
            .collect();
        let list = parse_from(ListOrigin::Public, "list", &hosts).unwrap();
        assert_eq!(list.forwarders.len(), 1000);
        assert_eq!(parse("list", &hosts).unwrap().forwarders.len(), 5000);
        let ports: String = (1..5000)
            .map(|n| format!("udp://a.example:{n}\n"))
            .collect();
        let list = parse_from(ListOrigin::Public, "list", &ports).unwrap();
        assert_eq!(list.forwarders.len(), 16, "of one host");
        assert!(
            list.skipped[0].reason.contains("a.example"),
            "{:?}",
            list.skipped[0]
        );
        let twice = "udp://a.example:1\n".repeat(100) + "udp://b.example:1\n";
        let list = parse_from(ListOrigin::Public, "list", &twice).unwrap();
        assert!(list.skipped.is_empty(), "duplicates are no load");
        assert_eq!(list.duplicates.len(), 99);
    }

    #[test]
    fn names_cannot_control_a_terminal() {
        let text = "- {uri: \"udp://a.example:1\", name: \"a\\u001b[31m\\nb\\u0000\"}\n";
        let list = parse("list", text).unwrap();
        assert_eq!(list.forwarders[0].name(), "a[31mb");
        let list = parse(
            "list",
            "- {uri: \"udp://a.example:1\", name: \"\\u001b\"}\n",
        )
        .unwrap();
        assert_eq!(list.forwarders[0].name(), "a.example:1");
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
