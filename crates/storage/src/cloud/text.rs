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

/// Returns an error with its sources: the outermost says only that a request failed.
pub(crate) fn error_chain(error: &dyn std::error::Error) -> String {
    let mut message = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        let inner_message = inner.to_string();
        if !message.contains(&inner_message) {
            message = format!("{message}: {inner_message}");
        }
        source = inner.source();
    }
    message
}

/// Returns lower-case hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    let digit = |half: u8| char::from(b"0123456789abcdef"[usize::from(half)]);
    let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    digits.map(digit).collect()
}
