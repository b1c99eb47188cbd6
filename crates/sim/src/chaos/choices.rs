//! The source of a walk's choices: a seed, or bytes from a fuzzer.

use headworks_synth::Rng;
use std::collections::VecDeque;

/// Makes the choices of a walk.
pub(super) enum Choices {
    Seeded(Rng),
    /// Consumes as many bytes per choice as it needs; without bytes left, the first possibility is
    /// chosen.
    Read(VecDeque<u8>),
}

impl Choices {
    pub(super) fn seeded(seed: u64) -> Self {
        Choices::Seeded(Rng::new(seed))
    }

    pub(super) fn read(bytes: &[u8]) -> Self {
        Choices::Read(bytes.iter().copied().collect())
    }

    /// Whether all bytes are consumed.
    pub(super) fn is_spent(&self) -> bool {
        matches!(self, Choices::Read(bytes) if bytes.is_empty())
    }

    /// A number below `bound`.
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        match self {
            Choices::Seeded(rng) => rng.below(bound),
            Choices::Read(bytes) => {
                // As few bytes as possible, so that every byte a fuzzer changes has an effect.
                let needed = (64 - bound.saturating_sub(1).leading_zeros()).div_ceil(8);
                number(bytes, needed as usize) % bound.max(1)
            }
        }
    }

    pub(super) fn next_u64(&mut self) -> u64 {
        match self {
            Choices::Seeded(rng) => rng.next_u64(),
            Choices::Read(bytes) => number(bytes, 8),
        }
    }
}

fn number(bytes: &mut VecDeque<u8>, count: usize) -> u64 {
    let taken = bytes.drain(..count.min(bytes.len()));
    taken.fold(0, |number, byte| number << 8 | u64::from(byte))
}
