//! The one seam for locks: spin's, with a wait of our own, or shuttle's when the hand-off is model-checked.

#[cfg(not(feature = "shuttle"))]
mod imp {
    use spin::mutex::spin::{SpinMutex, SpinMutexGuard};
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::time::{Duration, Instant};

    /// How long to look on: a few calls, also when each waits for memory.
    const PAUSE: Duration = Duration::from_micros(2);
    /// So many calls in that time follow each other without a gap.
    const STREAM: u32 = 3;
    /// How long to stay out of the way of a stream of calls: a thousand of them. Systems make it some 50 µs more.
    const NAP: Duration = Duration::from_micros(400);
    /// Looks after that, each a tenth of a microsecond.
    const LOOKS: u32 = 100;
    const LOOK: Duration = Duration::from_nanos(100);
    /// How long to sleep after so many: who has the lock has lost the processor.
    const AWAY: Duration = Duration::from_micros(50);

    /// By the clock: how long the processor's own pause takes differs tenfold.
    fn pause(time: Duration) {
        let begun = Instant::now();
        while begun.elapsed() < time {
            std::hint::spin_loop();
        }
    }

    /// A lock that cannot be poisoned. To give it back is a plain store: nobody is woken, because whoever waits looks again.
    #[derive(Debug, Default)]
    pub(crate) struct Mutex<T> {
        /// How often it was taken; written by who has it.
        taken: AtomicU32,
        inner: SpinMutex<T>,
    }

    impl<T> Mutex<T> {
        pub(crate) fn new(value: T) -> Self {
            Mutex {
                taken: AtomicU32::new(0),
                inner: SpinMutex::new(value),
            }
        }

        #[inline]
        pub(crate) fn lock(&self) -> SpinMutexGuard<'_, T> {
            let guard = match self.inner.try_lock() {
                Some(guard) => guard,
                None => self.lock_contended(),
            };
            let taken = self.taken.load(Ordering::Relaxed);
            self.taken.store(taken.wrapping_add(1), Ordering::Relaxed);
            guard
        }

        /// Whoever has the lock has it for a few hundred nanoseconds, so a thread that finds it taken looks again before it
        /// sleeps. If others take it without a gap, it stays away for a while: a thread that makes many calls in a
        /// row has the state in its cache, while threads that take turns wait for memory at every step.
        #[cold]
        fn lock_contended(&self) -> SpinMutexGuard<'_, T> {
            let before = self.taken.load(Ordering::Relaxed);
            pause(PAUSE);
            if self.taken.load(Ordering::Relaxed).wrapping_sub(before) >= STREAM {
                std::thread::sleep(NAP);
            }
            loop {
                for _ in 0..LOOKS {
                    if !self.inner.is_locked()
                        && let Some(guard) = self.inner.try_lock()
                    {
                        return guard;
                    }
                    pause(LOOK);
                }
                std::thread::sleep(AWAY);
            }
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
