//! Polls a task again at once that woke itself while it was polled.
//!
//! hyper hands a request's body to our handler inside one task, and wakes that task by doing so, although it goes on to poll
//! the handler. The runtime takes the wake for a wish to yield, queues the task anew and wakes an idle thread to look
//! for it: two system calls and a change of threads for every small request.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll, Wake, Waker};

/// After so many times in a row others get a turn.
const MOST: usize = 8;

const IDLE: u8 = 0;
const POLLING: u8 = 1;
const WOKEN: u8 = 2;

/// A future that is polled again when it was woken meanwhile.
pub(super) struct Repoll<F> {
    future: Pin<Box<F>>,
    bell: Option<Arc<Bell>>,
}

/// Passes wakes on, except those that come while the future is polled.
struct Bell {
    task: Waker,
    state: AtomicU8,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let seen = self
            .state
            .compare_exchange(POLLING, WOKEN, Ordering::AcqRel, Ordering::Acquire);
        if seen == Err(IDLE) {
            self.task.wake_by_ref();
        }
    }
}

impl<F: Future> Repoll<F> {
    pub(super) fn new(future: F) -> Repoll<F> {
        Repoll {
            future: Box::pin(future),
            bell: None,
        }
    }
}

impl<F: Future> Future for Repoll<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = &mut *self;
        let bell = match this.bell.take() {
            Some(bell) if bell.task.will_wake(cx.waker()) => bell,
            _ => Arc::new(Bell {
                task: cx.waker().clone(),
                state: AtomicU8::new(IDLE),
            }),
        };
        let waker = Waker::from(bell.clone());
        let mut inner = Context::from_waker(&waker);
        for _ in 0..MOST {
            bell.state.store(POLLING, Ordering::Release);
            if let Poll::Ready(output) = this.future.as_mut().poll(&mut inner) {
                bell.state.store(IDLE, Ordering::Release);
                return Poll::Ready(output);
            }
            if bell.state.swap(IDLE, Ordering::AcqRel) == POLLING {
                this.bell = Some(bell);
                return Poll::Pending;
            }
        }
        cx.waker().wake_by_ref();
        this.bell = Some(bell);
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;
    use std::sync::atomic::AtomicUsize;

    /// Counts how often its task was woken.
    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn who_wakes_itself_is_polled_again_and_the_task_is_not_woken() {
        let (count, mut polls) = (Arc::new(Count::default()), 0);
        let waker = Waker::from(count.clone());
        let mut future = Repoll::new(poll_fn(|cx| {
            polls += 1;
            cx.waker().wake_by_ref();
            if polls < 3 {
                Poll::Pending
            } else {
                Poll::Ready(polls)
            }
        }));
        let polled = Pin::new(&mut future).poll(&mut Context::from_waker(&waker));
        assert_eq!(polled, Poll::Ready(3));
        assert_eq!(count.0.load(Ordering::SeqCst), 0);
    }

    #[test]
    fn who_always_wakes_itself_gives_others_a_turn() {
        let (count, mut polls) = (Arc::new(Count::default()), 0);
        let waker = Waker::from(count.clone());
        let mut future = Repoll::new(poll_fn(|cx| {
            polls += 1;
            cx.waker().wake_by_ref();
            Poll::<()>::Pending
        }));
        assert!(
            Pin::new(&mut future)
                .poll(&mut Context::from_waker(&waker))
                .is_pending()
        );
        drop(future);
        assert_eq!((polls, count.0.load(Ordering::SeqCst)), (MOST, 1));
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn no_wake_from_another_thread_is_lost() {
        for _ in 0..200 {
            let (send, mut receive) = tokio::sync::mpsc::channel::<u32>(1);
            let sender = tokio::spawn(async move {
                for n in 0..50 {
                    send.send(n).await.unwrap();
                }
            });
            let received = Repoll::new(async move {
                let mut sum = 0;
                while let Some(n) = receive.recv().await {
                    sum += n;
                }
                sum
            });
            let sum = tokio::time::timeout(std::time::Duration::from_secs(30), received).await;
            assert_eq!(sum, Ok(1225));
            sender.await.unwrap();
        }
    }
}
