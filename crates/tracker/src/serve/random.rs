//! Random numbers for the announce threads.

/// An xorshift generator. It spreads responses over a swarm and need not be unpredictable.
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Random {
        // Zero is the fixed point of the generator.
        Random(seed | 1)
    }

    pub(super) fn next(&mut self) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 32) as u32
    }
}
