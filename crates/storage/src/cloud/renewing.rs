//! A credential that is renewed before it expires, once for all workers.

use super::Recovery;
use crate::error::{Error, ErrorKind, Result};
use parking_lot::Mutex;
use std::sync::Arc;

/// A credential is renewed when it is valid for less than this, in seconds.
const MARGIN: i64 = 300;
/// A credential is fetched at most this often while it is valid, in seconds. A short-lived one is
/// not fetched for every request.
const INTERVAL: i64 = 60;
/// A rejected credential is discarded at most this often, in seconds. A service that rejects every
/// one must not cause a fetch per request.
const DISCARD_INTERVAL: i64 = 10;

/// The current credential.
pub(crate) struct Renewing<T> {
    state: Mutex<State<T>>,
    /// Held while the credential is fetched.
    fetching: tokio::sync::Mutex<()>,
}

struct State<T> {
    current: Option<Held<T>>,
    /// Whether there ever was one.
    had: bool,
    /// The number of fetches, and the error of the last one.
    fetches: u64,
    failure: Option<Error>,
    last_discard: Option<i64>,
}

struct Held<T> {
    value: Arc<T>,
    /// In seconds since 1970; `None` if it does not expire.
    expires: Option<i64>,
    /// The time of the last attempt to fetch it.
    fetched: i64,
}

impl<T> Default for Renewing<T> {
    fn default() -> Self {
        let state = State {
            current: None,
            had: false,
            fetches: 0,
            failure: None,
            last_discard: None,
        };
        Renewing {
            state: Mutex::new(state),
            fetching: tokio::sync::Mutex::default(),
        }
    }
}

impl<T> Renewing<T> {
    /// Returns the credential. If it expires soon, `fetch` returns another one and its expiry.
    pub(crate) async fn get<F>(&self, fetch: impl FnOnce() -> F) -> Result<Arc<T>>
    where
        F: Future<Output = Result<(T, Option<i64>)>>,
    {
        self.get_at(now(), fetch).await
    }

    async fn get_at<F>(&self, now: i64, fetch: impl FnOnce() -> F) -> Result<Arc<T>>
    where
        F: Future<Output = Result<(T, Option<i64>)>>,
    {
        if let Some(current) = self.current(now) {
            return Ok(current);
        }
        let fetches = self.state.lock().fetches;
        let _one_at_a_time = self.fetching.lock().await;
        if let Some(current) = self.current(now) {
            return Ok(current);
        }
        // A hundred workers must not wait for as many timeouts of a service that is not there.
        if let Some(failure) = self.failure_since(fetches) {
            return Err(failure);
        }
        let fetched = fetch().await;
        let mut state = self.state.lock();
        state.fetches += 1;
        state.failure = None;
        match fetched {
            Ok((value, expires)) => {
                let value = Arc::new(value);
                state.had = true;
                state.current = Some(Held {
                    value: value.clone(),
                    expires,
                    fetched: now,
                });
                Ok(value)
            }
            Err(error) => {
                // A service that fails for a moment does not matter while the last one is valid.
                let held = state.current.as_mut();
                let valid = held.filter(|held| held.expires.is_none_or(|expires| expires > now));
                if let Some(held) = valid {
                    held.fetched = now;
                    return Ok(held.value.clone());
                }
                // It worked before, so it may work again.
                let error = if state.had { temporary(&error) } else { error };
                state.failure = Some(error.clone());
                Err(error)
            }
        }
    }

    /// Returns the error of the last fetch, if there was any since that number of them.
    fn failure_since(&self, fetches: u64) -> Option<Error> {
        let state = self.state.lock();
        state.failure.clone().filter(|_| state.fetches > fetches)
    }

    fn current(&self, now: i64) -> Option<Arc<T>> {
        let state = self.state.lock();
        let held = state.current.as_ref()?;
        let margin = if now - held.fetched < INTERVAL {
            0
        } else {
            MARGIN
        };
        let is_valid = held.expires.is_none_or(|expires| expires - margin > now);
        is_valid.then(|| held.value.clone())
    }

    /// Discards the credential if it is the one that a service rejected. Returns when there may be
    /// another one: at once if it was discarded, or renewed since.
    pub(crate) fn reject(&self, is_rejected: impl FnOnce(&T) -> bool) -> Recovery {
        self.reject_at(now(), is_rejected)
    }

    fn reject_at(&self, now: i64, is_rejected: impl FnOnce(&T) -> bool) -> Recovery {
        let mut state = self.state.lock();
        let held = state.current.as_ref();
        if !held.is_some_and(|held| is_rejected(&held.value)) {
            return Recovery::Repeat;
        }
        let is_due = |last: i64| now - last >= DISCARD_INTERVAL;
        let discards = state.last_discard.is_none_or(is_due);
        if !discards {
            return Recovery::Later;
        }
        state.last_discard = Some(now);
        state.current = None;
        Recovery::Repeat
    }
}

/// Returns the time in seconds since 1970.
pub(crate) fn now() -> i64 {
    jiff::Timestamp::now().as_second()
}

fn temporary(error: &Error) -> Error {
    Error::new(
        ErrorKind::Temporary,
        "renew the credentials for",
        b"this storage",
        error.to_string(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicI64, Ordering};

    /// A service whose credentials are numbers, each valid for a thousand seconds.
    #[derive(Default)]
    struct Service(AtomicI64);

    impl Service {
        async fn fetch(&self, now: i64) -> Result<(i64, Option<i64>)> {
            tokio::task::yield_now().await;
            let number = self.0.fetch_add(1, Ordering::Relaxed) + 1;
            Ok((number, Some(now + 1000)))
        }
    }

    fn down() -> Result<(i64, Option<i64>)> {
        Err(Error::new(ErrorKind::Denied, "fetch", b"x", "down"))
    }

    #[tokio::test]
    async fn a_credential_is_renewed_before_it_expires_once_for_all() {
        let (renewing, service) = (Renewing::default(), Service::default());
        for (now, expected) in [(0, 1), (600, 1), (699, 1), (701, 2), (1300, 2), (1402, 3)] {
            let gets = (0..9).map(|_| renewing.get_at(now, || service.fetch(now)));
            for got in futures_util::future::join_all(gets).await {
                assert_eq!(*got.unwrap(), expected, "at {now}");
            }
        }
    }

    #[tokio::test]
    async fn one_that_is_short_lived_is_not_fetched_for_every_request() {
        let (renewing, service) = (Renewing::default(), Service::default());
        let short = async |now| service.fetch(now).await.map(|(n, _)| (n, Some(now + 100)));
        for (now, expected) in [(0, 1), (59, 1), (60, 2), (119, 2), (121, 3)] {
            let got = renewing.get_at(now, || short(now)).await.unwrap();
            assert_eq!(*got, expected, "at {now}");
        }
    }

    #[tokio::test]
    async fn a_service_that_is_down_does_not_matter_while_the_last_one_is_valid() {
        let (renewing, service) = (Renewing::default(), Service::default());
        let first = renewing.get_at(0, async || down()).await.unwrap_err();
        assert_eq!(first.kind(), ErrorKind::Denied, "it never worked");
        renewing.get_at(0, || service.fetch(0)).await.unwrap();
        for now in [800, 999] {
            assert_eq!(*renewing.get_at(now, async || down()).await.unwrap(), 1);
        }
        let later = renewing.get_at(1000, async || down()).await.unwrap_err();
        assert_eq!(later.kind(), ErrorKind::Temporary, "it may work again");
        assert_eq!(
            *renewing.get_at(1001, || service.fetch(1001)).await.unwrap(),
            2
        );
    }

    #[tokio::test]
    async fn workers_that_wait_for_a_failing_service_share_its_error() {
        let (renewing, asked) = (Renewing::<i64>::default(), AtomicI64::new(0));
        let fetch = async || {
            asked.fetch_add(1, Ordering::Relaxed);
            tokio::task::yield_now().await;
            down()
        };
        for round in 1..=2 {
            let gets = (0..9).map(|_| renewing.get_at(0, fetch));
            for got in futures_util::future::join_all(gets).await {
                assert!(got.is_err());
            }
            assert_eq!(
                asked.load(Ordering::Relaxed),
                round,
                "and later ones ask again"
            );
        }
    }

    #[tokio::test]
    async fn a_rejected_one_is_discarded_once() {
        let (renewing, service) = (Renewing::default(), Service::default());
        let get = async |now| *renewing.get_at(now, || service.fetch(now)).await.unwrap();
        assert_eq!(get(0).await, 1);
        let reject = |now, number| renewing.reject_at(now, |n| *n == number);
        assert_eq!(reject(5, 1), Recovery::Repeat);
        assert_eq!(reject(5, 1), Recovery::Repeat, "by another worker");
        assert_eq!(get(5).await, 2);
        assert_eq!(reject(6, 1), Recovery::Repeat, "by a slow worker");
        assert_eq!(get(6).await, 2);
        assert_eq!(reject(7, 2), Recovery::Later, "too soon");
        assert_eq!(get(7).await, 2);
        assert_eq!(reject(15, 2), Recovery::Repeat);
        assert_eq!(get(15).await, 3);
    }
}
