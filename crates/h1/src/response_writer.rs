//! Writes the head of a response to a client.

use std::cell::RefCell;
use std::io::Write;

use http::header::{CONNECTION, CONTENT_LENGTH, DATE, TRANSFER_ENCODING};
use http::{HeaderMap, StatusCode};
use jiff::Timestamp;
use jiff::fmt::rfc2822::DateTimePrinter;

/// Framing of a response body: how a client finds its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// No body, whatever the headers say.
    Nothing,
    /// Ends after this number of bytes.
    Length(u64),
    /// Ends with the last chunk.
    Chunked,
    /// Ends with the connection.
    Close,
}

/// Appends the head of a response to `out`. Framing and connection headers are this server's own;
/// those in `headers` are left out, because a proxy's describe another connection.
pub fn write_response_head(
    status: StatusCode,
    headers: &HeaderMap,
    framing: Framing,
    connection: Option<&str>,
    out: &mut Vec<u8>,
) {
    out.extend_from_slice(b"HTTP/1.1 ");
    out.extend_from_slice(status.as_str().as_bytes());
    out.push(b' ');
    out.extend_from_slice(status.canonical_reason().unwrap_or_default().as_bytes());
    out.extend_from_slice(b"\r\n");
    let mut dated = false;
    for (name, value) in headers {
        if [CONTENT_LENGTH, TRANSFER_ENCODING, CONNECTION].contains(name) {
            continue;
        }
        dated |= name == DATE;
        out.extend_from_slice(name.as_str().as_bytes());
        out.extend_from_slice(b": ");
        out.extend_from_slice(value.as_bytes());
        out.extend_from_slice(b"\r\n");
    }
    match framing {
        Framing::Length(length) => {
            let _ = write!(out, "content-length: {length}\r\n");
        }
        Framing::Chunked => out.extend_from_slice(b"transfer-encoding: chunked\r\n"),
        Framing::Nothing | Framing::Close => {}
    }
    if let Some(word) = connection {
        let _ = write!(out, "connection: {word}\r\n");
    }
    if !dated {
        write_date(out);
    }
    out.extend_from_slice(b"\r\n");
}

/// Writes the date, formatted once per second and thread.
fn write_date(out: &mut Vec<u8>) {
    thread_local! {
        static MADE: RefCell<(i64, String)> = const { RefCell::new((i64::MIN, String::new())) };
    }
    let now = Timestamp::now();
    MADE.with_borrow_mut(|(second, line)| {
        if *second != now.as_second() {
            let date = DateTimePrinter::new().timestamp_to_rfc9110_string(&now);
            *second = now.as_second();
            *line = date.map_or_else(|_| String::new(), |date| format!("date: {date}\r\n"));
        }
        out.extend_from_slice(line.as_bytes());
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(
        headers: &[(&'static str, &'static str)],
        framing: Framing,
        connection: Option<&str>,
    ) -> String {
        let pairs = headers
            .iter()
            .map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()));
        let (headers, mut out) = (pairs.collect(), Vec::new());
        write_response_head(StatusCode::OK, &headers, framing, connection, &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn the_end_is_said_once_and_by_us() {
        let theirs = [
            ("content-length", "9"),
            ("transfer-encoding", "gzip"),
            ("connection", "x"),
            ("x-a", "1"),
            ("date", "now"),
        ];
        assert_eq!(
            written(&theirs, Framing::Length(3), None),
            "HTTP/1.1 200 OK\r\nx-a: 1\r\ndate: now\r\ncontent-length: 3\r\n\r\n"
        );
        assert_eq!(
            written(&theirs, Framing::Chunked, Some("close")),
            "HTTP/1.1 200 OK\r\nx-a: 1\r\ndate: now\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n"
        );
        let dated = written(&[], Framing::Close, None);
        assert!(dated.ends_with(" GMT\r\n\r\n"), "{dated}");
    }
}
