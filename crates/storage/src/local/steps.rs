//! Short steps on a disk, asked for by many tasks at once: a thread takes one after the other as
//! long as there are any. Waking a thread for every step would cost more than the step.

use super::near::may_block;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use tokio::sync::oneshot;

/// Steps that wait for a thread before another one helps: a disk behind a network is slow with
/// each, and takes many at once.
const EACH: usize = 4;
/// Threads at most.
const MOST: usize = 64;

type Step = Box<dyn FnOnce() + Send>;

#[derive(Clone, Default)]
pub(super) struct Steps(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    waiting: VecDeque<Step>,
    threads: usize,
}

impl std::fmt::Debug for Steps {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Steps").finish_non_exhaustive()
    }
}

impl Steps {
    /// Runs a step where it may block. It is done also if nobody waits for it any more.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> T {
        if may_block() {
            return work();
        }
        let (tell, told) = oneshot::channel();
        self.hand_in(Box::new(move || {
            let _ = tell.send(catch_unwind(AssertUnwindSafe(work)));
        }));
        match told.await.expect("a step is not dropped before it ran") {
            Ok(done) => done,
            Err(failed) => resume_unwind(failed),
        }
    }

    fn hand_in(&self, step: Step) {
        let mut state = self.0.lock();
        state.waiting.push_back(step);
        if state.threads < MOST && state.waiting.len() > state.threads * EACH {
            state.threads += 1;
            drop(state);
            let thread = Thread(Some(self.clone()));
            tokio::task::spawn_blocking(move || thread.work());
        }
    }

    fn next(&self) -> Option<Step> {
        let mut state = self.0.lock();
        let step = state.waiting.pop_front();
        if step.is_none() {
            state.threads -= 1;
        }
        step
    }
}

/// A thread that was asked for; a runtime that ends may not give it.
struct Thread(Option<Steps>);

impl Thread {
    fn work(mut self) {
        let Some(steps) = self.0.take() else { return };
        while let Some(step) = steps.next() {
            step();
        }
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        if let Some(steps) = &self.0 {
            steps.0.lock().threads -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc;

    #[tokio::test]
    async fn every_step_is_done_once_and_tells_its_own_result() {
        let steps = Steps::default();
        let count = Arc::new(AtomicUsize::new(0));
        let all = (0..1000).map(|number| {
            let (steps, count) = (steps.clone(), count.clone());
            tokio::spawn(async move {
                let step = move || {
                    count.fetch_add(1, Ordering::Relaxed);
                    number * 2
                };
                assert_eq!(steps.run(step).await, number * 2);
            })
        });
        for task in all.collect::<Vec<_>>() {
            task.await.unwrap();
        }
        assert_eq!(count.load(Ordering::Relaxed), 1000);
    }

    #[tokio::test]
    async fn a_slow_step_does_not_hold_up_many_others() {
        let steps = Steps::default();
        let (release, held) = mpsc::channel::<()>();
        let slow = steps.clone();
        let slow = tokio::spawn(async move { slow.run(move || held.recv()).await });
        tokio::task::yield_now().await;
        let others = (0..=EACH).map(|_| {
            let steps = steps.clone();
            tokio::spawn(async move { steps.run(|| ()).await })
        });
        for other in others.collect::<Vec<_>>() {
            other.await.unwrap();
        }
        release.send(()).unwrap();
        slow.await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn a_step_that_panics_does_so_where_it_was_asked_for() {
        let steps = Steps::default();
        let asking = steps.clone();
        let failed = tokio::spawn(async move { asking.run(|| panic!("no")).await });
        assert!(failed.await.unwrap_err().is_panic());
        assert_eq!(steps.run(|| 7).await, 7);
    }
}
