//! A parser for the head of an HTTP/1.1 request, as far as a tracker needs it.

use memchr::memmem;

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

/// Parses the first request in `bytes`.
pub(crate) fn parse(bytes: &[u8]) -> Parsed<'_> {
    let Some(end) = memmem::find(bytes, b"\r\n\r\n") else {
        if bytes.len() >= MAX_HEAD {
            return Parsed::Invalid(431, "the request head is too long");
        }
        return Parsed::Partial;
    };
    if end > MAX_HEAD {
        return Parsed::Invalid(431, "the request head is too long");
    }
    let head = &bytes[..end];
    let line_end = memmem::find(head, b"\r\n").unwrap_or(head.len());
    let (line, headers) = head.split_at(line_end);
    let Some((method, target, version)) = request_line(line) else {
        return Parsed::Invalid(400, "malformed request line");
    };
    let head_only = match method {
        b"GET" => false,
        b"HEAD" => true,
        _ => return Parsed::Invalid(405, "only GET and HEAD are supported"),
    };
    let mut keep_alive = match version {
        b"HTTP/1.1" => true,
        b"HTTP/1.0" => false,
        _ => return Parsed::Invalid(505, "only HTTP/1.0 and HTTP/1.1 are supported"),
    };
    if !are_well_formed(headers) {
        return Parsed::Invalid(400, "malformed header line");
    }
    for (name, value) in header_lines(headers) {
        if name.eq_ignore_ascii_case(b"connection") {
            keep_alive = is_persistent(value, keep_alive);
        } else if has_body(name, value) {
            return Parsed::Invalid(400, "a request must not have a body");
        }
    }
    let (path, query) = split_target(target);
    let request = Request {
        path,
        query,
        keep_alive,
        head_only,
        headers,
    };
    Parsed::Request(request, end + 4)
}

fn request_line(line: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let mut words = line.split(|byte| *byte == b' ');
    let words = (words.next()?, words.next()?, words.next()?, words.next());
    let (method, target, version, None) = words else {
        return None;
    };
    (!target.is_empty()).then_some((method, target, version))
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

/// Returns the names and values of the header lines.
pub(crate) fn header_lines(headers: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    headers.split(|byte| *byte == b'\n').filter_map(|line| {
        let at = memchr::memchr(b':', line)?;
        Some((&line[..at], line[at + 1..].trim_ascii()))
    })
}

/// Whether every header line is a name, a colon and a value, and ends as it must. A bare line feed,
/// a space before the colon and a folded line mean one thing to a proxy and another here, and so
/// would let a client set the headers that only the proxy may set.
fn are_well_formed(headers: &[u8]) -> bool {
    let Some(lines) = headers.strip_prefix(b"\r\n") else {
        return headers.is_empty();
    };
    let mut lines = lines.split(|byte| *byte == b'\n').peekable();
    while let Some(line) = lines.next() {
        let line = match lines.peek() {
            Some(_) => line.strip_suffix(b"\r"),
            None => Some(line),
        };
        let named = line.and_then(|line| Some((line, memchr::memchr(b':', line)?)));
        let Some((line, colon)) = named else {
            return false;
        };
        let is_name = |byte: &u8| byte.is_ascii_graphic();
        if colon == 0 || !line[..colon].iter().all(is_name) || memchr::memchr(b'\r', line).is_some()
        {
            return false;
        }
    }
    true
}

fn is_persistent(value: &[u8], default: bool) -> bool {
    let words = value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
    words.fold(default, |keep, word| {
        if word.eq_ignore_ascii_case(b"close") {
            false
        } else {
            keep || word.eq_ignore_ascii_case(b"keep-alive")
        }
    })
}

fn has_body(name: &[u8], value: &[u8]) -> bool {
    (name.eq_ignore_ascii_case(b"content-length") && value != b"0")
        || name.eq_ignore_ascii_case(b"transfer-encoding")
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
            (400, "GET / a HTTP/1.1\r\n\r\n"),
            (505, "GET / HTTP/2.0\r\n\r\n"),
            (400, "GET / HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello"),
            (400, "GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"),
            (
                400,
                "GET / HTTP/1.1\r\nA: b\nX-Forwarded-For: 1.1.1.1\r\n\r\n",
            ),
            (
                400,
                "GET / HTTP/1.1\r\nA: b\rX-Forwarded-For: 1.1.1.1\r\n\r\n",
            ),
            (400, "GET / HTTP/1.1\r\nX-Forwarded-For : 1.1.1.1\r\n\r\n"),
            (
                400,
                "GET / HTTP/1.1\r\nA: b\r\n X-Forwarded-For: 1.1.1.1\r\n\r\n",
            ),
            (400, "GET / HTTP/1.1\r\nA: b\r\n\tc: 1.1.1.1\r\n\r\n"),
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
