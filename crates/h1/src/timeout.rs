//! Timeout without a timer for futures that are ready at once.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use tokio::time::error::Elapsed;

/// Runs `work` with a timeout. Most futures here are ready at the first poll; only the others
/// register a timer.
///
/// # Errors
/// If the time is over first.
pub async fn timeout<W: Future>(time: Duration, work: W) -> Result<W::Output, Elapsed> {
    let mut work = pin!(work);
    let at_once = poll_fn(|cx| Poll::Ready(work.as_mut().poll(cx))).await;
    match at_once {
        Poll::Ready(done) => Ok(done),
        Poll::Pending => tokio::time::timeout(time, work).await,
    }
}
