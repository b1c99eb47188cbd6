//! A pool for short disk operations that many tasks request at once: a thread takes one job after
//! the other as long as there are any. Waking a thread per job would cost more than the job.

use super::dirfd_cache::may_block;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use tokio::sync::oneshot;

/// Jobs waiting per thread before another thread is started: a network filesystem is slow with each
/// job, and handles many at once.
const JOBS_PER_THREAD: usize = 4;
/// Maximum number of threads.
const MAX_THREADS: usize = 64;

type Job = Box<dyn FnOnce() + Send>;

#[derive(Clone, Default)]
pub(super) struct BlockingPool(Arc<Mutex<PoolState>>);

#[derive(Default)]
struct PoolState {
    waiting: VecDeque<Job>,
    threads: usize,
}

impl std::fmt::Debug for BlockingPool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Steps").finish_non_exhaustive()
    }
}

impl BlockingPool {
    /// Runs a job on a blocking thread. It finishes even if its caller stops waiting.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> T {
        if may_block() {
            return work();
        }
        let (sender, receiver) = oneshot::channel();
        self.submit(Box::new(move || {
            let _ = sender.send(catch_unwind(AssertUnwindSafe(work)));
        }));
        match receiver.await.expect("a job is not dropped before it ran") {
            Ok(done) => done,
            Err(failed) => resume_unwind(failed),
        }
    }

    fn submit(&self, job: Job) {
        let mut state = self.0.lock();
        state.waiting.push_back(job);
        if state.threads < MAX_THREADS && state.waiting.len() > state.threads * JOBS_PER_THREAD {
            state.threads += 1;
            drop(state);
            let thread = PoolThread(Some(self.clone()));
            tokio::task::spawn_blocking(move || thread.work());
        }
    }

    fn next(&self) -> Option<Job> {
        let mut state = self.0.lock();
        let job = state.waiting.pop_front();
        if job.is_none() {
            state.threads -= 1;
        }
        job
    }
}

/// A requested thread. A runtime that shuts down may not start it.
struct PoolThread(Option<BlockingPool>);

impl PoolThread {
    fn work(mut self) {
        let Some(pool) = self.0.take() else { return };
        while let Some(job) = pool.next() {
            job();
        }
    }
}

impl Drop for PoolThread {
    fn drop(&mut self) {
        if let Some(pool) = &self.0 {
            pool.0.lock().threads -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc;

    #[tokio::test]
    async fn every_job_runs_once_and_returns_its_own_result() {
        let pool = BlockingPool::default();
        let count = Arc::new(AtomicUsize::new(0));
        let all = (0..1000).map(|number| {
            let (pool, count) = (pool.clone(), count.clone());
            tokio::spawn(async move {
                let job = move || {
                    count.fetch_add(1, Ordering::Relaxed);
                    number * 2
                };
                assert_eq!(pool.run(job).await, number * 2);
            })
        });
        for task in all.collect::<Vec<_>>() {
            task.await.unwrap();
        }
        assert_eq!(count.load(Ordering::Relaxed), 1000);
    }

    #[tokio::test]
    async fn a_slow_job_does_not_delay_many_others() {
        let pool = BlockingPool::default();
        let (release, held) = mpsc::channel::<()>();
        let slow = pool.clone();
        let slow = tokio::spawn(async move { slow.run(move || held.recv()).await });
        tokio::task::yield_now().await;
        let others = (0..=JOBS_PER_THREAD).map(|_| {
            let pool = pool.clone();
            tokio::spawn(async move { pool.run(|| ()).await })
        });
        for other in others.collect::<Vec<_>>() {
            other.await.unwrap();
        }
        release.send(()).unwrap();
        slow.await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn a_job_that_panics_panics_its_caller() {
        let pool = BlockingPool::default();
        let submitter = pool.clone();
        let failed = tokio::spawn(async move { submitter.run(|| panic!("no")).await });
        assert!(failed.await.unwrap_err().is_panic());
        assert_eq!(pool.run(|| 7).await, 7);
    }
}
