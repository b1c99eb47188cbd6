//! Parses the head of a request.

use std::mem::MaybeUninit;
use std::sync::LazyLock;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri};
use memchr::memchr_iter;
use memchr::memmem::Finder;

use crate::HeadError;

/// Largest head that [`ServerConnection`](crate::ServerConnection) accepts.
pub const MAX_HEAD: usize = 64 << 10;
/// Most header lines that are accepted.
pub const MAX_LINES: usize = 100;

static END: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(b"\r\n\r\n"));

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

/// Framing of a request body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Length {
    /// A body of this number of bytes.
    Known(u64),
    /// A chunked body.
    Chunked,
}

/// Space for the header lines of one head, so that parsing allocates nothing.
#[derive(Debug)]
pub struct LineBuffer<'b>([MaybeUninit<httparse::Header<'b>>; MAX_LINES]);

impl Default for LineBuffer<'_> {
    #[inline]
    fn default() -> Self {
        LineBuffer([const { MaybeUninit::uninit() }; MAX_LINES])
    }
}

/// A request head that was checked, as slices of the bytes that it was read from.
///
/// ```
/// use headworks_h1::{Length, LineBuffer, RequestLines};
///
/// let bytes = b"GET /announce?port=1 HTTP/1.1\r\nHost: a\r\n\r\n";
/// let mut buffer = LineBuffer::default();
/// let lines = RequestLines::parse(bytes, &mut buffer)?;
/// assert_eq!((lines.method, lines.target), ("GET", "/announce?port=1"));
/// assert_eq!((lines.length, lines.keep_alive), (Length::Known(0), true));
/// # Ok::<(), headworks_h1::HeadError>(())
/// ```
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct RequestLines<'b, 'l> {
    /// The method.
    pub method: &'b str,
    /// The request target.
    pub target: &'b str,
    /// HTTP/1.1, not HTTP/1.0: the client understands chunks and interim responses.
    pub modern: bool,
    /// Framing of the body.
    pub length: Length,
    /// Whether the connection stays open.
    pub keep_alive: bool,
    /// Whether the client waits for `100 Continue` before it sends the body.
    pub expects_continue: bool,
    hosts: usize,
    lines: &'l [httparse::Header<'b>],
}

impl<'b, 'l> RequestLines<'b, 'l> {
    /// Parses a head, including its empty line.
    ///
    /// # Errors
    /// If it is malformed, or could be understood in two ways.
    pub fn parse(bytes: &'b [u8], buffer: &'l mut LineBuffer<'b>) -> Result<Self, HeadError> {
        // httparse accepts bare line feeds. Another parser in the chain may not, and would find the
        // headers at other places.
        if memchr_iter(b'\n', bytes).any(|at| at == 0 || bytes[at - 1] != b'\r') {
            return Err(HeadError::BareLineFeed);
        }
        let mut request = httparse::Request::new(&mut []);
        let parsed = request.parse_with_uninit_headers(bytes, &mut buffer.0)?;
        let (Some(method), Some(target), Some(version)) =
            (request.method, request.path, request.version)
        else {
            return Err(HeadError::Malformed("missing request line"));
        };
        if parsed != httparse::Status::Complete(bytes.len()) {
            return Err(HeadError::Malformed("unexpected end"));
        }
        let lines: &'l [httparse::Header<'b>] = request.headers;
        let modern = version == 1;
        let mut framing = Framing::default();
        let (mut close, mut persist, mut expects_continue, mut hosts) = (false, false, false, 0);
        for line in lines {
            // Most lines have none of these lengths, so most names are not compared at all.
            let is = |name: &str| line.name.eq_ignore_ascii_case(name);
            match line.name.len() {
                4 if is("host") => hosts += 1,
                6 if is("expect") => expects_continue |= lists(line.value, b"100-continue"),
                10 if is("connection") => {
                    close |= lists(line.value, b"close");
                    persist |= lists(line.value, b"keep-alive");
                }
                14 if is("content-length") => framing.add_length(line.value)?,
                17 if is("transfer-encoding") => framing.add_encoding(line.value, modern)?,
                _ => {}
            }
        }
        Ok(RequestLines {
            method,
            target,
            modern,
            length: framing.length()?,
            keep_alive: !close && (modern || persist),
            expects_continue: modern && expects_continue,
            hosts,
            lines,
        })
    }

    /// Requires exactly one `host`, as RFC 9112 does of HTTP/1.1. For a server that answers for any
    /// host, this does not matter.
    ///
    /// # Errors
    /// If the header is missing in HTTP/1.1, or occurs twice.
    pub fn require_host(&self) -> Result<(), HeadError> {
        match self.hosts {
            1 => Ok(()),
            0 if !self.modern => Ok(()),
            _ => Err(HeadError::Host),
        }
    }

    /// Names and values of the header lines.
    pub fn headers(&self) -> impl Iterator<Item = (&'b str, &'b [u8])> + use<'b, 'l> {
        self.lines.iter().map(|line| (line.name, line.value))
    }
}

/// The length of the body, as the headers state it.
#[derive(Default)]
struct Framing<'b> {
    stated: Option<&'b [u8]>,
    chunked: bool,
}

impl<'b> Framing<'b> {
    fn add_length(&mut self, value: &'b [u8]) -> Result<(), HeadError> {
        match self.stated.replace(value) {
            Some(before) if before != value => Err(HeadError::ConflictingLengths),
            _ => Ok(()),
        }
    }

    fn add_encoding(&mut self, value: &[u8], modern: bool) -> Result<(), HeadError> {
        let second = std::mem::replace(&mut self.chunked, true);
        match modern && !second && value.eq_ignore_ascii_case(b"chunked") {
            true => Ok(()),
            false => Err(HeadError::Encoding),
        }
    }

    fn length(&self) -> Result<Length, HeadError> {
        match (self.stated, self.chunked) {
            (None, false) => Ok(Length::Known(0)),
            (None, true) => Ok(Length::Chunked),
            (Some(_), true) => Err(HeadError::LengthAndEncoding),
            (Some(stated), false) => {
                let length = parse_digits(stated).ok_or(HeadError::InvalidLength)?;
                Ok(Length::Known(length))
            }
        }
    }
}

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

/// Parses a head, including its empty line, for a server that has a URI and a host.
///
/// # Errors
/// If it is malformed, or could be understood in two ways.
///
/// ```
/// # use headworks_h1::{Length, read_request_head};
/// let bytes = "POST /v1/messages HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n".into();
/// let head = read_request_head(&bytes).unwrap();
/// assert_eq!((head.uri.path(), head.length), ("/v1/messages", Length::Known(5)));
/// ```
pub fn read_request_head(bytes: &Bytes) -> Result<RequestHead, HeadError> {
    let mut buffer = LineBuffer::default();
    let lines = RequestLines::parse(bytes, &mut buffer)?;
    lines.require_host()?;
    let method = Method::from_bytes(lines.method.as_bytes());
    let method = method.map_err(|_| HeadError::Malformed("invalid method"))?;
    let uri = Uri::from_maybe_shared(bytes.slice_ref(lines.target.as_bytes()));
    let uri = uri.map_err(|cause| HeadError::Target(cause.to_string()))?;
    let headers = header_map(bytes, lines.lines, 0);
    Ok(RequestHead {
        method,
        uri,
        headers: headers.ok_or(HeadError::Malformed("invalid header line"))?,
        length: lines.length,
        keep_alive: lines.keep_alive,
        chunks: lines.modern,
        expects_continue: lines.expects_continue,
    })
}

/// Collects header lines whose values share `bytes`, with capacity for `more`. `None` if a line is
/// invalid.
pub(crate) fn header_map(
    bytes: &Bytes,
    lines: &[httparse::Header<'_>],
    more: usize,
) -> Option<HeaderMap> {
    let mut headers = HeaderMap::with_capacity(lines.len() + more);
    for line in lines {
        let name = HeaderName::from_bytes(line.name.as_bytes()).ok()?;
        let value = HeaderValue::from_maybe_shared(bytes.slice_ref(line.value)).ok()?;
        headers.append(name, value);
    }
    Some(headers)
}

/// Parses a number of digits only: no sign, no list, no whitespace.
pub(crate) fn parse_digits(text: &[u8]) -> Option<u64> {
    let plain = !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    plain.then(|| std::str::from_utf8(text).ok()?.parse().ok())?
}

/// Whether a comma-separated list contains `word`.
pub(crate) fn lists(value: &[u8], word: &[u8]) -> bool {
    let mut words = value.split(|byte| *byte == b',');
    words.any(|listed| listed.trim_ascii().eq_ignore_ascii_case(word))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(text: &str) -> Result<RequestHead, HeadError> {
        read_request_head(&Bytes::copy_from_slice(text.as_bytes()))
    }

    fn with(lines: &str) -> Result<RequestHead, HeadError> {
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
    fn an_ambiguous_request_is_refused() {
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
        assert_eq!(many, HeadError::TooLarge);
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
