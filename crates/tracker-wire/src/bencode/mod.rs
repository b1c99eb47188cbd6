//! Bencode: integers, byte strings, lists and dictionaries.

mod decode;
mod encode;

pub use decode::{DecodeError, Limits, decode};
pub use encode::Writer;

/// A value, borrowing its strings from what was decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value<'a> {
    /// `i42e`
    Int(i64),
    /// `4:spam`
    Bytes(&'a [u8]),
    /// `l…e`
    List(Vec<Value<'a>>),
    /// `d…e`, in the order in which it was written.
    Dict(Vec<(&'a [u8], Value<'a>)>),
}

impl<'a> Value<'a> {
    /// The value of `key`, if this is a dictionary that has it. Of several the first counts.
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

    /// The number, if it is one. Some trackers write numbers as strings.
    #[must_use]
    pub fn number(&self) -> Option<i64> {
        match self {
            Value::Int(number) => Some(*number),
            Value::Bytes(text) => std::str::from_utf8(text).ok()?.trim().parse().ok(),
            _ => None,
        }
    }

    /// The bytes, if it is a string.
    #[must_use]
    pub fn bytes(&self) -> Option<&'a [u8]> {
        match self {
            Value::Bytes(bytes) => Some(bytes),
            _ => None,
        }
    }

    /// The string as text, whatever its bytes are.
    #[must_use]
    pub fn text(&self) -> Option<String> {
        self.bytes()
            .map(|bytes| String::from_utf8_lossy(bytes).into_owned())
    }

    /// The elements, if it is a list.
    #[must_use]
    pub fn list(&self) -> Option<&[Value<'a>]> {
        match self {
            Value::List(list) => Some(list),
            _ => None,
        }
    }
}
