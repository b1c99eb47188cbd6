//! Reading and writing of numbers and names. Malformed input is `None`, never a panic.

use std::sync::Arc;

/// Longest name that is accepted.
const MAX_NAME: u64 = 4096;

/// Writes numbers as LEB128 and every name once: later occurrences are its number.
#[derive(Default)]
pub(super) struct Writer<'a> {
    pub(super) out: Vec<u8>,
    names: std::collections::HashMap<&'a str, u64>,
}

impl<'a> Writer<'a> {
    pub(super) fn byte(&mut self, value: u8) {
        self.out.push(value);
    }

    pub(super) fn number(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.out.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.out.push(value as u8);
    }

    /// A fraction with seven digits: enough for demand and weights.
    pub(super) fn fraction(&mut self, value: f64) {
        self.out.extend_from_slice(&(value as f32).to_le_bytes());
    }

    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        self.out.extend_from_slice(bytes);
    }

    pub(super) fn name(&mut self, name: &'a str) {
        let next = self.names.len() as u64 + 1;
        let number = *self.names.entry(name).or_insert(next);
        if number != next {
            return self.number(number);
        }
        self.number(0);
        self.number(name.len() as u64);
        self.bytes(name.as_bytes());
    }
}

/// Reads what a [`Writer`] has written.
pub(super) struct Reader<'a> {
    left: &'a [u8],
    names: Vec<Arc<str>>,
}

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader {
            left: bytes,
            names: Vec::new(),
        }
    }

    pub(super) fn byte(&mut self) -> Option<u8> {
        let (first, left) = self.left.split_first()?;
        self.left = left;
        Some(*first)
    }

    pub(super) fn flag(&mut self) -> Option<bool> {
        match self.byte()? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }

    pub(super) fn number(&mut self) -> Option<u64> {
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if bits << shift >> shift != bits {
                return None;
            }
            value |= bits << shift;
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }

    pub(super) fn small<T: TryFrom<u64>>(&mut self) -> Option<T> {
        self.number()?.try_into().ok()
    }

    /// A fraction that is finite and not negative.
    pub(super) fn fraction(&mut self) -> Option<f64> {
        let value = f64::from(f32::from_le_bytes(self.bytes()?));
        (value.is_finite() && value >= 0.0).then_some(value)
    }

    pub(super) fn bytes<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (bytes, left) = self.left.split_first_chunk::<N>()?;
        self.left = left;
        Some(*bytes)
    }

    pub(super) fn name(&mut self) -> Option<Arc<str>> {
        let number = self.number()?;
        if number > 0 {
            let index = usize::try_from(number - 1).ok()?;
            return self.names.get(index).cloned();
        }
        let length = self.number().filter(|length| *length <= MAX_NAME)?;
        let (name, left) = self.left.split_at_checked(length as usize)?;
        self.left = left;
        let name: Arc<str> = std::str::from_utf8(name).ok()?.into();
        self.names.push(name.clone());
        Some(name)
    }

    /// A list. Every item takes at least one byte, so the memory is bounded by the input.
    pub(super) fn list<T>(
        &mut self,
        mut item: impl FnMut(&mut Self) -> Option<T>,
    ) -> Option<Vec<T>> {
        let count = self.number()?;
        if count > self.left.len() as u64 {
            return None;
        }
        (0..count).map(|_| item(self)).collect()
    }
}
