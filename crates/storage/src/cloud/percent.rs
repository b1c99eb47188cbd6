//! Percent-encoding, as signatures require it.

const HEX: &[u8; 16] = b"0123456789ABCDEF";

/// Encodes everything but unreserved characters.
pub(crate) fn encode(bytes: &[u8]) -> String {
    escape(bytes, |_| false)
}

/// Encodes a path, keeping slashes.
pub(crate) fn encode_path(bytes: &[u8]) -> String {
    escape(bytes, |byte| byte == b'/')
}

fn escape(bytes: &[u8], keep: impl Fn(u8) -> bool) -> String {
    let mut text = String::with_capacity(bytes.len());
    for &byte in bytes {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                text.push(char::from(byte));
            }
            _ if keep(byte) => text.push(char::from(byte)),
            _ => {
                text.push('%');
                text.push(char::from(HEX[usize::from(byte >> 4)]));
                text.push(char::from(HEX[usize::from(byte & 15)]));
            }
        }
    }
    text
}

/// Returns the fields of a form.
pub(crate) fn form<'a>(fields: impl IntoIterator<Item = &'a (&'a str, String)>) -> String {
    let pair = |(name, value): &(&str, String)| format!("{name}={}", encode(value.as_bytes()));
    let pairs: Vec<String> = fields.into_iter().map(pair).collect();
    pairs.join("&")
}

/// Decodes text. Invalid escapes stay as they are.
pub(crate) fn decode(text: &[u8]) -> Vec<u8> {
    unescape(text, false)
}

/// Decodes form-encoded text, in which a plus is a space.
pub(crate) fn decode_form(text: &[u8]) -> Vec<u8> {
    unescape(text, true)
}

fn unescape(text: &[u8], plus: bool) -> Vec<u8> {
    let digit = |byte: Option<&u8>| byte.and_then(|byte| char::from(*byte).to_digit(16));
    let mut bytes = Vec::with_capacity(text.len());
    let mut at = 0;
    while at < text.len() {
        match (text[at], digit(text.get(at + 1)), digit(text.get(at + 2))) {
            (b'%', Some(high), Some(low)) => {
                bytes.push((high * 16 + low) as u8);
                at += 3;
            }
            (b'+', ..) if plus => {
                bytes.push(b' ');
                at += 1;
            }
            (byte, ..) => {
                bytes.push(byte);
                at += 1;
            }
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_and_back() {
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(decode(encode(&all).as_bytes()), all);
        assert_eq!(decode_form(encode(&all).as_bytes()), all);
        assert_eq!(decode(encode_path(&all).as_bytes()), all);
        assert_eq!(encode_path(b"a b/c+d"), "a%20b/c%2Bd");
        assert_eq!(decode(b"100%+%zz%2"), b"100%+%zz%2");
        assert_eq!(decode_form(b"a+b"), b"a b");
    }
}
