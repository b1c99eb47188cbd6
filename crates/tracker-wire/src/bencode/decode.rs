//! A decoder for untrusted bencode.

use super::Value;
use thiserror::Error;

/// Limits on the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The deepest nesting of lists and dictionaries.
    pub depth: usize,
    /// The total number of values.
    pub values: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            depth: 16,
            values: 100_000,
        }
    }
}

/// The first error in the input, with its byte offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// The input ends in the middle of a value.
    #[error("input ends in the middle of a value")]
    Truncated,
    /// A byte that starts no value.
    #[error("unexpected byte at offset {0}")]
    Unexpected(usize),
    /// A malformed number, or one that does not fit an `i64`.
    #[error("malformed or too large number at offset {0}")]
    Number(usize),
    /// The nesting exceeds the limit.
    #[error("nested too deeply")]
    Depth,
    /// The number of values exceeds the limit.
    #[error("too many values")]
    Values,
}

/// Decodes one value. Trailing bytes are ignored, because some trackers append a line break.
///
/// ```
/// use headworks_tracker_wire::bencode::{Limits, decode};
/// let value = decode(b"d8:intervali1800e5:peers0:e", Limits::default()).unwrap();
/// assert_eq!(value.get("interval").and_then(|v| v.number()), Some(1800));
/// ```
///
/// # Errors
/// The first error in the input.
pub fn decode(bytes: &[u8], limits: Limits) -> Result<Value<'_>, DecodeError> {
    let mut decoder = Decoder {
        bytes,
        at: 0,
        left: limits.values,
    };
    decoder.value(limits.depth)
}

struct Decoder<'a> {
    bytes: &'a [u8],
    at: usize,
    left: usize,
}

impl<'a> Decoder<'a> {
    fn value(&mut self, depth: usize) -> Result<Value<'a>, DecodeError> {
        self.left = self.left.checked_sub(1).ok_or(DecodeError::Values)?;
        match self.peek()? {
            b'i' => {
                self.at += 1;
                self.number(b'e').map(Value::Int)
            }
            b'0'..=b'9' => self.string().map(Value::Bytes),
            b'l' => {
                let depth = self.enter(depth)?;
                let mut list = Vec::new();
                while !self.ended()? {
                    list.push(self.value(depth)?);
                }
                Ok(Value::List(list))
            }
            b'd' => {
                let depth = self.enter(depth)?;
                let mut entries = Vec::new();
                while !self.ended()? {
                    entries.push((self.string()?, self.value(depth)?));
                }
                Ok(Value::Dict(entries))
            }
            _ => Err(DecodeError::Unexpected(self.at)),
        }
    }

    fn enter(&mut self, depth: usize) -> Result<usize, DecodeError> {
        self.at += 1;
        depth.checked_sub(1).ok_or(DecodeError::Depth)
    }

    fn ended(&mut self) -> Result<bool, DecodeError> {
        let ended = self.peek()? == b'e';
        self.at += usize::from(ended);
        Ok(ended)
    }

    fn peek(&self) -> Result<u8, DecodeError> {
        self.bytes
            .get(self.at)
            .copied()
            .ok_or(DecodeError::Truncated)
    }

    /// Parses a decimal number and consumes the `end` byte after it.
    fn number(&mut self, end: u8) -> Result<i64, DecodeError> {
        let (start, negative) = (self.at, self.peek()? == b'-');
        self.at += usize::from(negative);
        let mut number: i64 = 0;
        let digits = self.at;
        loop {
            let byte = self.peek()?;
            self.at += 1;
            if byte == end && self.at > digits + 1 {
                return Ok(number);
            }
            if !byte.is_ascii_digit() {
                return Err(DecodeError::Number(start));
            }
            let digit = i64::from(byte - b'0');
            let digit = if negative { -digit } else { digit };
            number = number
                .checked_mul(10)
                .and_then(|number| number.checked_add(digit))
                .ok_or(DecodeError::Number(start))?;
        }
    }

    fn string(&mut self) -> Result<&'a [u8], DecodeError> {
        let start = self.at;
        if !self.peek()?.is_ascii_digit() {
            return Err(DecodeError::Unexpected(start));
        }
        let length = self.number(b':')?;
        let length = usize::try_from(length).map_err(|_| DecodeError::Number(start))?;
        let end = self
            .at
            .checked_add(length)
            .ok_or(DecodeError::Number(start))?;
        let string = self.bytes.get(self.at..end).ok_or(DecodeError::Truncated)?;
        self.at = end;
        Ok(string)
    }
}
