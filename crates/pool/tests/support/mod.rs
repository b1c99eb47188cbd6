//! A handler made of a closure, and a wait for a condition.

#![allow(dead_code, reason = "each test file uses its part of this")]

use futures_util::future::BoxFuture;
use headworks_pool::{Handler, Notice, Report, Run};
use std::time::Duration;
use tokio::sync::mpsc;

type Body<P> = Box<dyn for<'a> Fn(&'a mut Run<'_, P>) -> BoxFuture<'a, Report> + Send + Sync>;

pub(crate) struct Closure<P> {
    pub(crate) body: Body<P>,
    pub(crate) deadline: Option<Duration>,
    pub(crate) notices: Option<mpsc::UnboundedSender<Notice<P>>>,
}

impl<P> Closure<P> {
    pub(crate) fn new(
        body: impl for<'a> Fn(&'a mut Run<'_, P>) -> BoxFuture<'a, Report> + Send + Sync + 'static,
    ) -> Self {
        Closure {
            body: Box::new(body),
            deadline: None,
            notices: None,
        }
    }

    pub(crate) fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = Some(deadline);
        self
    }

    pub(crate) fn noticed(mut self) -> (Self, mpsc::UnboundedReceiver<Notice<P>>) {
        let (sender, receiver) = mpsc::unbounded_channel();
        self.notices = Some(sender);
        (self, receiver)
    }
}

impl<P: Send + 'static> Handler<P> for Closure<P> {
    async fn run(&self, run: &mut Run<'_, P>) -> Report {
        (self.body)(run).await
    }

    fn deadline(&self, _run: &Run<'_, P>) -> Option<Duration> {
        self.deadline
    }

    fn notice(&self, notice: Notice<P>) {
        if let Some(sender) = &self.notices {
            let _ = sender.send(notice);
        }
    }
}

/// Lets other tasks run until the condition holds. Virtual time does not pass meanwhile.
pub(crate) async fn until(what: &str, condition: impl Fn() -> bool) {
    for _ in 0..100_000 {
        if condition() {
            return;
        }
        tokio::task::yield_now().await;
    }
    panic!("never came true: {what}");
}
