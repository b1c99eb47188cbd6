//! What reads bytes that others wrote, for fuzzers. Nothing else should call it.

use crate::cloud::url::Url;
use crate::cloud::xml;
use crate::{azure, gcs, s3, sftp, webdav};

/// Reads a page of a bucket's listing, and the bytes as a cursor.
pub fn bucket(bytes: &[u8]) {
    for prefix in [&b""[..], b"p/"] {
        s3::fuzz_listing(bytes, prefix);
    }
    // What errors are made of.
    let _ = (xml::find(bytes, "Code"), xml::is_complete(bytes));
}

/// Reads a page of a container's listing, a list of blocks, and the bytes as a cursor.
pub fn container(bytes: &[u8]) {
    for prefix in [&b""[..], b"p/"] {
        azure::fuzz_listing(bytes, prefix);
    }
    azure::fuzz_block_list(bytes);
}

/// Reads a page of the listing of a bucket at Google, and the bytes as a cursor.
pub fn objects(bytes: &[u8]) {
    for prefix in [&b""[..], b"p/"] {
        gcs::fuzz_listing(bytes, prefix);
    }
}

/// Reads what a WebDAV server says of a folder.
pub fn folder(bytes: &[u8]) {
    webdav::fuzz_multistatus(bytes);
}

/// Reads what an SFTP server sends.
pub fn packets(bytes: &[u8]) {
    sftp::fuzz_packets(bytes);
}

/// Reads a URL. One with credentials is refused, and they are not repeated.
pub fn location(bytes: &[u8]) {
    const SECRET: &str = "SECRET-OF-A-USER";
    let with = [b"s3://user:", SECRET.as_bytes(), b"@", bytes].concat();
    for url in [bytes, &with] {
        if let Err(error) = Url::parse(url) {
            assert!(!error.to_string().contains(SECRET), "{error}");
        }
    }
}
