//! Parses the head of a response.

use std::mem::MaybeUninit;

use bytes::{Bytes, BytesMut};
use http::header::{CONNECTION, CONTENT_LENGTH, TRANSFER_ENCODING};
use http::{HeaderMap, StatusCode};
use memchr::memchr_iter;

use crate::request_head::{MAX_HEAD, MAX_LINES, header_map, lists, parse_digits};

/// Head of a response.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ResponseHead {
    /// The status.
    pub status: StatusCode,
    /// The headers. Their values share the buffer that they were read from.
    pub headers: HeaderMap,
    /// Framing of the body.
    pub end: ResponseFraming,
    /// Whether the connection can be reused.
    pub keep_alive: bool,
}

/// Framing of a response body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResponseFraming {
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
/// # use headworks_h1::{ResponseFraming, take_response_head};
/// let mut input = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}".into();
/// let reply = take_response_head(&mut input).unwrap().unwrap();
/// assert_eq!((reply.status.as_u16(), reply.end), (200, ResponseFraming::Length(2)));
/// assert_eq!(&input[..], b"{}");
/// ```
pub fn take_response_head(input: &mut BytesMut) -> Result<Option<ResponseHead>, String> {
    loop {
        let Some(end) = end(input) else {
            let head_too_large = input.len() > MAX_HEAD;
            return head_too_large
                .then(|| Err("response head too large".to_owned()))
                .transpose();
        };
        let reply = read(&input.split_to(end).freeze())?;
        match reply.status.as_u16() {
            101 => return Err("unexpected switch of protocols (101)".to_owned()),
            100..=199 => {}
            _ => return Ok(Some(reply)),
        }
    }
}

/// Finds the end of a head. Servers may end lines with a bare line feed.
fn end(bytes: &[u8]) -> Option<usize> {
    memchr_iter(b'\n', bytes).find_map(|at| match &bytes[at + 1..] {
        [b'\n', ..] => Some(at + 2),
        [b'\r', b'\n', ..] => Some(at + 3),
        _ => None,
    })
}

fn read(head: &Bytes) -> Result<ResponseHead, String> {
    let mut lines = [const { MaybeUninit::uninit() }; MAX_LINES];
    let mut reply = httparse::Response::new(&mut []);
    let parsed = httparse::ParserConfig::default()
        .parse_response_with_uninit_headers(&mut reply, head, &mut lines);
    match parsed {
        Ok(httparse::Status::Complete(length)) if length == head.len() => {}
        Ok(_) => return Err("unexpected end of the response head".to_owned()),
        Err(cause) => return Err(format!("malformed HTTP/1.1 response head: {cause}")),
    }
    let status = StatusCode::from_u16(reply.code.unwrap_or(0));
    let status = status.map_err(|_| "missing status".to_owned())?;
    let headers = header_map(head, reply.headers, MORE);
    let headers = headers.ok_or("malformed header line")?;
    let modern = reply.version == Some(1);
    let end = framing(status, &headers, modern)?;
    Ok(ResponseHead {
        keep_alive: end != ResponseFraming::Close
            && keep_alive(&headers, modern)
            && !has_length_and_chunks(&headers),
        status,
        headers,
        end,
    })
}

/// Capacity for the headers that a proxy adds.
const MORE: usize = 8;

fn keep_alive(headers: &HeaderMap, modern: bool) -> bool {
    let lists = |word| {
        let mut values = headers.get_all(CONNECTION).iter();
        values.any(|value| lists(value.as_bytes(), word))
    };
    !lists(b"close") && (modern || lists(b"keep-alive"))
}

/// Whether a response has both a length and chunks. The length is ignored, and the connection is
/// not reused: the bytes after the body may belong to the other reading.
fn has_length_and_chunks(headers: &HeaderMap) -> bool {
    headers.contains_key(TRANSFER_ENCODING) && headers.contains_key(CONTENT_LENGTH)
}

fn framing(
    status: StatusCode,
    headers: &HeaderMap,
    modern: bool,
) -> Result<ResponseFraming, String> {
    if [StatusCode::NO_CONTENT, StatusCode::NOT_MODIFIED].contains(&status) {
        return Ok(ResponseFraming::Length(0));
    }
    let mut encodings = headers.get_all(TRANSFER_ENCODING).iter();
    if let Some(encoding) = encodings.next() {
        let chunked = encoding.as_bytes().eq_ignore_ascii_case(b"chunked");
        return match modern && chunked && encodings.next().is_none() {
            true => Ok(ResponseFraming::Chunked),
            false => Err("unsupported `transfer-encoding`: only `chunked` is supported".to_owned()),
        };
    }
    let mut lengths = headers.get_all(CONTENT_LENGTH).iter();
    let Some(stated) = lengths.next() else {
        return Ok(ResponseFraming::Close);
    };
    match parse_digits(stated.as_bytes()) {
        Some(length) if lengths.all(|other| other == stated) => Ok(ResponseFraming::Length(length)),
        _ => Err("invalid `content-length`".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn take(text: &str) -> Result<Option<(ResponseHead, usize)>, String> {
        let mut input = BytesMut::from(text);
        Ok(take_response_head(&mut input)?.map(|reply| (reply, input.len())))
    }

    fn with(lines: &str) -> Result<ResponseHead, String> {
        let taken = take(&format!("HTTP/1.1 200 OK\r\n{lines}\r\n"))?;
        Ok(taken.expect("its head is whole").0)
    }

    #[test]
    fn where_an_answer_ends() {
        let end = |lines: &str| with(lines).map(|reply| (reply.end, reply.keep_alive));
        assert_eq!(
            end("content-length: 7\r\n"),
            Ok((ResponseFraming::Length(7), true))
        );
        let twice = "content-length: 7\r\ncontent-length: 7\r\n";
        assert_eq!(end(twice), Ok((ResponseFraming::Length(7), true)));
        let close = "Connection: Close\r\ncontent-length: 7\r\n";
        assert_eq!(end(close), Ok((ResponseFraming::Length(7), false)));
        let chunked = "Transfer-Encoding: Chunked\r\n";
        assert_eq!(end(chunked), Ok((ResponseFraming::Chunked, true)));
        let has_length_and_chunks = format!("{chunked}content-length: 7\r\n");
        assert_eq!(
            end(&has_length_and_chunks),
            Ok((ResponseFraming::Chunked, false))
        );
        assert_eq!(end("x: 1\r\n"), Ok((ResponseFraming::Close, false)));
        let (none, _) = take("HTTP/1.1 204 \r\n\r\n").unwrap().unwrap();
        assert_eq!(
            (none.end, none.keep_alive),
            (ResponseFraming::Length(0), true)
        );
        let (old, _) = take("HTTP/1.0 200 OK\nContent-Length: 1\n\nx")
            .unwrap()
            .unwrap();
        assert_eq!(
            (old.end, old.keep_alive),
            (ResponseFraming::Length(1), false)
        );
    }

    #[test]
    fn a_malformed_response_is_refused() {
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
            let _ = take_response_head(&mut BytesMut::from(&bytes[..]));
            let _ = with(&lines);
        }
    }
}
