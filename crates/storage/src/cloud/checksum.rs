//! Checksums that a storage states about a file: of all its bytes, or of its parts.
//!
//! A file that was sent in parts has no checksum of its bytes. Its etag is the MD5 of the MD5s of
//! its parts, followed by their number, and other checksums may be made the same way. Where the
//! size of the parts is known, it can be computed again.

use md5::Md5;
use sha2::digest::common::hazmat::SerializableState;
use sha2::{Digest, Sha256};

/// A hash function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Algorithm {
    Md5 = 1,
    Sha256 = 2,
}

#[derive(Clone)]
enum Hasher {
    Md5(Md5),
    Sha256(Sha256),
}

impl Hasher {
    fn new(algorithm: Algorithm) -> Hasher {
        match algorithm {
            Algorithm::Md5 => Hasher::Md5(Md5::new()),
            Algorithm::Sha256 => Hasher::Sha256(Sha256::new()),
        }
    }

    fn update(&mut self, bytes: &[u8]) {
        match self {
            Hasher::Md5(hasher) => hasher.update(bytes),
            Hasher::Sha256(hasher) => hasher.update(bytes),
        }
    }

    fn finish(self) -> Vec<u8> {
        match self {
            Hasher::Md5(hasher) => hasher.finalize().to_vec(),
            Hasher::Sha256(hasher) => hasher.finalize().to_vec(),
        }
    }

    fn state(&self) -> Vec<u8> {
        match self {
            Hasher::Md5(hasher) => hasher.serialize().to_vec(),
            Hasher::Sha256(hasher) => hasher.serialize().to_vec(),
        }
    }

    fn resume(algorithm: Algorithm, state: &[u8]) -> Option<Hasher> {
        match algorithm {
            Algorithm::Md5 => {
                let hasher = Md5::deserialize(state.try_into().ok()?).ok()?;
                Some(Hasher::Md5(hasher))
            }
            Algorithm::Sha256 => {
                let hasher = Sha256::deserialize(state.try_into().ok()?).ok()?;
                Some(Hasher::Sha256(hasher))
            }
        }
    }
}

/// The parts of a file so far.
#[derive(Clone)]
struct Parts {
    size: u64,
    /// Bytes of the current part so far.
    filled: u64,
    /// The hashes of the complete ones, one after the other.
    hashes: Vec<u8>,
}

/// A checksum being computed, and its expected value.
#[derive(Clone)]
pub(crate) struct Checksum {
    algorithm: Algorithm,
    expected: Vec<u8>,
    /// Of all bytes, or of those of the current part.
    hasher: Hasher,
    parts: Option<Parts>,
}

impl Checksum {
    /// Creates a checksum of all bytes.
    pub(crate) fn new(algorithm: Algorithm, expected: Vec<u8>) -> Checksum {
        Checksum {
            algorithm,
            expected,
            hasher: Hasher::new(algorithm),
            parts: None,
        }
    }

    /// Creates a checksum of the checksums of parts, of which only the last may be shorter.
    pub(crate) fn of_parts(algorithm: Algorithm, expected: Vec<u8>, size: u64) -> Checksum {
        let parts = Parts {
            size: size.max(1),
            filled: 0,
            hashes: Vec::new(),
        };
        Checksum {
            parts: Some(parts),
            ..Checksum::new(algorithm, expected)
        }
    }

    /// Returns the size of the parts, if there are any.
    pub(crate) fn part_size(&self) -> Option<u64> {
        self.parts.as_ref().map(|parts| parts.size)
    }

    fn update(&mut self, mut bytes: &[u8]) {
        let Some(parts) = &mut self.parts else {
            return self.hasher.update(bytes);
        };
        while !bytes.is_empty() {
            let left = parts.size - parts.filled;
            let length = usize::try_from(left).map_or(bytes.len(), |left| left.min(bytes.len()));
            let (part, rest) = bytes.split_at(length);
            self.hasher.update(part);
            parts.filled += length as u64;
            bytes = rest;
            if parts.filled == parts.size {
                let full = std::mem::replace(&mut self.hasher, Hasher::new(self.algorithm));
                parts.hashes.extend(full.finish());
                parts.filled = 0;
            }
        }
    }

    fn matches(self) -> bool {
        let Some(mut parts) = self.parts else {
            return self.hasher.finish() == self.expected;
        };
        if parts.filled > 0 {
            parts.hashes.extend(self.hasher.finish());
        }
        let mut hasher = Hasher::new(self.algorithm);
        hasher.update(&parts.hashes);
        hasher.finish() == self.expected
    }

    /// Returns what [`resume`](Self::resume) needs.
    fn state(&self) -> Vec<u8> {
        let mut state = vec![self.algorithm as u8];
        let (size, filled, hashes) = match &self.parts {
            Some(parts) => (parts.size, parts.filled, parts.hashes.as_slice()),
            None => (0, 0, &[][..]),
        };
        for number in [size, filled, hashes.len() as u64] {
            state.extend(number.to_le_bytes());
        }
        state.extend(hashes);
        state.extend(self.hasher.state());
        state
    }

    /// Continues at a state; `None` if it is that of another kind of checksum.
    fn resume(&self, state: &[u8]) -> Option<Checksum> {
        let (algorithm, mut rest) = state.split_first()?;
        let mut numbers = [0; 3];
        for number in &mut numbers {
            let (bytes, after) = rest.split_first_chunk::<8>()?;
            (*number, rest) = (u64::from_le_bytes(*bytes), after);
        }
        let [size, filled, length] = numbers;
        let (hashes, hasher) = rest.split_at_checked(usize::try_from(length).ok()?)?;
        if *algorithm != self.algorithm as u8 || size != self.part_size().unwrap_or(0) {
            return None;
        }
        let hasher = Hasher::resume(self.algorithm, hasher)?;
        let parts = (size > filled).then(|| Parts {
            size,
            filled,
            hashes: hashes.to_vec(),
        });
        Some(Checksum {
            hasher,
            parts,
            algorithm: self.algorithm,
            expected: self.expected.clone(),
        })
    }
}

/// The comparison of what is read with what the storage states.
#[derive(Default)]
pub(crate) struct Verification {
    /// The checksum of the bytes so far; `None` if none is stated, or they began in the middle.
    running: Option<Checksum>,
    /// Stated, but not begun.
    stated: Option<Checksum>,
    is_verified: bool,
}

impl Verification {
    /// Begins at an offset. In the middle of a file a state must follow.
    pub(crate) fn new(stated: Option<Checksum>, offset: u64) -> Verification {
        let (running, stated) = match offset {
            0 => (stated, None),
            _ => (None, stated),
        };
        Verification {
            running,
            stated,
            is_verified: false,
        }
    }

    /// Returns whether the storage states a checksum.
    pub(crate) fn is_possible(&self) -> bool {
        self.running.is_some() || self.stated.is_some()
    }

    pub(crate) fn update(&mut self, bytes: &[u8]) {
        if let Some(running) = &mut self.running {
            running.update(bytes);
        }
    }

    pub(crate) fn state(&self) -> Option<Vec<u8>> {
        self.running.as_ref().map(Checksum::state)
    }

    /// Continues at the state of an earlier read.
    pub(crate) fn resume(&mut self, state: &[u8]) {
        self.running = self.stated.as_ref().and_then(|stated| stated.resume(state));
    }

    /// Compares at the end of the file. Returns the checksum if the bytes are others.
    pub(crate) fn finish(&mut self) -> Option<Checksum> {
        let running = self.running.take()?;
        self.is_verified = running.clone().matches();
        (!self.is_verified).then_some(running)
    }

    /// Returns whether all bytes were compared, and are those of the file.
    pub(crate) fn is_verified(&self) -> bool {
        self.is_verified
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(length: usize) -> Vec<u8> {
        (0..length).map(|at| (at * 31) as u8).collect()
    }

    fn of_parts(bytes: &[u8], size: usize) -> Checksum {
        let hashes: Vec<u8> = bytes.chunks(size).flat_map(Md5::digest).collect();
        Checksum::of_parts(Algorithm::Md5, Md5::digest(hashes).to_vec(), size as u64)
    }

    #[test]
    fn parts_are_hashed_wherever_the_chunks_end() {
        for (length, size) in [(1000, 100), (1001, 100), (99, 100), (100, 100), (250, 249)] {
            let bytes = bytes(length);
            for step in [1, 7, 100, 333, 1001] {
                let mut sum = of_parts(&bytes, size);
                bytes.chunks(step).for_each(|chunk| sum.update(chunk));
                assert!(sum.matches(), "{length} {size} {step}");
            }
        }
    }

    #[test]
    fn a_checksum_continues_where_it_was_saved() {
        let bytes = bytes(1000);
        let whole = || Checksum::new(Algorithm::Sha256, Sha256::digest(&bytes).to_vec());
        for stated in [whole(), of_parts(&bytes, 64)] {
            for at in [1, 64, 65, 500, 999] {
                let mut first = Verification::new(Some(stated.clone()), 0);
                first.update(&bytes[..at]);
                let state = first.state().expect("it is running");
                let mut second = Verification::new(Some(stated.clone()), at as u64);
                assert!(second.state().is_none());
                second.resume(&state);
                second.update(&bytes[at..]);
                assert!(second.finish().is_none() && second.is_verified(), "{at}");
                let mut wrong = Verification::new(Some(stated.clone()), at as u64);
                wrong.resume(&state);
                wrong.update(&bytes[at - 1..]);
                assert!(wrong.finish().is_some() && !wrong.is_verified(), "{at}");
            }
        }
        let state = whole().state();
        assert!(of_parts(&bytes, 64).resume(&state).is_none());
        assert!(
            of_parts(&bytes, 65)
                .resume(&of_parts(&bytes, 64).state())
                .is_none()
        );
        assert!(whole().resume(&state[..20]).is_none());
    }
}
