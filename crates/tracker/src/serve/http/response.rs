//! The head of an HTTP response.

/// The content type of plain text, and of bencode, which has no registered type.
pub(super) const PLAIN_TEXT: &str = "text/plain; charset=utf-8";

/// Appends the head of a response. It copies pieces instead of formatting, because this runs for
/// every request.
pub(super) fn write_head(
    status: u16,
    content_type: &str,
    length: usize,
    keep_alive: bool,
    out: &mut Vec<u8>,
) {
    let reason = match status {
        200 => "200 OK",
        400 => "400 Bad Request",
        404 => "404 Not Found",
        405 => "405 Method Not Allowed",
        431 => "431 Request Header Fields Too Large",
        _ => "505 HTTP Version Not Supported",
    };
    let connection = if keep_alive { "keep-alive" } else { "close" };
    let pieces = [
        "HTTP/1.1 ",
        reason,
        "\r\nContent-Type: ",
        content_type,
        "\r\nConnection: ",
        connection,
        "\r\nContent-Length: ",
    ];
    for piece in pieces {
        out.extend_from_slice(piece.as_bytes());
    }
    write_number(length, out);
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
