//! Names as text for people.

use std::fmt::{self, Display, Write};

/// Formats a name as text. Letters of all scripts stay as they are. Characters that could confuse a
/// terminal or a reader, and bytes that are not UTF-8, are escaped, so that no two names have the
/// same text and [`from_display`] returns the bytes.
///
/// ```
/// use headworks_storage::{display, from_display};
/// assert_eq!(display("Büro/報告 1.pdf".as_bytes()).to_string(), "Büro/報告 1.pdf");
/// assert_eq!(display(b"a\nb\\c\x1b\xff").to_string(), r"a\nb\\c\x1b\xff");
/// assert_eq!(display("gpj.\u{202e}exe".as_bytes()).to_string(), r"gpj.\u{202e}exe");
/// assert_eq!(from_display(r"a\nb\\c\x1b\xff\u{202e}").unwrap(), b"a\nb\\c\x1b\xff\xe2\x80\xae");
/// ```
#[must_use]
pub fn display(name: &[u8]) -> impl Display + '_ {
    Displayed(name)
}

struct Displayed<'a>(&'a [u8]);

impl Display for Displayed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for chunk in self.0.utf8_chunks() {
            for letter in chunk.valid().chars() {
                match letter {
                    '\\' => f.write_str("\\\\")?,
                    '\0'..='\x7f' if letter.is_control() => {
                        write!(f, "{}", (letter as u8).escape_ascii())?;
                    }
                    _ if misleads(letter) => write!(f, "{}", letter.escape_unicode())?,
                    _ => f.write_char(letter)?,
                }
            }
            write!(f, "{}", chunk.invalid().escape_ascii())?;
        }
        Ok(())
    }
}

/// Returns whether a character is invisible, or changes where others appear.
fn misleads(letter: char) -> bool {
    letter.is_control()
        || matches!(letter, '\u{61c}' | '\u{feff}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}')
}

/// Returns the bytes of a name formatted by [`display`]; `None` for other text.
#[must_use]
pub fn from_display(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        bytes.extend_from_slice(&rest.as_bytes()[..at]);
        let mut after = rest[at + 1..].chars();
        match after.next()? {
            '\\' => bytes.push(b'\\'),
            'n' => bytes.push(b'\n'),
            'r' => bytes.push(b'\r'),
            't' => bytes.push(b'\t'),
            'x' => {
                bytes.push(u8::from_str_radix(after.as_str().get(..2)?, 16).ok()?);
                after = after.as_str()[2..].chars();
            }
            'u' => {
                let (code, behind) = after.as_str().strip_prefix('{')?.split_once('}')?;
                let letter = char::from_u32(u32::from_str_radix(code, 16).ok()?)?;
                bytes.extend_from_slice(letter.encode_utf8(&mut [0; 4]).as_bytes());
                after = behind.chars();
            }
            _ => return None,
        }
        rest = after.as_str();
    }
    bytes.extend_from_slice(rest.as_bytes());
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_displayed_name_parses_back(name in prop::collection::vec(any::<u8>(), 0..40), text in "\\PC{0,20}") {
            for name in [name.as_slice(), text.as_bytes()] {
                let seen = display(name).to_string();
                prop_assert!(!seen.chars().any(misleads));
                prop_assert_eq!(from_display(&seen), Some(name.to_vec()));
            }
        }
    }

    #[test]
    fn text_that_was_never_displayed_is_no_name() {
        for text in [
            "\\",
            "\\q",
            "\\x",
            "\\x1",
            "\\xé",
            "\\u{",
            "\\u{d800}",
            "\\u{zz}",
        ] {
            assert_eq!(from_display(text), None, "{text}");
        }
    }
}
