//! What waits for the writer: bounded by rows, so that folders of any size take the same memory,
//! and handed over all at once.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Rows that may wait before whoever brings more has to.
const MAX_ROWS: usize = 16 * 1024;

pub(super) struct WriteQueue<T> {
    state: Mutex<QueueState<T>>,
    not_full: Condvar,
    not_empty: Condvar,
}

struct QueueState<T> {
    items: VecDeque<T>,
    rows: usize,
    /// Nothing more will come.
    finished: bool,
    /// Nobody will take anything any more.
    closed: bool,
}

impl<T> Default for WriteQueue<T> {
    fn default() -> Self {
        WriteQueue {
            state: Mutex::new(QueueState {
                items: VecDeque::new(),
                rows: 0,
                finished: false,
                closed: false,
            }),
            not_full: Condvar::new(),
            not_empty: Condvar::new(),
        }
    }
}

impl<T> WriteQueue<T> {
    fn lock(&self) -> MutexGuard<'_, QueueState<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a piece of so many rows at the end; blocks while too many wait. Drops it if nobody will
    /// take it.
    pub(super) fn push(&self, rows: usize, item: T) {
        let mut state = self.lock();
        while state.rows >= MAX_ROWS && !state.closed {
            state = self
                .not_full
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
        if state.closed || state.finished {
            drop(state);
            return; // the piece is dropped here, without the lock
        }
        state.rows += rows.max(1);
        state.items.push_back(item);
        self.not_empty.notify_one();
    }

    /// Everything that waits. If nothing does, the first that comes within `timeout` (for ever,
    /// without it); `None` when nothing more will come.
    pub(super) fn pop_all(&self, timeout: Option<Duration>) -> Option<VecDeque<T>> {
        let until = timeout.map(|timeout| Instant::now() + timeout);
        let mut state = self.lock();
        while state.items.is_empty() && !state.finished {
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            state = match left {
                Some(Duration::ZERO) => return Some(VecDeque::new()),
                Some(left) => {
                    let waited = self.not_empty.wait_timeout(state, left);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
                None => self
                    .not_empty
                    .wait(state)
                    .unwrap_or_else(PoisonError::into_inner),
            };
        }
        if state.items.is_empty() {
            return None;
        }
        state.rows = 0;
        self.not_full.notify_all();
        Some(std::mem::take(&mut state.items))
    }

    /// Whether nothing waits, and nothing more will come.
    pub(super) fn is_drained(&self) -> bool {
        let state = self.lock();
        state.finished && state.items.is_empty()
    }

    /// Nothing more will come.
    pub(super) fn finish(&self) {
        self.lock().finished = true;
        self.not_empty.notify_all();
    }

    /// Nobody will take anything any more; what waits is dropped.
    pub(super) fn close(&self) {
        let mut state = self.lock();
        state.closed = true;
        let dropped = std::mem::take(&mut state.items);
        self.not_full.notify_all();
        drop(state);
        drop(dropped);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn what_waits_is_taken_in_order_and_all_at_once() {
        let queue = WriteQueue::default();
        (0..3).for_each(|n| queue.push(1, n));
        assert_eq!(queue.pop_all(None), Some([0, 1, 2].into()));
        assert_eq!(queue.pop_all(Some(Duration::ZERO)), Some(VecDeque::new()));
        queue.push(1, 3);
        queue.finish();
        assert_eq!(queue.pop_all(None), Some([3].into()));
        assert_eq!(queue.pop_all(None), None);
    }

    #[test]
    fn too_many_rows_wait_for_room_and_a_closed_queue_lets_go() {
        let queue = Arc::new(WriteQueue::default());
        queue.push(MAX_ROWS, 1);
        let other = queue.clone();
        let second = std::thread::spawn(move || other.push(1, 2));
        assert_eq!(queue.pop_all(None), Some([1].into()));
        assert_eq!(queue.pop_all(None), Some([2].into()));
        second.join().unwrap();
        queue.push(MAX_ROWS, 3);
        let other = queue.clone();
        let third = std::thread::spawn(move || other.push(1, 4));
        queue.close();
        third.join().unwrap();
    }
}
