//! Reasons to reject a request head.

use crate::request_head::{MAX_HEAD, MAX_LINES};
use http::StatusCode;

/// Reason why the head of a request is rejected. The connection must be closed then: where the next
/// request begins is no longer known.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HeadError {
    /// Too many bytes or lines.
    #[error("request head too large: at most {} KiB and {MAX_LINES} lines", MAX_HEAD >> 10)]
    TooLarge,
    /// A line feed without a carriage return. Parsers disagree about whether it ends a line.
    #[error("a line of the request head ends without a carriage return")]
    BareLineFeed,
    /// Not a request head.
    #[error("malformed request head: {0}")]
    Malformed(&'static str),
    /// Neither HTTP/1.0 nor HTTP/1.1.
    #[error("HTTP version not supported: only HTTP/1.0 and HTTP/1.1 are")]
    Version,
    /// The target is no URI.
    #[error("invalid request target: {0}")]
    Target(String),
    /// No `host`, or several.
    #[error("expected exactly one `host` header")]
    Host,
    /// Two different lengths.
    #[error("conflicting `content-length` headers")]
    ConflictingLengths,
    /// A length that is not a number.
    #[error("invalid `content-length`")]
    InvalidLength,
    /// A length and an encoding: another parser could choose the other one (RFC 9112, 6.3).
    #[error("both `content-length` and `transfer-encoding`")]
    LengthAndEncoding,
    /// Any encoding but one `chunked`.
    #[error("unsupported `transfer-encoding`: only `chunked` is supported")]
    Encoding,
}

impl HeadError {
    /// The status to answer with.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        match self {
            HeadError::TooLarge => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            HeadError::Encoding => StatusCode::NOT_IMPLEMENTED,
            HeadError::Version => StatusCode::HTTP_VERSION_NOT_SUPPORTED,
            _ => StatusCode::BAD_REQUEST,
        }
    }
}

impl From<httparse::Error> for HeadError {
    fn from(error: httparse::Error) -> Self {
        HeadError::Malformed(match error {
            httparse::Error::TooManyHeaders => return HeadError::TooLarge,
            httparse::Error::Version => return HeadError::Version,
            httparse::Error::HeaderName => "invalid header name",
            httparse::Error::HeaderValue => "invalid header value",
            httparse::Error::NewLine => "invalid line ending",
            _ => "invalid request line",
        })
    }
}
