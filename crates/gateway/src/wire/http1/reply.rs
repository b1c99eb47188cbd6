//! Parses the head of an upstream's response.

use std::mem::MaybeUninit;

use bytes::{Bytes, BytesMut};
use http::header::{CONTENT_LENGTH, TRANSFER_ENCODING};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use memchr::memchr_iter;

use super::head::{MAX_HEAD, MAX_LINES, digits, keep_alive};

/// Head of an upstream's response.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Reply {
    /// The status.
    pub status: StatusCode,
    /// The headers. Their values share the buffer that they were read from.
    pub headers: HeaderMap,
    /// Framing of the body.
    pub end: ReplyEnd,
    /// Whether the connection can be reused.
    pub keep_alive: bool,
}

/// Framing of a response body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyEnd {
    /// Ends after this number of bytes.
    Length(u64),
    /// Ends with the last chunk.
    Chunked,
    /// Ends with the connection.
    Close,
}

/// Takes the head of the next response from `input`, once it is complete. Interim responses are
/// skipped.
///
/// # Errors
/// A message about the malformed response. The connection must be closed then.
///
/// ```
/// # use headworks_gateway::wire::http1::{ReplyEnd, take_reply};
/// let mut input = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}".into();
/// let reply = take_reply(&mut input).unwrap().unwrap();
/// assert_eq!((reply.status.as_u16(), reply.end), (200, ReplyEnd::Length(2)));
/// assert_eq!(&input[..], b"{}");
/// ```
pub fn take_reply(input: &mut BytesMut) -> Result<Option<Reply>, String> {
    loop {
        let Some(end) = end(input) else {
            let too_long = input.len() > MAX_HEAD;
            return too_long
                .then(|| Err("the head of its answer has no end".to_owned()))
                .transpose();
        };
        let reply = read(&input.split_to(end).freeze())?;
        match reply.status.as_u16() {
            101 => return Err("it switches to another protocol (101), unasked".to_owned()),
            100..=199 => {}
            _ => return Ok(Some(reply)),
        }
    }
}

/// Finds the end of a head. Upstreams may end lines with a bare line feed.
fn end(bytes: &[u8]) -> Option<usize> {
    memchr_iter(b'\n', bytes).find_map(|at| match &bytes[at + 1..] {
        [b'\n', ..] => Some(at + 2),
        [b'\r', b'\n', ..] => Some(at + 3),
        _ => None,
    })
}

fn read(head: &Bytes) -> Result<Reply, String> {
    let mut lines = [const { MaybeUninit::uninit() }; MAX_LINES];
    let mut reply = httparse::Response::new(&mut []);
    let parsed = httparse::ParserConfig::default()
        .parse_response_with_uninit_headers(&mut reply, head, &mut lines);
    match parsed {
        Ok(httparse::Status::Complete(length)) if length == head.len() => {}
        Ok(_) => return Err("the head of its answer ends too early".to_owned()),
        Err(cause) => return Err(format!("its answer is no HTTP/1.1: {cause}")),
    }
    let status = StatusCode::from_u16(reply.code.unwrap_or(0));
    let status = status.map_err(|_| "its answer has no status".to_owned())?;
    let mut headers = HeaderMap::with_capacity(reply.headers.len() + OURS);
    for line in reply.headers.iter() {
        let name = HeaderName::from_bytes(line.name.as_bytes());
        let value = HeaderValue::from_maybe_shared(head.slice_ref(line.value));
        let (Ok(name), Ok(value)) = (name, value) else {
            return Err("a header line of its answer is none".to_owned());
        };
        headers.append(name, value);
    }
    let modern = reply.version == Some(1);
    let end = ends(status, &headers, modern)?;
    Ok(Reply {
        keep_alive: end != ReplyEnd::Close && keep_alive(&headers, modern) && !both(&headers),
        status,
        headers,
        end,
    })
}

/// Capacity for the headers that the gateway adds.
const OURS: usize = 8;

/// Whether a response has both a length and chunks. The length is ignored, and the connection is
/// not reused: the bytes after the body may belong to the other reading.
fn both(headers: &HeaderMap) -> bool {
    headers.contains_key(TRANSFER_ENCODING) && headers.contains_key(CONTENT_LENGTH)
}

fn ends(status: StatusCode, headers: &HeaderMap, modern: bool) -> Result<ReplyEnd, String> {
    if [StatusCode::NO_CONTENT, StatusCode::NOT_MODIFIED].contains(&status) {
        return Ok(ReplyEnd::Length(0));
    }
    let mut encodings = headers.get_all(TRANSFER_ENCODING).iter();
    if let Some(encoding) = encodings.next() {
        let chunked = encoding.as_bytes().eq_ignore_ascii_case(b"chunked");
        return match modern && chunked && encodings.next().is_none() {
            true => Ok(ReplyEnd::Chunked),
            false => Err("its answer has a `transfer-encoding` other than `chunked`".to_owned()),
        };
    }
    let mut lengths = headers.get_all(CONTENT_LENGTH).iter();
    let Some(told) = lengths.next() else {
        return Ok(ReplyEnd::Close);
    };
    match digits(told.as_bytes()) {
        Some(length) if lengths.all(|other| other == told) => Ok(ReplyEnd::Length(length)),
        _ => Err("the `content-length` of its answer is no number of bytes".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn take(text: &str) -> Result<Option<(Reply, usize)>, String> {
        let mut input = BytesMut::from(text);
        Ok(take_reply(&mut input)?.map(|reply| (reply, input.len())))
    }

    fn with(lines: &str) -> Result<Reply, String> {
        let taken = take(&format!("HTTP/1.1 200 OK\r\n{lines}\r\n"))?;
        Ok(taken.expect("its head is whole").0)
    }

    #[test]
    fn where_an_answer_ends() {
        let end = |lines: &str| with(lines).map(|reply| (reply.end, reply.keep_alive));
        assert_eq!(
            end("content-length: 7\r\n"),
            Ok((ReplyEnd::Length(7), true))
        );
        let twice = "content-length: 7\r\ncontent-length: 7\r\n";
        assert_eq!(end(twice), Ok((ReplyEnd::Length(7), true)));
        let close = "Connection: Close\r\ncontent-length: 7\r\n";
        assert_eq!(end(close), Ok((ReplyEnd::Length(7), false)));
        let chunked = "Transfer-Encoding: Chunked\r\n";
        assert_eq!(end(chunked), Ok((ReplyEnd::Chunked, true)));
        let both = format!("{chunked}content-length: 7\r\n");
        assert_eq!(end(&both), Ok((ReplyEnd::Chunked, false)));
        assert_eq!(end("x: 1\r\n"), Ok((ReplyEnd::Close, false)));
        let (none, _) = take("HTTP/1.1 204 \r\n\r\n").unwrap().unwrap();
        assert_eq!((none.end, none.keep_alive), (ReplyEnd::Length(0), true));
        let (old, _) = take("HTTP/1.0 200 OK\nContent-Length: 1\n\nx")
            .unwrap()
            .unwrap();
        assert_eq!((old.end, old.keep_alive), (ReplyEnd::Length(1), false));
    }

    #[test]
    fn what_is_no_answer_is_refused() {
        for lines in [
            "content-length: 5\r\ncontent-length: 6\r\n",
            "content-length: -5\r\n",
            "content-length: 5, 5\r\n",
            "transfer-encoding: gzip, chunked\r\n",
            "transfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n",
            "x y: 1\r\n",
        ] {
            assert!(with(lines).is_err(), "{lines:?}");
        }
        for text in [
            "SSH-2.0\r\n\r\n",
            "HTTP/1.1 99 X\r\n\r\n",
            "HTTP/2.0 200 OK\r\n\r\n",
            "HTTP/1.0 200 OK\r\ntransfer-encoding: chunked\r\n\r\n",
            "HTTP/1.1 101 Switching\r\nupgrade: x\r\n\r\n",
            "\r\n\r\n",
        ] {
            assert!(take(text).is_err(), "{text:?}");
        }
        assert!(take(&"x".repeat(MAX_HEAD + 1)).is_err());
    }

    #[test]
    fn interim_answers_are_passed_over_and_half_a_head_is_waited_for() {
        let text = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Hints\r\nlink: a\r\n\r\nHTTP/1.1 200 OK\r\n\r\nrest";
        for cut in 0..text.len() - 4 {
            assert!(take(&text[..cut]).unwrap().is_none(), "cut at {cut}");
        }
        let (reply, left) = take(text).unwrap().unwrap();
        assert_eq!((reply.status.as_u16(), left), (200, 4));
        assert!(!reply.headers.contains_key("link"));
    }

    proptest! {
        #[test]
        fn any_head_is_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200), lines in "([a-zA-Z-]{1,8}:[ -~]{0,8}(\r\n|\n)){0,5}") {
            let _ = take_reply(&mut BytesMut::from(&bytes[..]));
            let _ = with(&lines);
        }
    }
}
