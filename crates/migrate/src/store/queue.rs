//! What waits for the writer: bounded by rows, so that folders of any size take the same memory,
//! and handed over all at once.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Rows that may wait before whoever brings more has to.
const ROWS: usize = 16 * 1024;

pub(super) struct Queue<T> {
    held: Mutex<Held<T>>,
    room: Condvar,
    news: Condvar,
}

struct Held<T> {
    pieces: VecDeque<T>,
    rows: usize,
    /// Nothing more will come.
    ended: bool,
    /// Nobody will take anything any more.
    closed: bool,
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        Queue {
            held: Mutex::new(Held {
                pieces: VecDeque::new(),
                rows: 0,
                ended: false,
                closed: false,
            }),
            room: Condvar::new(),
            news: Condvar::new(),
        }
    }
}

impl<T> Queue<T> {
    fn lock(&self) -> MutexGuard<'_, Held<T>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a piece of so many rows at the end; blocks while too many wait. Drops it if nobody will
    /// take it.
    pub(super) fn put(&self, rows: usize, piece: T) {
        let mut held = self.lock();
        while held.rows >= ROWS && !held.closed {
            held = self.room.wait(held).unwrap_or_else(PoisonError::into_inner);
        }
        if held.closed || held.ended {
            drop(held);
            return; // the piece is dropped here, without the lock
        }
        held.rows += rows.max(1);
        held.pieces.push_back(piece);
        self.news.notify_one();
    }

    /// Everything that waits. If nothing does, the first that comes within `patience` (for ever,
    /// without it); `None` when nothing more will come.
    pub(super) fn take(&self, patience: Option<Duration>) -> Option<VecDeque<T>> {
        let until = patience.map(|patience| Instant::now() + patience);
        let mut held = self.lock();
        while held.pieces.is_empty() && !held.ended {
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            held = match left {
                Some(Duration::ZERO) => return Some(VecDeque::new()),
                Some(left) => {
                    let waited = self.news.wait_timeout(held, left);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
                None => self.news.wait(held).unwrap_or_else(PoisonError::into_inner),
            };
        }
        if held.pieces.is_empty() {
            return None;
        }
        held.rows = 0;
        self.room.notify_all();
        Some(std::mem::take(&mut held.pieces))
    }

    /// Whether nothing waits, and nothing more will come.
    pub(super) fn has_ended(&self) -> bool {
        let held = self.lock();
        held.ended && held.pieces.is_empty()
    }

    /// Nothing more will come.
    pub(super) fn end(&self) {
        self.lock().ended = true;
        self.news.notify_all();
    }

    /// Nobody will take anything any more; what waits is dropped.
    pub(super) fn close(&self) {
        let mut held = self.lock();
        held.closed = true;
        let dropped = std::mem::take(&mut held.pieces);
        self.room.notify_all();
        drop(held);
        drop(dropped);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn what_waits_is_taken_in_order_and_all_at_once() {
        let queue = Queue::default();
        (0..3).for_each(|n| queue.put(1, n));
        assert_eq!(queue.take(None), Some([0, 1, 2].into()));
        assert_eq!(queue.take(Some(Duration::ZERO)), Some(VecDeque::new()));
        queue.put(1, 3);
        queue.end();
        assert_eq!(queue.take(None), Some([3].into()));
        assert_eq!(queue.take(None), None);
    }

    #[test]
    fn too_many_rows_wait_for_room_and_a_closed_queue_lets_go() {
        let queue = Arc::new(Queue::default());
        queue.put(ROWS, 1);
        let other = queue.clone();
        let second = std::thread::spawn(move || other.put(1, 2));
        assert_eq!(queue.take(None), Some([1].into()));
        assert_eq!(queue.take(None), Some([2].into()));
        second.join().unwrap();
        queue.put(ROWS, 3);
        let other = queue.clone();
        let third = std::thread::spawn(move || other.put(1, 4));
        queue.close();
        third.join().unwrap();
    }
}
