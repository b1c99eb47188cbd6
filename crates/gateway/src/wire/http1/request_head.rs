//! Parses the head of a request.

use std::mem::MaybeUninit;
use std::sync::LazyLock;

use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_LENGTH, EXPECT, HOST, TRANSFER_ENCODING};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri};
use memchr::memchr_iter;
use memchr::memmem::Finder;

use crate::wire::Problem;

/// Largest head that is accepted.
pub const MAX_HEAD: usize = 64 << 10;
/// Most header lines that are accepted.
pub(super) const MAX_LINES: usize = 100;

static END: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(b"\r\n\r\n"));

/// Head of a request.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RequestHead {
    /// The method.
    pub method: Method,
    /// The request target.
    pub uri: Uri,
    /// The headers. Their values share the buffer that they were read from.
    pub headers: HeaderMap,
    /// Framing of the body.
    pub length: Length,
    /// Whether the connection stays open.
    pub keep_alive: bool,
    /// Whether the client understands chunked encoding, as all but HTTP/1.0 do.
    pub chunks: bool,
    /// Whether the client waits for `100 Continue` before it sends the body.
    pub expects_continue: bool,
}

/// Framing of a request body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Length {
    /// A body of this number of bytes.
    Known(u64),
    /// A chunked body.
    Chunked,
}

/// Finds the end of the head at the start of `bytes`. The first `seen` bytes were searched before.
#[must_use]
pub fn head_end(bytes: &[u8], seen: usize) -> Option<usize> {
    let from = seen.saturating_sub(3).min(bytes.len());
    END.find(&bytes[from..]).map(|at| from + at + 4)
}

/// Whether a head ends with bare line feeds. The regular end of the head would never arrive.
pub(crate) fn has_bare_line_end(bytes: &[u8], seen: usize) -> bool {
    let from = seen.saturating_sub(1).min(bytes.len());
    bytes[from..].windows(2).any(|two| two == b"\n\n")
}

/// Parses a head, including its empty line.
///
/// # Errors
/// A message for the client. The connection must be closed then.
///
/// ```
/// # use headworks_gateway::wire::http1::{Length, read_request_head};
/// let bytes = "POST /v1/messages HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n".into();
/// let head = read_request_head(&bytes).unwrap();
/// assert_eq!((head.uri.path(), head.length), ("/v1/messages", Length::Known(5)));
/// ```
pub fn read_request_head(bytes: &Bytes) -> Result<RequestHead, Problem> {
    // httparse accepts bare line feeds. Another parser in the chain may not, and would find the
    // headers at other places.
    if memchr_iter(b'\n', bytes).any(|at| at == 0 || bytes[at - 1] != b'\r') {
        return Err(bare_line_feed());
    }
    let mut lines = [const { MaybeUninit::uninit() }; MAX_LINES];
    let mut request = httparse::Request::new(&mut []);
    match request.parse_with_uninit_headers(bytes, &mut lines) {
        Ok(httparse::Status::Complete(length)) if length == bytes.len() => {}
        Ok(_) => return Err(bad("unexpected end of the request head")),
        Err(httparse::Error::TooManyHeaders) => return Err(head_too_large()),
        Err(cause) => return Err(bad(&format!("malformed request head: {cause}"))),
    }
    let (Some(method), Some(target), Some(version)) =
        (request.method, request.path, request.version)
    else {
        return Err(bad("missing request line"));
    };
    let method = Method::from_bytes(method.as_bytes()).map_err(|_| bad("invalid method"))?;
    let uri = Uri::from_maybe_shared(bytes.slice_ref(target.as_bytes()))
        .map_err(|cause| bad(&format!("invalid request target: {cause}")))?;
    let mut headers = HeaderMap::with_capacity(request.headers.len());
    for line in request.headers.iter() {
        let name = HeaderName::from_bytes(line.name.as_bytes());
        let value = HeaderValue::from_maybe_shared(bytes.slice_ref(line.value));
        let (Ok(name), Ok(value)) = (name, value) else {
            return Err(bad("malformed header line"));
        };
        headers.append(name, value);
    }
    let modern = version == 1;
    check_host(&headers, modern)?;
    Ok(RequestHead {
        length: length(&headers, modern)?,
        keep_alive: keep_alive(&headers, modern),
        chunks: modern,
        expects_continue: modern && list_contains(&headers, &EXPECT, b"100-continue"),
        method,
        uri,
        headers,
    })
}

/// The head is too long or has too many lines.
pub(crate) fn head_too_large() -> Problem {
    Problem::new(
        StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
        "head_too_large",
        format!(
            "request head too large: at most {} KiB and {MAX_LINES} lines",
            MAX_HEAD >> 10
        ),
    )
}

/// A line ends with a bare line feed.
pub(crate) fn bare_line_feed() -> Problem {
    bad("a line of the request head ends without a carriage return")
}

fn bad(message: &str) -> Problem {
    Problem::new(StatusCode::BAD_REQUEST, "bad_http", message)
}

fn check_host(headers: &HeaderMap, modern: bool) -> Result<(), Problem> {
    let hosts = headers.get_all(HOST).iter().count();
    match hosts {
        1 => Ok(()),
        0 if !modern => Ok(()),
        _ => Err(bad("expected exactly one `host` header")),
    }
}

/// Determines the framing of the body. A request with two lengths, or with a length and chunks, is
/// rejected: another parser could choose the other one (RFC 9112, 6.3).
fn length(headers: &HeaderMap, modern: bool) -> Result<Length, Problem> {
    let mut encodings = headers.get_all(TRANSFER_ENCODING).iter();
    let mut lengths = headers.get_all(CONTENT_LENGTH).iter();
    match (encodings.next(), lengths.next()) {
        (None, None) => Ok(Length::Known(0)),
        (None, Some(stated)) => {
            if lengths.any(|other| other != stated) {
                return Err(bad("conflicting `content-length` headers"));
            }
            parse_digits(stated.as_bytes())
                .map(Length::Known)
                .ok_or_else(|| bad("invalid `content-length`"))
        }
        (Some(_), Some(_)) => Err(bad("both `content-length` and `transfer-encoding`")),
        (Some(encoding), None) => {
            let chunked = encoding.as_bytes().eq_ignore_ascii_case(b"chunked");
            match modern && chunked && encodings.next().is_none() {
                true => Ok(Length::Chunked),
                false => Err(Problem::new(
                    StatusCode::NOT_IMPLEMENTED,
                    "bad_http",
                    "unsupported `transfer-encoding`: only `chunked` is supported",
                )),
            }
        }
    }
}

/// Parses a number of digits only: no sign, no list, no whitespace.
pub(super) fn parse_digits(text: &[u8]) -> Option<u64> {
    let plain = !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    plain.then(|| std::str::from_utf8(text).ok()?.parse().ok())?
}

pub(super) fn keep_alive(headers: &HeaderMap, modern: bool) -> bool {
    !list_contains(headers, &CONNECTION, b"close")
        && (modern || list_contains(headers, &CONNECTION, b"keep-alive"))
}

/// Whether a comma-separated header contains `word`.
fn list_contains(headers: &HeaderMap, name: &HeaderName, word: &[u8]) -> bool {
    let mut values = headers.get_all(name).iter();
    values.any(|value| {
        let mut words = value.as_bytes().split(|byte| *byte == b',');
        words.any(|listed| listed.trim_ascii().eq_ignore_ascii_case(word))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(text: &str) -> Result<RequestHead, Problem> {
        read_request_head(&Bytes::copy_from_slice(text.as_bytes()))
    }

    fn with(lines: &str) -> Result<RequestHead, Problem> {
        read(&format!("POST /a?b HTTP/1.1\r\nhost: x\r\n{lines}\r\n"))
    }

    #[test]
    fn a_request_is_read() {
        let head =
            with("X-A: 1\r\nx-a:2 \r\nContent-Length: 7\r\nexpect: 100-Continue\r\n").unwrap();
        assert_eq!((head.method.as_str(), head.uri.path()), ("POST", "/a"));
        assert_eq!(head.uri.query(), Some("b"));
        assert_eq!(head.length, Length::Known(7));
        assert!(head.keep_alive && head.chunks && head.expects_continue);
        let values: Vec<_> = head.headers.get_all("x-a").iter().collect();
        assert_eq!(values, ["1", "2"]);
        let old = read("GET / HTTP/1.0\r\n\r\n").unwrap();
        assert!(!old.keep_alive && !old.chunks);
        let kept = read("GET / HTTP/1.0\r\nconnection: x, Keep-Alive\r\n\r\n");
        assert!(kept.unwrap().keep_alive);
        assert!(!with("connection: close\r\n").unwrap().keep_alive);
        let whole = read("GET http://h:1/p HTTP/1.1\r\nhost: h\r\n\r\n").unwrap();
        assert_eq!(whole.uri.path(), "/p");
        let chunked = with("transfer-encoding: Chunked\r\n").unwrap();
        assert_eq!(chunked.length, Length::Chunked);
        let twice = with("content-length: 5\r\ncontent-length: 5\r\n").unwrap();
        assert_eq!(twice.length, Length::Known(5));
    }

    #[test]
    fn what_can_be_understood_in_two_ways_is_refused() {
        for lines in [
            "content-length: 5\r\ntransfer-encoding: chunked\r\n",
            "content-length: 5\r\ncontent-length: 6\r\n",
            "content-length: 5, 5\r\n",
            "content-length: +5\r\n",
            "content-length: 0x5\r\n",
            "content-length:\r\n",
            "content-length: 18446744073709551616\r\n",
            "content-length : 5\r\n",
            "transfer-encoding: chunked, chunked\r\n",
            "transfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n",
            "transfer-encoding: identity\r\n",
            "transfer-encoding: xchunked\r\n",
            "transfer-encoding:\x0bchunked\r\n",
            "x: 1\r\n folded\r\n",
            "x: 1\n",
            "x\r\n",
            ": 1\r\n",
            "x: a\0b\r\n",
            "host: y\r\n",
            " x: 1\r\n",
        ] {
            assert!(with(lines).is_err(), "{lines:?}");
        }
        for text in [
            "POST / HTTP/1.1\r\n\r\n",
            "POST / HTTP/1.0\r\ntransfer-encoding: chunked\r\n\r\n",
            "POST / HTTP/2.0\r\nhost: x\r\n\r\n",
            "POST /a b HTTP/1.1\r\nhost: x\r\n\r\n",
            "POST / HTTP/1.1\r\nhost: x\r\n\r\nmore",
            "POST\r\n\r\n",
            "",
        ] {
            assert!(read(text).is_err(), "{text:?}");
        }
        let many = with(&"x: 1\r\n".repeat(MAX_LINES)).unwrap_err();
        assert_eq!(many.status, StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE);
    }

    #[test]
    fn the_end_is_found_wherever_the_pieces_are_cut() {
        let text = b"GET / HTTP/1.1\r\nhost: x\r\n\r\nGET";
        for cut in 0..text.len() {
            let first = head_end(&text[..cut], 0);
            let end = first.or_else(|| head_end(text, cut));
            assert_eq!(end, Some(text.len() - 3), "cut at {cut}");
        }
    }

    proptest! {
        #[test]
        fn any_head_is_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200), lines in "([a-zA-Z-]{1,8}:[ -~]{0,8}(\r\n|\n)){0,5}") {
            let _ = read_request_head(&Bytes::from(bytes));
            let _ = with(&lines);
        }
    }
}
