//! What reads bytes that others wrote, for fuzzers. Nothing else should call it.

use crate::access;
use crate::forward::unpacked;
use crate::serve::http::request::{MAX_HEAD, Parsed, lines, parse};
use crate::snapshot;

/// Reads as many HTTP requests as there are, one after the other.
pub fn request(mut bytes: &[u8]) {
    while let Parsed::Request(request, length) = parse(bytes) {
        assert!((4..=MAX_HEAD + 4).contains(&length));
        assert!(lines(request.headers).all(|(name, _)| name.len() <= length));
        bytes = &bytes[length..];
    }
}

/// Unpacks the gzip of another tracker's answer.
pub fn unpack(bytes: &[u8]) {
    let _ = unpacked(bytes);
}

/// Reads a list of torrents.
pub fn torrents(text: &str) {
    if let Err((line, _)) = access::parse(text) {
        assert!(line > 0);
    }
}

/// Reads a snapshot: the bytes as a file, and as the body of one that is whole.
pub fn snapshot(bytes: &[u8]) {
    snapshot::try_to_read(bytes);
}
