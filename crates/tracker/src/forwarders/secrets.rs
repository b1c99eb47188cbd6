//! Texts that are shown, without the secrets of the URIs that they are about.
//!
//! A private tracker repeats the passkey in its messages, and a list may be published behind a
//! password. Pages, logs and terminals show such texts to people who must not know them.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use headworks_tracker_wire::percent_decode;
use http::{HeaderValue, Uri};

/// The length from which a part of a URI may be a secret.
const MIN_SECRET: usize = 4;
/// The length from which such a part is a passkey that must not be sent elsewhere. Shorter parts
/// are words, such as `tracker`, that other servers use as well.
const MIN_PASSKEY: usize = 8;
/// The longest text shown, in characters.
const MAX_TEXT: usize = 300;
/// The text in place of a secret.
const REDACTED: &str = "[redacted]";

/// Returns a text from the server at `uri` as it may be shown: bounded, without control characters
/// and without the URI's query values, path segments, user and password.
pub(crate) fn redact(uri: &Uri, authorization: Option<&HeaderValue>, text: &str) -> String {
    // A secret must not be hidden from the search by a control character inside it.
    let printable = text.chars().filter(|one| !one.is_control());
    let mut text: String = printable.collect();
    for secret in secrets(uri, authorization) {
        text = text.replace(&secret, REDACTED);
    }
    text.chars().take(MAX_TEXT).collect()
}

/// Whether a redirect repeats a part of the URI `of` that may be a passkey, however either of them
/// is written.
pub(crate) fn repeats_secret(of: &Uri, authorization: Option<&HeaderValue>, to: &Uri) -> bool {
    let target = to.path_and_query().map_or("", |target| target.as_str());
    let targets = [Some(target.to_owned()), decoded(target)];
    let mut secrets = secrets(of, authorization);
    secrets.retain(|secret| secret.len() >= MIN_PASSKEY);
    let mut targets = targets.iter().flatten();
    targets.any(|target| secrets.iter().any(|secret| target.contains(secret)))
}

/// Returns the parts of a URI that may be secrets, as they are written and decoded, longest first.
fn secrets(uri: &Uri, authorization: Option<&HeaderValue>) -> Vec<String> {
    let is_common = |part: &&str| ["announce", "announce.php", "scrape"].contains(part);
    let segments = uri.path().split('/').filter(|part| !is_common(part));
    let pairs = uri.query().unwrap_or_default().split('&');
    let values = pairs.map(|pair| pair.split_once('=').map_or(pair, |(_, value)| value));
    let mut found: Vec<String> = Vec::new();
    for part in segments.chain(values) {
        found.extend([part.to_owned()].into_iter().chain(decoded(part)));
    }
    let encoded = authorization.and_then(|header| header.to_str().ok()?.strip_prefix("Basic "));
    if let Some(encoded) = encoded {
        let plain = BASE64_STANDARD.decode(encoded).unwrap_or_default();
        let plain = String::from_utf8_lossy(&plain);
        found.extend(plain.split(':').map(str::to_owned));
        found.extend([plain.to_string(), encoded.to_owned()]);
    }
    found.retain(|part| part.len() >= MIN_SECRET);
    found.sort_by_key(|part| std::cmp::Reverse(part.len()));
    found
}

/// Returns a part of a URI without percent-encoding; `None` if that is malformed.
fn decoded(part: &str) -> Option<String> {
    let mut plain = vec![0; part.len()];
    let length = percent_decode(part.as_bytes(), &mut plain)?;
    Some(String::from_utf8_lossy(&plain[..length]).into_owned())
}

/// Returns the URL of a list as it may be shown: without user, password and query, and without path
/// segments that look like a passkey.
pub(crate) fn shown_url(source: &str) -> String {
    let plain = source.split(['?', '#']).next().unwrap_or_default();
    let (scheme, rest) = plain.split_once("://").unwrap_or(("", plain));
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    let host = authority.rsplit('@').next().unwrap_or_default();
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    let is_secret = |part: &str| {
        let digits = part.bytes().any(|byte| byte.is_ascii_digit());
        part.len() >= 8 && digits && part.bytes().all(is_word)
    };
    let path = path.split('/').map(|part| match is_secret(part) {
        true => REDACTED,
        false => part,
    });
    let path: Vec<&str> = path.collect();
    format!("{scheme}://{host}/{}", path.join("/"))
}

#[cfg(test)]
mod tests {
    use crate::forwarders::{Forwarder, ForwarderState, shown_url};

    #[test]
    fn a_message_shows_no_secret_of_the_forwarder() {
        let uri = "http://me:pa%40ss@a.example/k3y0k3y0/announce?passkey=s3cr%2Bt99&x=1";
        let forwarder = ForwarderState::new(&Forwarder::at(uri), "a").unwrap();
        for secret in [
            "k3y0k3y0",
            "s3cr%2Bt99",
            "s3cr+t99",
            "pa@ss",
            "me:pa@ss",
            "s3cr\u{1b}+t99",
        ] {
            let shown = forwarder.redact(&format!("unknown key {secret}, 1 of 2"));
            assert!(
                shown.starts_with("unknown key ") && shown.ends_with(", 1 of 2"),
                "{shown}"
            );
            assert!(shown.contains("[redacted]"), "{secret}: {shown}");
        }
        let shown = forwarder.redact("x\u{1b}[31mRED\r\nforged line\u{9b}");
        assert_eq!(shown, "x[31mREDforged line");
        assert_eq!(forwarder.redact(&"A".repeat(300_000)).len(), 300);
    }

    #[test]
    fn the_url_of_a_list_is_shown_without_secrets() {
        for (url, shown) in [
            (
                "http://me:secret@a.example:1/s3cr3tpasskey99/l.txt?token=s",
                "http://a.example:1/[redacted]/l.txt",
            ),
            (
                "https://raw.example/ngosang/trackerslist/master/trackers_all.txt",
                "https://raw.example/ngosang/trackerslist/master/trackers_all.txt",
            ),
            ("http://a.example", "http://a.example/"),
        ] {
            assert_eq!(shown_url(url), shown);
        }
    }
}
