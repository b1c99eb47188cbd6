//! The head of an HTTP response.

/// The content type of plain text, and of bencode, which has no registered type.
pub(super) const PLAIN_TEXT: &str = "text/plain; charset=utf-8";

/// The status of a response, and the headers that depend on it.
pub(super) struct Status {
    pub(super) code: u16,
    pub(super) content_type: &'static str,
    /// Seconds until the client may try again.
    pub(super) retry_after: Option<u64>,
}

impl Status {
    pub(super) fn of(code: u16, content_type: &'static str) -> Status {
        Status {
            code,
            content_type,
            retry_after: None,
        }
    }
}

/// Appends the head of a response. It copies pieces instead of formatting, because this runs for
/// every request.
pub(super) fn write_head(status: &Status, length: usize, keep_alive: bool, out: &mut Vec<u8>) {
    let reason = match status.code {
        200 => "200 OK",
        400 => "400 Bad Request",
        401 => "401 Unauthorized\r\nWWW-Authenticate: Bearer",
        404 => "404 Not Found",
        405 => "405 Method Not Allowed",
        429 => "429 Too Many Requests",
        431 => "431 Request Header Fields Too Large",
        _ => "505 HTTP Version Not Supported",
    };
    let connection = if keep_alive { "keep-alive" } else { "close" };
    let pieces = [
        "HTTP/1.1 ",
        reason,
        "\r\nContent-Type: ",
        status.content_type,
        "\r\nConnection: ",
        connection,
        "\r\nContent-Length: ",
    ];
    for piece in pieces {
        out.extend_from_slice(piece.as_bytes());
    }
    write_number(length, out);
    if let Some(seconds) = status.retry_after {
        out.extend_from_slice(b"\r\nRetry-After: ");
        write_number(seconds as usize, out);
    }
    out.extend_from_slice(b"\r\n\r\n");
}

fn write_number(mut number: usize, out: &mut Vec<u8>) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}
