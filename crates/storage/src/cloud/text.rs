//! Text in headers and errors.

use http::HeaderMap;

/// Returns a version as a quoted etag.
pub(crate) fn quoted_etag(version: &[u8]) -> String {
    format!("\"{}\"", version.escape_ascii())
}

/// Returns a header as text.
pub(crate) fn header_text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}
