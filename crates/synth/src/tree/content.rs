//! The content of files, readable from any offset.

use super::node::{Difference, Purpose, derive};
use super::{Node, Tree};
use crate::rng::word;

const WORD: u64 = 8;

impl Tree {
    /// Reads from `offset` into `buffer` and returns the number of bytes, which is smaller than
    /// requested only at the end of the file. The bytes do not depend on how a range is split into
    /// reads.
    #[must_use]
    pub fn read(&self, file: &Node, offset: u64, buffer: &mut [u8]) -> usize {
        let left = file.size().saturating_sub(offset);
        let length = usize::try_from(left).map_or(buffer.len(), |left| left.min(buffer.len()));
        let purpose = match file.difference() {
            Difference::Content => Purpose::OtherContent,
            _ => Purpose::Content,
        };
        let key = derive(file.key(), purpose);
        let mut at = offset;
        let mut rest = &mut buffer[..length];
        while !rest.is_empty() {
            let bytes = word(key, at / WORD).to_le_bytes();
            let bytes = &bytes[(at % WORD) as usize..];
            let taken = bytes.len().min(rest.len());
            rest[..taken].copy_from_slice(&bytes[..taken]);
            rest = &mut rest[taken..];
            at += taken as u64;
        }
        length
    }
}
