//! Other engines, each with its best settings.

use super::{FLOWS, PRODUCERS, TARGETS, Work, runtime};
use crate::measure::{Timing, measure};
use apalis_core::backend::memory::{MemorySink, MemoryStorage};
use apalis_core::task::Task;
use apalis_core::worker::builder::WorkerBuilder;
use apalis_core::worker::context::WorkerContext;
use futures_channel::mpsc::unbounded;
use futures_util::{SinkExt, StreamExt};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// apalis with its in-memory storage. Its sink, which assigns the id of a task, fails if two
/// threads send at once. Therefore every producer has its own sink on the same channel.
pub(crate) fn apalis(jobs: u64) -> Timing {
    let runtime = runtime();
    measure(jobs, || {
        runtime.block_on(async {
            let (sender, receiver) = unbounded::<Task<Work>>();
            let sink = || {
                let sender = Box::new(sender.clone().sink_map_err(Into::into));
                MemorySink::new(Arc::new(futures_util::lock::Mutex::new(sender)))
            };
            let storage = MemoryStorage::new_with(sink(), receiver.boxed());
            for producer in 0..PRODUCERS {
                let mut sink = sink();
                tokio::spawn(async move {
                    for n in (producer..jobs).step_by(PRODUCERS as usize) {
                        let task = Task::new(Work::new(n, FLOWS, TARGETS));
                        sink.feed(task).await.expect("the receiver lives");
                    }
                });
            }
            let done = Arc::new(AtomicU64::new(0));
            let worker = WorkerBuilder::new("bench").backend(storage).build(
                move |_: Work, worker: WorkerContext| {
                    let done = done.clone();
                    async move {
                        if done.fetch_add(1, Ordering::Relaxed) + 1 == jobs {
                            worker.stop().expect("it runs");
                        }
                    }
                },
            );
            tokio::spawn(worker.run())
                .await
                .expect("it ends")
                .expect("nothing fails");
        });
    })
}
