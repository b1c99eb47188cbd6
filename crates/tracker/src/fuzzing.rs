//! Entry points for fuzzers: every parser of untrusted bytes. For no other use.

use crate::access;
use crate::client::gunzip;
use crate::forwarders::{ListOrigin, parse_from};
use crate::serve::http::request::{MAX_HEAD, Parsed, header_lines, parse};
use crate::snapshot;
use crate::subscriptions;

/// Parses consecutive HTTP requests.
pub fn request(mut bytes: &[u8]) {
    while let Parsed::Request(request, length) = parse(bytes) {
        assert!((4..=MAX_HEAD + 4).contains(&length));
        assert!(header_lines(request.headers).all(|(name, _)| name.len() <= length));
        bytes = &bytes[length..];
    }
}

/// Decompresses another tracker's response.
pub fn decompress(bytes: &[u8]) {
    let _ = gunzip(bytes);
}

/// Parses a list of forwarders from a server on the internet. Nothing in it leads into a private
/// network, sets what only the operator may set, or exceeds the limits of such a list.
pub fn published_list(text: &str) {
    if let Ok(list) = parse_from(ListOrigin::Public, "list.txt", text) {
        assert!(list.forwarders.len() <= 1000);
        for forwarder in list.forwarders {
            assert!(forwarder.check().is_ok() && forwarder.published);
            assert!((forwarder.ip, forwarder.host, forwarder.name) == (None, None, None));
        }
    }
}

/// Reads the stored copy of a list. One that does not say where its list is from is not trusted.
pub fn list_copy(text: &str) {
    let trusted = text.starts_with("private ");
    if let Some(copy) = subscriptions::parse_copy("list.txt", text) {
        assert_eq!(copy.origin == ListOrigin::Private, trusted);
        assert!(!copy.list.forwarders.is_empty());
        let mut all = copy.list.forwarders.iter();
        assert!(all.all(|forwarder| forwarder.published != trusted));
    }
}

/// Parses a list of torrents.
pub fn torrents(text: &str) {
    if let Err((line, _)) = access::parse(text) {
        assert!(line > 0);
    }
}

/// Decodes a snapshot: the bytes as a file, and as the body of a file with a valid checksum.
pub fn snapshot(bytes: &[u8]) {
    snapshot::try_decode(bytes);
}
