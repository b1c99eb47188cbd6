//! The one seam for locks: parking_lot's, or shuttle's when the hand-off is model-checked.

#[cfg(not(feature = "shuttle"))]
mod imp {
    /// How often a taken lock is looked at before the thread sleeps, and the pause before each look: some 10 µs, a score of
    /// calls.
    const LOOKS: u32 = 24;
    const PAUSES: u32 = 256;

    /// A lock that cannot be poisoned.
    #[derive(Debug, Default)]
    pub(crate) struct Mutex<T>(parking_lot::Mutex<T>);

    impl<T> Mutex<T> {
        pub(crate) fn new(value: T) -> Self {
            Mutex(parking_lot::Mutex::new(value))
        }

        #[inline]
        pub(crate) fn lock(&self) -> parking_lot::MutexGuard<'_, T> {
            match self.0.try_lock() {
                Some(guard) => guard,
                None => self.lock_contended(),
            }
        }

        /// Looks again now and then before it goes to sleep. Whoever has the lock has it for a few hundred nanoseconds, so
        /// sleeping costs more; and a thread that gets it for many calls in a row has the state in its cache, while
        /// one that takes turns with another waits for memory at every step.
        #[cold]
        fn lock_contended(&self) -> parking_lot::MutexGuard<'_, T> {
            for _ in 0..LOOKS {
                for _ in 0..PAUSES {
                    std::hint::spin_loop();
                }
                if !self.0.is_locked()
                    && let Some(guard) = self.0.try_lock()
                {
                    return guard;
                }
            }
            self.0.lock()
        }
    }
}

#[cfg(feature = "shuttle")]
mod imp {
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

pub(crate) use imp::Mutex;
