//! Retries of calls that fail temporarily.

use crate::Fault;
use crate::error::{Error, Result};
use headworks_core::Backoff;
use std::time::Duration;

/// Total attempts of a call that fails temporarily.
const ATTEMPTS: u32 = 8;
/// Total attempts of a call without any response.
const SILENT_ATTEMPTS: u32 = 2;
/// Marks the error of a call without any response.
pub(crate) const NO_ANSWER: &str = "did not answer in";

/// How often and with which delays calls are retried.
pub(crate) struct RetryPolicy {
    backoff: Backoff,
}

impl Default for RetryPolicy {
    fn default() -> RetryPolicy {
        RetryPolicy {
            backoff: Backoff::new(Duration::from_millis(50), Duration::from_secs(5)),
        }
    }
}

impl RetryPolicy {
    /// Runs `once` until it succeeds or is not worth another attempt. It receives the number of the
    /// attempt.
    pub(crate) async fn run<T, F: Future<Output = Result<T>>>(
        &self,
        mut once: impl FnMut(u32) -> F,
    ) -> Result<T> {
        let mut attempt = 0;
        loop {
            attempt += 1;
            match once(attempt).await {
                Ok(done) => return Ok(done),
                Err(error) => self.wait_or_fail(attempt, error).await?,
            }
        }
    }

    /// Waits until a retry is worthwhile, or returns the error.
    pub(crate) async fn wait_or_fail(&self, attempt: u32, error: Error) -> Result<()> {
        let is_silent = error.cause().contains(NO_ANSWER);
        if attempt >= ATTEMPTS || (is_silent && attempt >= SILENT_ATTEMPTS) {
            return Err(error);
        }
        match error.fault() {
            Fault::Temporary => {
                tokio::time::sleep(self.backoff.delay(attempt, fastrand::u64(..))).await;
                Ok(())
            }
            // The limiter delays all calls alike.
            Fault::Overload(_) => Ok(()),
            _ => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    #[tokio::test(start_paused = true)]
    async fn a_silent_server_is_given_up_sooner_than_a_failing_one() {
        let retries = RetryPolicy::default();
        let failed = |message: &str| Error::new(ErrorKind::Temporary, "read", b"x", message);
        let silent = format!("http://h {NO_ANSWER} 60 s");
        assert!(retries.wait_or_fail(1, failed(&silent)).await.is_ok());
        assert!(
            retries
                .wait_or_fail(SILENT_ATTEMPTS, failed(&silent))
                .await
                .is_err()
        );
        assert!(
            retries
                .wait_or_fail(SILENT_ATTEMPTS, failed("reset"))
                .await
                .is_ok()
        );
        assert!(
            retries
                .wait_or_fail(ATTEMPTS, failed("reset"))
                .await
                .is_err()
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_permanent_failure_is_not_retried() {
        let attempts = async |kind| {
            let mut attempts = 0;
            let done: Result<()> = RetryPolicy::default()
                .run(|attempt| {
                    attempts = attempt;
                    std::future::ready(Err(Error::new(kind, "read", b"x", "no")))
                })
                .await;
            assert!(done.is_err());
            attempts
        };
        assert_eq!(attempts(ErrorKind::Denied).await, 1);
        assert_eq!(attempts(ErrorKind::Temporary).await, ATTEMPTS);
    }
}
