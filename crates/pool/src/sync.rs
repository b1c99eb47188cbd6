//! The one place for locks: the standard library's mutex, or shuttle's when the hand-off is
//! model-checked.
//!
//! The standard mutex spins for a moment and then parks the thread in the kernel, so that a thread
//! which holds the lock and lost its processor gets it back. It was chosen over parking_lot, which
//! yields the processor several times before it parks: with more threads than processors that costs
//! more than it saves. `headworks-bench engine --only contention` measures both.

use std::sync::PoisonError;

#[cfg(feature = "shuttle")]
use shuttle::sync as locks;
#[cfg(not(feature = "shuttle"))]
use std::sync as locks;

/// A mutex without poisoning: no code of the pool's users runs under it, so a panic there is a bug
/// of ours that the next caller cannot repair.
#[derive(Debug, Default)]
pub(crate) struct Mutex<T>(locks::Mutex<T>);

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Self {
        Mutex(locks::Mutex::new(value))
    }

    #[inline]
    pub(crate) fn lock(&self) -> locks::MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
