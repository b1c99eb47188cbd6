//! Entry points for fuzzers: every parser of untrusted bytes. For no other use.

use crate::access;
use crate::client::gunzip;
use crate::serve::http::request::{MAX_HEAD, Parsed, header_lines, parse};
use crate::snapshot;

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
