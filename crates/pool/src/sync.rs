//! The one seam for locks: parking_lot's, or shuttle's when the hand-off is model-checked.

#[cfg(not(feature = "shuttle"))]
mod imp {
    /// Looks at a taken lock, each after twice as long a pause as the one before.
    const SPINS: u32 = 9;

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

        /// Looks again, less and less often, before it goes to sleep: whoever has the lock has it for a few hundred
        /// nanoseconds, and a thread that keeps it for several calls in a row keeps the state in its cache.
        #[cold]
        fn lock_contended(&self) -> parking_lot::MutexGuard<'_, T> {
            for step in 0..SPINS {
                for _ in 0..1 << step {
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
