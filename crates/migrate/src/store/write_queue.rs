//! The queue of the writer, bounded by rows, so that folders of any size use the same memory. It is
//! drained all at once.

use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Maximum number of queued rows before producers block.
const MAX_ROWS: usize = 16 * 1024;

pub(super) struct WriteQueue<T> {
    state: Mutex<QueueState<T>>,
    not_full: Condvar,
    not_empty: Condvar,
}

struct QueueState<T> {
    items: VecDeque<T>,
    rows: usize,
    /// No more items will be pushed.
    finished: bool,
    /// No more items will be popped.
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
    /// Appends an item of this many rows. Blocks while the queue is full, and drops the item if the
    /// queue is finished or closed.
    pub(super) fn push(&self, rows: usize, item: T) {
        let mut state = self.state.lock();
        while state.rows >= MAX_ROWS && !state.closed {
            self.not_full.wait(&mut state);
        }
        if state.closed || state.finished {
            drop(state);
            return; // the item is dropped without the lock held
        }
        state.rows += rows.max(1);
        state.items.push_back(item);
        self.not_empty.notify_one();
    }

    /// Pops all items. If the queue is empty, waits up to `timeout` (forever without one); returns
    /// `None` when the queue is finished and empty.
    pub(super) fn pop_all(&self, timeout: Option<Duration>) -> Option<VecDeque<T>> {
        let until = timeout.map(|timeout| Instant::now() + timeout);
        let mut state = self.state.lock();
        while state.items.is_empty() && !state.finished {
            match until {
                Some(until) if until <= Instant::now() => return Some(VecDeque::new()),
                Some(until) => drop(self.not_empty.wait_until(&mut state, until)),
                None => self.not_empty.wait(&mut state),
            }
        }
        if state.items.is_empty() {
            return None;
        }
        state.rows = 0;
        self.not_full.notify_all();
        Some(std::mem::take(&mut state.items))
    }

    /// Returns whether the queue is finished and empty.
    pub(super) fn is_drained(&self) -> bool {
        let state = self.state.lock();
        state.finished && state.items.is_empty()
    }

    /// Finishes the queue: no more items will be pushed.
    pub(super) fn finish(&self) {
        self.state.lock().finished = true;
        self.not_empty.notify_all();
    }

    /// Closes the queue: no more items will be popped, and the queued ones are dropped.
    pub(super) fn close(&self) {
        let mut state = self.state.lock();
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
    fn items_are_popped_in_order_and_all_at_once() {
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
    fn a_full_queue_blocks_and_a_closed_queue_does_not() {
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
