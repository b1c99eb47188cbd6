//! Bencode: integers, byte strings, lists and dictionaries.

mod decode;
mod encode;

pub use decode::{DecodeError, Limits, decode};
pub use encode::Writer;

/// A decoded value that borrows its byte strings from the input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value<'a> {
    /// `i42e`
    Int(i64),
    /// `4:spam`
    Bytes(&'a [u8]),
    /// `l…e`
    List(Vec<Value<'a>>),
    /// `d…e`, in the order of the input.
    Dict(Vec<(&'a [u8], Value<'a>)>),
}

impl<'a> Value<'a> {
    /// Returns the value of `key` if this is a dictionary. Of repeated keys the first one counts.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Value<'a>> {
        match self {
            Value::Dict(entries) => entries
                .iter()
                .find(|(name, _)| *name == key.as_bytes())
                .map(|(_, value)| value),
            _ => None,
        }
    }

    /// Returns the integer. Strings of digits are accepted, because some trackers send those.
    #[must_use]
    pub fn number(&self) -> Option<i64> {
        match self {
            Value::Int(number) => Some(*number),
            Value::Bytes(text) => std::str::from_utf8(text).ok()?.trim().parse().ok(),
            _ => None,
        }
    }

    /// Returns the bytes if this is a string.
    #[must_use]
    pub fn bytes(&self) -> Option<&'a [u8]> {
        match self {
            Value::Bytes(bytes) => Some(bytes),
            _ => None,
        }
    }
}
