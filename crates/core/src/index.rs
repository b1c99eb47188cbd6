//! Numbers found by a hash, one line of the cache a look.
//!
//! A chunk is a line: a byte of the hash of each of its numbers, the numbers, and how many that belonged here found it full and
//! went on, in four counts by their byte. Whoever looks goes on only as long as one of its kind did; whoever leaves takes its count
//! back. So nothing has to be swept up after removals, and a million names cost a look at one line each time, where a table that keeps bytes and numbers
//! apart costs two (ADR 26).

use crate::ahead::fetch;
use wide::u8x16;

/// How many numbers a chunk has room for: what is left of a line after their bytes and the count.
const ROOM: usize = 12;

/// How many there are a chunk, on average, when the chunks are doubled: few enough that one in eight is too full at most.
const CROWDED: usize = 9;

/// Numbers, by a hash of something that their owner knows of each.
#[derive(Clone, Debug)]
pub(crate) struct Index {
    /// A power of two.
    chunks: Vec<Chunk>,
    len: usize,
}

#[derive(Clone, Debug)]
#[repr(C, align(64))]
struct Chunk {
    /// Of each number a byte of its hash, which is not 0; 0 where there is none. The last bytes are of none: they count those who
    /// passed by because it was full.
    tags: [u8; 16],
    /// Each with four more bits of its hash above it, so that seldom a name that is not there is taken for one that is: its owner
    /// would have to be looked at, and is far.
    numbers: [u32; ROOM],
}

impl Chunk {
    const EMPTY: Chunk = Chunk {
        tags: [0; 16],
        numbers: [0; ROOM],
    };

    /// How many whose byte is one of a quarter of all, as this one is, passed by.
    #[inline]
    fn passed(&self, tag: u8) -> u8 {
        self.tags[ROOM + usize::from(tag % 4)]
    }

    /// Counts one who passed by. Where there were more than can be counted, some are thought to be for good.
    #[inline]
    fn pass(&mut self, tag: u8) {
        let passed = &mut self.tags[ROOM + usize::from(tag % 4)];
        *passed = passed.saturating_add(1);
    }

    /// Takes one back.
    #[inline]
    fn unpass(&mut self, tag: u8) {
        let passed = &mut self.tags[ROOM + usize::from(tag % 4)];
        if *passed < u8::MAX {
            *passed -= 1;
        }
    }

    /// Where a byte is, as bits.
    #[inline]
    fn places(&self, tag: u8) -> Places {
        let alike = u8x16::new(self.tags).simd_eq(u8x16::splat(tag));
        Places(alike.to_bitmask() & ((1 << ROOM) - 1))
    }
}

/// Places in a chunk, as bits.
struct Places(u32);

impl Iterator for Places {
    type Item = usize;

    #[inline]
    fn next(&mut self) -> Option<usize> {
        let place = self.0.trailing_zeros() as usize;
        self.0 &= self.0.wrapping_sub(1);
        (place < ROOM).then_some(place)
    }
}

/// The byte by which a chunk tells its numbers apart.
#[inline]
fn tag(hash: u64) -> u8 {
    ((hash >> 56) as u8).max(1)
}

/// How many bits a number has.
pub(crate) const BITS: u32 = 28;
const MASK: u32 = (1 << BITS) - 1;

/// A number with what is above it.
#[inline]
fn marked(hash: u64, number: u32) -> u32 {
    number | (hash >> 24) as u32 & !MASK
}

impl Default for Index {
    fn default() -> Self {
        Index {
            chunks: vec![Chunk::EMPTY],
            len: 0,
        }
    }
}

impl Index {
    /// The chunks where a hash may be, in order.
    #[inline]
    fn way(&self, hash: u64) -> impl Iterator<Item = usize> + use<> {
        let mask = self.chunks.len() - 1;
        // Odd, so that it comes by all; different for most, so that who began together does not stay together.
        let step = usize::from(tag(hash)) * 2 + 1;
        (0..=mask).map(move |turn| (hash as usize).wrapping_add(turn * step) & mask)
    }

    /// Has the place where a hash would be brought near.
    #[inline]
    pub(crate) fn fetch(&self, hash: u64) {
        fetch(&self.chunks[hash as usize & (self.chunks.len() - 1)]);
    }

    /// The number that probably has this hash: for who can tell and will look at it anyway.
    #[inline]
    pub(crate) fn guess(&self, hash: u64) -> Option<u32> {
        let chunk = &self.chunks[hash as usize & (self.chunks.len() - 1)];
        let place = chunk.places(tag(hash)).next()?;
        Some(chunk.numbers[place] & MASK)
    }

    /// The number that has this hash, and `is` the one.
    #[inline]
    pub(crate) fn find(&self, hash: u64, mut is: impl FnMut(u32) -> bool) -> Option<u32> {
        let tag = tag(hash);
        for at in self.way(hash) {
            let chunk = &self.chunks[at];
            for place in chunk.places(tag) {
                let number = chunk.numbers[place] & MASK;
                if chunk.numbers[place] == marked(hash, number) && is(number) {
                    return Some(number);
                }
            }
            if chunk.passed(tag) == 0 {
                break;
            }
        }
        None
    }

    /// Adds a number that is not there. `hash_of` says the hash of those that are.
    #[inline]
    pub(crate) fn insert(&mut self, hash: u64, number: u32, hash_of: impl Fn(u32) -> u64) {
        if self.len >= self.chunks.len() * CROWDED {
            self.grow(hash_of);
        }
        self.len += 1;
        self.put(hash, number);
    }

    #[inline]
    fn put(&mut self, hash: u64, number: u32) {
        for at in self.way(hash) {
            let chunk = &mut self.chunks[at];
            if let Some(place) = chunk.places(0).next() {
                chunk.tags[place] = tag(hash);
                chunk.numbers[place] = marked(hash, number);
                return;
            }
            chunk.pass(tag(hash));
        }
    }

    #[cold]
    fn grow(&mut self, hash_of: impl Fn(u32) -> u64) {
        let more = vec![Chunk::EMPTY; self.chunks.len() * 2];
        for chunk in std::mem::replace(&mut self.chunks, more) {
            for (tag, number) in chunk.tags.into_iter().zip(chunk.numbers) {
                if tag != 0 {
                    let number = number & MASK;
                    self.put(hash_of(number), number);
                }
            }
        }
    }

    /// Removes a number that is there.
    #[inline]
    pub(crate) fn remove(&mut self, hash: u64, number: u32) {
        let (tag, number) = (tag(hash), marked(hash, number));
        for at in self.way(hash) {
            let chunk = &mut self.chunks[at];
            for place in chunk.places(tag) {
                if chunk.numbers[place] == number {
                    chunk.tags[place] = 0;
                    self.len -= 1;
                    return;
                }
            }
            debug_assert!(chunk.passed(tag) > 0, "what is removed is there");
            chunk.unpass(tag);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        /// With hashes of few bits, so that chunks run over and bytes are alike.
        #[test]
        fn agrees_with_a_set(ops in prop::collection::vec((any::<bool>(), 0u32..200), 1..2000), bits in 0u32..8) {
            let mut index = Index::default();
            let mut model = BTreeSet::new();
            let hash = |number: u32| {
                let hash = u64::from(number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                (hash >> 32) & ((1 << bits) - 1) | (hash & 3) << 56 | (hash >> 2 & 3) << 52
            };
            for (insert, number) in ops {
                match (insert, model.contains(&number)) {
                    (true, false) => { index.insert(hash(number), number, hash); model.insert(number); }
                    (false, true) => { index.remove(hash(number), number); model.remove(&number); }
                    _ => {}
                }
                let found = index.find(hash(number), |other| other == number);
                prop_assert_eq!(found.is_some(), model.contains(&number));
            }
            for number in 0..200 {
                let found = index.find(hash(number), |other| other == number);
                prop_assert_eq!(found, model.get(&number).copied());
            }
            prop_assert_eq!(index.len, model.len());
            for number in &model {
                index.remove(hash(*number), *number);
            }
            let left = |chunk: &Chunk| (0..4).any(|tag| chunk.passed(tag) > 0);
            prop_assert_eq!((index.len, index.chunks.iter().any(left)), (0, false));
        }
    }

    /// More pass by than a chunk can count.
    #[test]
    fn names_that_are_all_alike_are_found_and_removed() {
        let mut index = Index::default();
        let hash = |_| 7 << 56;
        for number in 0..2000 {
            index.insert(hash(number), number, hash);
        }
        let find = |index: &Index, number| index.find(hash(number), |other| other == number);
        for number in 0..2000 {
            assert_eq!(find(&index, number), Some(number));
            index.remove(hash(number), number);
            assert_eq!(find(&index, number), None);
        }
        assert_eq!(index.len, 0);
    }
}
