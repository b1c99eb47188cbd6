//! Entry points for fuzzers, which parse untrusted bytes. Nothing else should call them.

use crate::cloud::url::Url;
use crate::cloud::xml;
use crate::{azure, gcs, s3, sftp, webdav};

/// Parses the bytes as a page of a bucket's listing, as a cursor and as an error response.
pub fn bucket(bytes: &[u8]) {
    for prefix in [&b""[..], b"p/"] {
        s3::fuzz_listing(bytes, prefix);
    }
    // The parsers of error responses.
    let _ = (xml::find(bytes, "Code"), xml::is_complete(bytes));
}

/// Parses a page of a container's listing, a block list, and the bytes as a cursor.
pub fn container(bytes: &[u8]) {
    for prefix in [&b""[..], b"p/"] {
        azure::fuzz_listing(bytes, prefix);
    }
    azure::fuzz_block_list(bytes);
}

/// Parses a page of a Google bucket's listing, and the bytes as a cursor.
pub fn objects(bytes: &[u8]) {
    for prefix in [&b""[..], b"p/"] {
        gcs::fuzz_listing(bytes, prefix);
    }
}

/// Parses a WebDAV server's description of a folder.
pub fn folder(bytes: &[u8]) {
    webdav::fuzz_multistatus(bytes);
}

/// Parses packets of an SFTP server.
pub fn packets(bytes: &[u8]) {
    sftp::fuzz_packets(bytes);
}

/// Parses a URL. One with credentials is refused, and the error does not repeat them.
pub fn location(bytes: &[u8]) {
    const SECRET: &str = "SECRET-OF-A-USER";
    let with = [b"s3://user:", SECRET.as_bytes(), b"@", bytes].concat();
    for url in [bytes, &with] {
        if let Err(error) = Url::parse(url) {
            assert!(!error.to_string().contains(SECRET), "{error}");
        }
    }
}
