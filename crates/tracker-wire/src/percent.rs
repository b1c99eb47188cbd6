//! Percent-encoding of query values.

/// Decodes `text` into `out` and returns the number of bytes written; `None` if `out` is too small
/// or an escape is malformed.
///
/// ```
/// let mut out = [0; 4];
/// assert_eq!(headworks_tracker_wire::percent_decode(b"a%00+", &mut out), Some(3));
/// assert_eq!(out[..3], *b"a\0 ");
/// ```
#[must_use]
pub fn decode(text: &[u8], out: &mut [u8]) -> Option<usize> {
    let (mut at, mut len) = (0, 0);
    while at < text.len() {
        let (byte, step) = match text[at] {
            b'%' => (decode_pair(text.get(at + 1..at + 3)?)?, 3),
            b'+' => (b' ', 1),
            byte => (byte, 1),
        };
        *out.get_mut(len)? = byte;
        len += 1;
        at += step;
    }
    Some(len)
}

fn decode_pair(digits: &[u8]) -> Option<u8> {
    Some(digit(digits[0])? << 4 | digit(digits[1])?)
}

fn digit(byte: u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        b'A'..=b'F' => Some(byte - b'A' + 10),
        _ => None,
    }
}

/// Appends `bytes` to `out`, escaping everything except unreserved characters (RFC 3986).
pub fn encode(bytes: &[u8], out: &mut String) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    for &byte in bytes {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push('%');
            out.push(char::from(DIGITS[usize::from(byte >> 4)]));
            out.push(char::from(DIGITS[usize::from(byte & 15)]));
        }
    }
}
