//! A request that has its permit, and what happens to it if its client disconnects.
//!
//! To close the upstream's connection would end the request at once, but nobody would know what the
//! upstream has generated. So the upstream is told that nobody waits, and the call goes on in the
//! background until it responds or closes the connection. The permit is held until then: the
//! upstream may be working for that long.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use headworks_h1::CallProgress;
use headworks_pool::Permit;
use http::Response;
use tokio_util::task::TaskTracker;

use super::body::GatewayBody;
use super::request::ScheduledRequest;

/// The calls of one request to its upstreams.
pub(super) struct RunningRequest {
    /// `None` after its end. Boxed, so that it can go on elsewhere, and so that a queued request
    /// does not hold the space that only a running one needs.
    calls: Option<Pin<Box<dyn Future<Output = Response<GatewayBody>> + Send>>>,
    progress: Arc<CallProgress>,
    abandoned: TaskTracker,
}

impl RunningRequest {
    pub(super) fn new(request: Box<ScheduledRequest>, permit: Permit) -> RunningRequest {
        RunningRequest {
            progress: request.progress.clone(),
            abandoned: request.shared.abandoned.clone(),
            calls: Some(Box::pin(run(request, permit))),
        }
    }
}

async fn run(mut request: Box<ScheduledRequest>, permit: Permit) -> Response<GatewayBody> {
    match request.attempts(permit).await {
        Ok(response) => response,
        // `drop` books a request that an upstream has and nobody waits for.
        Err(_) if request.progress.is_abandoned() && request.progress.is_sent() => {
            Response::new(GatewayBody::Whole(None))
        }
        Err(problem) => request.fail(&problem),
    }
}

impl Future for RunningRequest {
    type Output = Response<GatewayBody>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Response<GatewayBody>> {
        let calls = self.calls.as_mut().expect("polled after its end");
        let response = std::task::ready!(calls.as_mut().poll(cx));
        self.calls = None;
        Poll::Ready(response)
    }
}

impl Drop for RunningRequest {
    fn drop(&mut self) {
        let Some(calls) = self.calls.take() else {
            return;
        };
        // Without a runtime, the process is about to exit.
        if self.progress.can_half_close() && tokio::runtime::Handle::try_current().is_ok() {
            self.progress.abandon();
            // Dropping the response reads the rest of it.
            self.abandoned.spawn(async move { drop(calls.await) });
        }
    }
}
