//! Incremental decoder of chunked bodies.

use bytes::{Buf, BytesMut};
use memchr::memchr;

/// Largest chunk size line, with its extensions.
const LONGEST_LINE: usize = 256;
/// Largest trailer section. Trailers are discarded.
const LONGEST_TRAILER: usize = 8 << 10;

/// Reason why a chunked body is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadChunk {
    /// Malformed chunk framing.
    Malformed,
    /// The body exceeds its limit.
    TooLarge,
}

/// Incremental decoder of a chunked body.
#[derive(Debug)]
pub struct Chunks {
    state: State,
    /// Bytes that the body may still have.
    left: u64,
}

#[derive(Debug, PartialEq, Eq)]
enum State {
    Size,
    Data(u64),
    /// After the data of a chunk.
    AfterData,
    /// After the last chunk, with the number of trailer bytes read.
    Trailer(usize),
    Done,
}

impl Chunks {
    /// Creates a decoder for a body of at most `most` bytes.
    #[must_use]
    pub fn new(most: u64) -> Chunks {
        Chunks {
            state: State::Size,
            left: most,
        }
    }

    /// Moves the available body data from `input` to `body`. Returns whether the body is complete.
    ///
    /// # Errors
    /// If the framing is malformed, or the body is too large. The connection must be closed then.
    pub fn read(&mut self, input: &mut BytesMut, body: &mut BytesMut) -> Result<bool, BadChunk> {
        loop {
            self.state = match self.state {
                State::Size => match line(input, LONGEST_LINE)? {
                    None => return Ok(false),
                    Some(line) => match size(&line).ok_or(BadChunk::Malformed)? {
                        0 => State::Trailer(0),
                        // Checked before the data arrives, so that an oversized chunk is never
                        // buffered.
                        size if size > self.left => return Err(BadChunk::TooLarge),
                        size => State::Data(size),
                    },
                },
                State::Data(0) => State::AfterData,
                State::Data(_) if input.is_empty() => return Ok(false),
                State::Data(left) => {
                    let there = usize::try_from(left).unwrap_or(usize::MAX).min(input.len());
                    body.extend_from_slice(&input[..there]);
                    input.advance(there);
                    self.left -= there as u64;
                    State::Data(left - there as u64)
                }
                State::AfterData => match line(input, 0)? {
                    None => return Ok(false),
                    Some(_) => State::Size,
                },
                State::Trailer(seen) => match line(input, LONGEST_TRAILER - seen)? {
                    None => return Ok(false),
                    Some(line) if line.is_empty() => State::Done,
                    Some(line) => State::Trailer((seen + line.len() + 2).min(LONGEST_TRAILER)),
                },
                State::Done => return Ok(true),
            };
        }
    }
}

/// Takes a line of at most `most` bytes, without its line ending.
fn line(input: &mut BytesMut, most: usize) -> Result<Option<BytesMut>, BadChunk> {
    match memchr(b'\n', &input[..input.len().min(most + 2)]) {
        Some(end) if end > 0 && input[end - 1] == b'\r' => {
            let mut line = input.split_to(end + 1);
            line.truncate(end - 1);
            Ok(Some(line))
        }
        Some(_) => Err(BadChunk::Malformed),
        None if input.len() >= most + 2 => Err(BadChunk::Malformed),
        None => Ok(None),
    }
}

/// Parses the size at the start of a line. Extensions after a semicolon are ignored.
fn size(line: &[u8]) -> Option<u64> {
    let end = memchr(b';', line).unwrap_or(line.len());
    let digits = line[..end].trim_ascii_end();
    let hex = !digits.is_empty() && digits.len() <= 16 && digits.iter().all(u8::is_ascii_hexdigit);
    let clean = !line
        .iter()
        .any(|byte| byte.is_ascii_control() && *byte != b'\t');
    (hex && clean).then(|| u64::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok())?
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Decodes `text` in pieces of `step` bytes. Returns the body and the number of bytes left
    /// over.
    fn read(text: &[u8], step: usize, most: u64) -> Result<Option<(Vec<u8>, usize)>, BadChunk> {
        let (mut input, mut body) = (BytesMut::new(), BytesMut::new());
        let mut chunks = Chunks::new(most);
        let mut seen = 0;
        for piece in text.chunks(step) {
            seen += piece.len();
            input.extend_from_slice(piece);
            if chunks.read(&mut input, &mut body)? {
                return Ok(Some((body.to_vec(), text.len() - seen + input.len())));
            }
        }
        Ok(None)
    }

    #[test]
    fn chunks_are_joined_wherever_they_are_cut() {
        let text = b"5\r\nhello\r\n00A;x=\"1\"\r\n, and more!\r\n0\r\nX-T: 1\r\n\r\nGET"
            .as_slice()
            .to_vec();
        let text = String::from_utf8(text)
            .unwrap()
            .replace(", and more!", ", and more");
        for step in 1..text.len() {
            let read = read(text.as_bytes(), step, 15).unwrap().unwrap();
            assert_eq!(read, (b"hello, and more".to_vec(), 3), "step {step}");
        }
    }

    #[test]
    fn a_malformed_chunk_is_refused() {
        for text in [
            "\r\n",
            "5\nhello\r\n",
            "-5\r\n",
            "+5\r\n",
            "0x5\r\n",
            " 5\r\n",
            "5 5\r\n",
            "g\r\n",
            ";\r\n",
            "5\r\nhello5\r\n",
            "5\r\nhello\n0\r\n\r\n",
            "5\r\nhello\r\r\n",
            "5;\0\r\n",
            "5;a\rb\r\n",
            "0\r\nx: 1\n\r\n",
            "00000000000000005\r\nhello\r\n",
            "ffffffffffffffffff\r\n",
        ] {
            let whole = read(text.as_bytes(), text.len(), 100);
            assert_eq!(whole, Err(BadChunk::Malformed), "{text:?}");
            let single = read(text.as_bytes(), 1, 100);
            assert_eq!(single, Err(BadChunk::Malformed), "{text:?} byte by byte");
        }
        let long = [b"5;".as_slice(), &[b'x'; LONGEST_LINE]].concat();
        assert_eq!(read(&long, 1, 100), Err(BadChunk::Malformed));
        let trailer = [b"0\r\n".as_slice(), &b"x: 1\r\n".repeat(2000)].concat();
        assert_eq!(read(&trailer, 100, 100), Err(BadChunk::Malformed));
    }

    #[test]
    fn a_body_is_bounded_before_it_is_there() {
        assert_eq!(read(b"6\r\n", 1, 5), Err(BadChunk::TooLarge));
        let sum = b"3\r\nabc\r\n3\r\n";
        assert_eq!(read(sum, 1, 5), Err(BadChunk::TooLarge));
        assert_eq!(read(b"ffffffffffffffff\r\n", 1, 5), Err(BadChunk::TooLarge));
    }

    proptest! {
        #[test]
        fn any_bytes_are_the_same_in_any_pieces(text in "([0-9a-f]{1,2}(;x)?\r\n[a-z]{0,20}(\r\n)?){0,4}(0\r\n\r\n)?[ -~]{0,3}", step in 1_usize..9) {
            let whole = read(text.as_bytes(), text.len().max(1), 64);
            prop_assert_eq!(read(text.as_bytes(), step, 64), whole);
        }
    }
}
