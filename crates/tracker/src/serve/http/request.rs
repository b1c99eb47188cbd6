//! The head of an HTTP/1 request, as far as a tracker needs it.

use headworks_h1::{HeadError, Length, LineBuffer, RequestLines, head_end};

/// The longest head accepted. A scrape of a hundred torrents fits.
pub(crate) const MAX_HEAD: usize = 16 * 1024;

/// A request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Request<'a> {
    /// The path, percent-encoded.
    pub(crate) path: &'a [u8],
    /// The query without its question mark.
    pub(crate) query: &'a [u8],
    /// Whether the connection stays open.
    pub(crate) keep_alive: bool,
    /// Whether the response has no body (`HEAD`).
    pub(crate) head_only: bool,
    /// The header lines, not parsed.
    pub(crate) headers: &'a [u8],
}

/// The result of parsing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Parsed<'a> {
    /// A request and its length in bytes.
    Request(Request<'a>, usize),
    /// The beginning of a request.
    Partial,
    /// An invalid request: the status and the message of the response.
    Invalid(u16, &'static str),
}

/// Parses the first request in `bytes`. Malformed heads are rejected as strictly as in the gateway:
/// a proxy in front must not read other headers than this server does.
pub(crate) fn parse(bytes: &[u8]) -> Parsed<'_> {
    let Some(end) = head_end(bytes, 0).filter(|end| *end <= MAX_HEAD) else {
        return match bytes.len() >= MAX_HEAD {
            true => Parsed::Invalid(431, "the request head is too long"),
            false => Parsed::Partial,
        };
    };
    let mut buffer = LineBuffer::default();
    let lines = match RequestLines::parse(&bytes[..end], &mut buffer) {
        Ok(lines) => lines,
        Err(HeadError::Version) => {
            return Parsed::Invalid(505, "only HTTP/1.0 and HTTP/1.1 are supported");
        }
        Err(HeadError::TooLarge) => return Parsed::Invalid(431, "too many header lines"),
        Err(_) => return Parsed::Invalid(400, "malformed request head"),
    };
    let head_only = match lines.method {
        "GET" => false,
        "HEAD" => true,
        _ => return Parsed::Invalid(405, "only GET and HEAD are supported"),
    };
    if lines.length != Length::Known(0) {
        return Parsed::Invalid(400, "a request must not have a body");
    }
    let (path, query) = split_target(lines.target.as_bytes());
    let line_end = memchr::memchr(b'\n', bytes).unwrap_or(end);
    let request = Request {
        path,
        query,
        keep_alive: lines.keep_alive,
        head_only,
        headers: &bytes[line_end..end],
    };
    Parsed::Request(request, end)
}

/// Splits a target into path and query. Proxies send the whole URI as target.
fn split_target(target: &[u8]) -> (&[u8], &[u8]) {
    let target = match target.strip_prefix(b"http://") {
        Some(rest) => &rest[memchr::memchr(b'/', rest).unwrap_or(rest.len())..],
        None => target,
    };
    match memchr::memchr(b'?', target) {
        Some(at) => (&target[..at], &target[at + 1..]),
        None => (target, &[]),
    }
}

/// Returns the names and values of header lines that [`parse`] has checked.
pub(crate) fn header_lines(headers: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    headers.split(|byte| *byte == b'\n').filter_map(|line| {
        let at = memchr::memchr(b':', line)?;
        Some((&line[..at], line[at + 1..].trim_ascii()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn request(text: &str) -> Request<'_> {
        match parse(text.as_bytes()) {
            Parsed::Request(request, length) if length == text.len() => request,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn requests_are_parsed() {
        let read = request("GET /announce?a=1&b=?2 HTTP/1.1\r\nHost: x\r\nUser-Agent: y\r\n\r\n");
        assert_eq!(
            (read.path, read.query),
            (&b"/announce"[..], &b"a=1&b=?2"[..])
        );
        assert!(read.keep_alive && !read.head_only);
        assert!(!request("GET / HTTP/1.0\r\n\r\n").keep_alive);
        assert!(request("GET / HTTP/1.0\r\nconnection: Keep-Alive\r\n\r\n").keep_alive);
        assert!(!request("GET / HTTP/1.1\r\nConnection: foo, close\r\n\r\n").keep_alive);
        assert_eq!(request("GET http://h:1/p?q HTTP/1.1\r\n\r\n").path, b"/p");
        assert!(request("HEAD / HTTP/1.1\r\n\r\n").head_only);
    }

    #[test]
    fn invalid_requests_get_their_status() {
        assert_eq!(parse(b"GET / HTTP/1.1\r\nHost: x\r\n"), Parsed::Partial);
        for (status, text) in [
            (405, "POST / HTTP/1.1\r\n\r\n"),
            (400, "GET /\r\n\r\n"),
            (505, "GET / a HTTP/1.1\r\n\r\n"),
            (505, "GET / HTTP/2.0\r\n\r\n"),
            (400, "GET / HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello"),
            (400, "GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"),
            // Three ways to set a header that a proxy in front does not see.
            (
                400,
                "GET / HTTP/1.1\r\nA: b\nX-Forwarded-For: 1.2.3.4\r\n\r\n",
            ),
            (400, "GET / HTTP/1.1\r\nX-Forwarded-For : 1.2.3.4\r\n\r\n"),
            (
                400,
                "GET / HTTP/1.1\r\nA: b\r\n X-Forwarded-For: 1.2.3.4\r\n\r\n",
            ),
            (
                400,
                "GET / HTTP/1.1\r\nA: b\rX-Forwarded-For: 1.2.3.4\r\n\r\n",
            ),
            (400, "GET / HTTP/1.1\r\nA: b\r\n\tc: 1.2.3.4\r\n\r\n"),
            (400, "GET / HTTP/1.1\r\nno colon\r\n\r\n"),
        ] {
            let Parsed::Invalid(got, _) = parse(text.as_bytes()) else {
                panic!("{text}")
            };
            assert_eq!(got, status, "{text}");
        }
        assert!(matches!(parse(&[b'a'; MAX_HEAD]), Parsed::Invalid(431, _)));
    }

    proptest! {
        #[test]
        fn the_parser_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..200), text in "(GET|HEAD|POST)? ?[ -~\r\n]{0,60}(\r\n\r\n)?") {
            parse(&bytes);
            parse(text.as_bytes());
        }
    }
}
