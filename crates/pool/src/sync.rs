//! The one place for locks: parking_lot's, or shuttle's when the hand-off is model-checked.
//!
//! parking_lot spins for a moment and then parks the thread in the kernel, so that a thread which
//! holds the lock and lost its processor gets it back. `headworks-bench engine` measures it beside
//! std's (ADR 28).

#[cfg(not(feature = "shuttle"))]
pub(crate) use parking_lot::Mutex;

#[cfg(feature = "shuttle")]
mod model {
    /// A lock whose every acquisition is a point where another task may go first.
    #[derive(Debug, Default)]
    pub(crate) struct Mutex<T>(shuttle::sync::Mutex<T>);

    impl<T> Mutex<T> {
        pub(crate) fn new(value: T) -> Self {
            Mutex(shuttle::sync::Mutex::new(value))
        }

        pub(crate) fn lock(&self) -> shuttle::sync::MutexGuard<'_, T> {
            self.0
                .lock()
                .unwrap_or_else(std::sync::PoisonError::into_inner)
        }
    }
}

#[cfg(feature = "shuttle")]
pub(crate) use model::Mutex;
