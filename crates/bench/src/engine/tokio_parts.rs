//! The usual building blocks of tokio: channels, or a task and a semaphore permit per job.

use super::{BOUND, FLOWS, PRODUCERS, TARGETS, Work, runtime};
use crate::measure::{Timing, measure};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::{Semaphore, mpsc, oneshot};

pub(crate) const MPSC: &str = "bare tokio mpsc";
pub(crate) const MANY: &str = "bare tokio mpsc, recv_many";
pub(crate) const SPAWN: &str = "spawn + Semaphore + oneshot";

fn produce(jobs: u64, sender: &mpsc::Sender<Work>) {
    for producer in 0..PRODUCERS {
        let sender = sender.clone();
        tokio::spawn(async move {
            for n in (producer..jobs).step_by(PRODUCERS as usize) {
                sender
                    .send(Work::new(n, FLOWS, TARGETS))
                    .await
                    .expect("the receiver lives");
            }
        });
    }
}

pub(crate) fn mpsc(jobs: u64) -> Timing {
    let runtime = runtime();
    let done = AtomicU64::new(0);
    measure(jobs, || {
        runtime.block_on(async {
            let (sender, mut receiver) = mpsc::channel(BOUND);
            produce(jobs, &sender);
            drop(sender);
            let consumer = tokio::spawn(async move {
                let mut count = 0;
                while let Some(work) = receiver.recv().await {
                    count += u64::from(std::hint::black_box(work).number > 0);
                }
                count
            });
            done.store(consumer.await.expect("it ends"), Ordering::Relaxed);
        });
    })
}

pub(crate) fn recv_many(jobs: u64) -> Timing {
    let runtime = runtime();
    measure(jobs, || {
        runtime.block_on(async {
            let (sender, mut receiver) = mpsc::channel(BOUND);
            produce(jobs, &sender);
            drop(sender);
            let consumer = tokio::spawn(async move {
                let mut batch = Vec::with_capacity(256);
                while receiver.recv_many(&mut batch, 256).await > 0 {
                    std::hint::black_box(&batch);
                    batch.clear();
                }
            });
            consumer.await.expect("it ends");
        });
    })
}

/// Eight producers. Each job is a task that waits for one of sixteen permits and replies through a
/// oneshot channel.
pub(crate) fn spawn(jobs: u64) -> Timing {
    let runtime = runtime();
    measure(jobs, || {
        runtime.block_on(async {
            let slots = Arc::new(Semaphore::new(16));
            let producers = (0..PRODUCERS).map(|producer| {
                let slots = slots.clone();
                tokio::spawn(async move {
                    for n in (producer..jobs).step_by(PRODUCERS as usize) {
                        let (answer, answered) = oneshot::channel();
                        let slots = slots.clone();
                        let work = Work::new(n, FLOWS, TARGETS);
                        tokio::spawn(async move {
                            let _slot = slots.acquire().await.expect("never closed");
                            let _ = answer.send(work.number);
                        });
                        answered.await.expect("it answers");
                    }
                })
            });
            for producer in producers.collect::<Vec<_>>() {
                producer.await.expect("it ends");
            }
        });
    })
}
