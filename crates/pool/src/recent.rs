//! The time, from a clock that is not read anew for calls that follow each other at once.
//!
//! Reading the system's clock takes some 35 ns, and a job needs it twice: a third of what the core takes. The processor's
//! cycle counter takes a third of that. It does not tell the time here, for which it would have to be gauged; it only
//! shows that hardly any has passed since this thread last read the clock, and then that reading still holds.

use std::cell::Cell;
use std::sync::LazyLock;
use std::time::Instant;

/// For how many cycles a reading holds: two to four microseconds.
const HOLDS: u64 = 1 << 13;

thread_local! {
    /// The cycle counter, and the time that was read then.
    static LAST: Cell<(u64, u64)> = const { Cell::new((0, 0)) };
}

/// Nanoseconds since the first reading in this process, at most a few thousand behind.
#[inline]
pub(crate) fn nanos() -> u64 {
    let cycles = counter::cycles();
    let (read_at, nanos) = LAST.get();
    // One that went back is far ahead, as this subtracts.
    if cycles.wrapping_sub(read_at) < HOLDS {
        return nanos;
    }
    read(cycles)
}

#[inline(never)]
fn read(cycles: u64) -> u64 {
    static FIRST: LazyLock<Instant> = LazyLock::new(Instant::now);
    static STEADY: LazyLock<bool> = LazyLock::new(counter::is_steady);
    let nanos = u64::try_from(FIRST.elapsed().as_nanos()).unwrap_or(u64::MAX);
    if *STEADY {
        LAST.set((cycles, nanos));
    }
    nanos
}

#[cfg(target_arch = "x86_64")]
mod counter {
    use std::arch::x86_64::{__cpuid, _rdtsc};

    #[expect(unsafe_code, reason = "the standard library has no safe name for it")]
    #[inline]
    pub(super) fn cycles() -> u64 {
        // SAFETY: every processor of this kind has the instruction, and it touches no memory.
        unsafe { _rdtsc() }
    }

    /// Whether it goes on at the same pace when the processor sleeps or changes its speed.
    pub(super) fn is_steady() -> bool {
        const HIGHEST: u32 = 0x8000_0000;
        const POWER: u32 = 0x8000_0007;
        const INVARIANT: u32 = 1 << 8;
        __cpuid(HIGHEST).eax >= POWER && __cpuid(POWER).edx & INVARIANT != 0
    }
}

/// Elsewhere the clock is read every time.
#[cfg(not(target_arch = "x86_64"))]
mod counter {
    pub(super) fn cycles() -> u64 {
        u64::MAX
    }

    pub(super) fn is_steady() -> bool {
        false
    }
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;

    /// What no clock of this process says.
    const MARK: u64 = u64::MAX;

    fn seen_after(cycles: u64) -> u64 {
        LAST.set((cycles, MARK));
        nanos()
    }

    #[test]
    fn a_reading_holds_for_a_moment() {
        // A thread may lose the processor between the two, though not every time.
        assert!((0..1000).any(|_| seen_after(counter::cycles()) == MARK));
    }

    #[test]
    fn an_old_reading_or_one_from_the_future_does_not() {
        let now = counter::cycles();
        for cycles in [now - HOLDS, now + (1 << 40), 0] {
            assert_ne!(seen_after(cycles), MARK);
        }
    }

    #[test]
    fn time_goes_on() {
        let first = nanos();
        while nanos() == first {}
        assert!(nanos() > first && nanos() <= read(counter::cycles()));
    }
}
