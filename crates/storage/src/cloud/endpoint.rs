//! An endpoint: calls to it are counted, limited and retried.

use super::body::collect_checked;
use super::limiter::{Limiter, LimiterPermit, Limits};
use super::retries::{NO_ANSWER, RetryPolicy};
use super::{Call, StreamedBody, collect};
use crate::backend::Requests;
use crate::error::{Error, ErrorKind, Result};
use crate::{BoxFuture, Fault};
use bytes::Bytes;
use headworks_outbound::Outbound;
use headworks_outbound::error_chain;
use http::{HeaderMap, Method, Response, StatusCode};
use hyper::body::{Body, Incoming};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::time::Duration;

/// Timeouts for the headers of a response: to a read, and to a write that may keep the service
/// busy. And the minimum rate that is assumed for an upload.
const READ_TIMEOUT: Duration = Duration::from_secs(60);
const WRITE_TIMEOUT: Duration = Duration::from_secs(300);
const MIN_UPLOAD_RATE: u64 = 32 << 10;
/// Maximum size of a response that is read whole.
const MAX_BODY: usize = 64 << 20;

/// A protocol: how it signs a call, and how it classifies an error response.
pub(crate) trait Protocol: Send + Sync {
    /// Returns the headers to send, with the authentication.
    fn sign<'a>(&'a self, call: &'a Call) -> BoxFuture<'a, Result<HeaderMap>>;

    /// Returns whether a status is a success.
    fn is_success(&self, status: StatusCode) -> bool {
        status.is_success()
    }

    /// Returns how a rejected call can still succeed. Rejected credentials are discarded.
    fn recover(&self, _call: &Call, _signed: &HeaderMap, _rejection: &Rejection<'_>) -> Recovery {
        Recovery::Impossible
    }

    /// Returns the kind and the message of an error response.
    fn classify(&self, status: StatusCode, headers: &HeaderMap, body: &[u8])
    -> (ErrorKind, String);
}

/// How a rejected call can still succeed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Recovery {
    /// By nothing that the client can do.
    Impossible,
    /// Later: the credentials are renewed, though not as often as they are rejected.
    Later,
    /// At once, because it will be signed in another way.
    Repeat,
    /// At once, at another origin.
    RepeatAt(String),
}

/// An error response.
pub(crate) struct Rejection<'a> {
    pub(crate) status: StatusCode,
    pub(crate) headers: &'a HeaderMap,
    pub(crate) body: &'a [u8],
}

/// A call that failed.
struct FailedCall {
    error: Error,
    recovery: Recovery,
}

impl FailedCall {
    /// Returns the call to send instead, if that may succeed at once.
    fn repeated(&self, call: &Call) -> Option<Call> {
        match &self.recovery {
            Recovery::Impossible | Recovery::Later => None,
            Recovery::Repeat => Some(call.clone()),
            Recovery::RepeatAt(origin) => Some(Call {
                origin: origin.clone(),
                ..call.clone()
            }),
        }
    }

    /// Returns the error of a call that is not sent again. Credentials that are renewed may be
    /// accepted the next time, whatever the service says about these.
    fn into_error(self, call: &Call) -> Error {
        match self.recovery {
            Recovery::Later | Recovery::Repeat | Recovery::RepeatAt(_) => {
                call.failure(ErrorKind::Temporary, self.error.cause())
            }
            Recovery::Impossible => self.error,
        }
    }
}

impl From<Error> for FailedCall {
    fn from(error: Error) -> FailedCall {
        FailedCall {
            error,
            recovery: Recovery::Impossible,
        }
    }
}

/// A streamed response. It holds its concurrency permit until it is dropped.
pub(crate) struct StreamedResponse {
    pub(crate) headers: HeaderMap,
    pub(crate) body: Incoming,
    _permit: LimiterPermit,
}

/// A response that was read whole.
#[derive(Debug)]
pub(crate) struct FullResponse {
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

/// An endpoint, through which all calls go.
pub(crate) struct Endpoint {
    outbound: Outbound,
    limiter: Limiter,
    pub(crate) retries: RetryPolicy,
    counts: Mutex<BTreeMap<&'static str, u64>>,
}

impl Endpoint {
    pub(crate) fn new(outbound: Outbound, limits: Limits) -> Endpoint {
        Endpoint {
            outbound,
            limiter: Limiter::new(limits),
            retries: RetryPolicy::default(),
            counts: Mutex::default(),
        }
    }

    /// Returns the number of calls by kind, including failed ones.
    pub(crate) fn requests(&self) -> Requests {
        self.counts.lock().iter().map(|(k, n)| (*k, *n)).collect()
    }

    /// Sends a call, and leaves the response to be streamed.
    pub(crate) async fn open(
        &self,
        protocol: &dyn Protocol,
        call: &Call,
    ) -> Result<StreamedResponse> {
        self.retries
            .run(|_| async move {
                let (permit, response) = self.send(protocol, call).await?;
                let (head, body) = response.into_parts();
                Ok(StreamedResponse {
                    headers: head.headers,
                    body,
                    _permit: permit,
                })
            })
            .await
    }

    /// Sends a call, and reads the response.
    pub(crate) async fn fetch(&self, protocol: &dyn Protocol, call: &Call) -> Result<FullResponse> {
        self.fetch_observed(protocol, call, |_| {}).await
    }

    /// Sends a call, and reports every failure after which the call may have been executed
    /// nevertheless.
    pub(crate) async fn fetch_observed(
        &self,
        protocol: &dyn Protocol,
        call: &Call,
        mut on_failure: impl FnMut(&Error) + Send,
    ) -> Result<FullResponse> {
        let mut attempt = 0;
        loop {
            attempt += 1;
            let error = match self.read_once(protocol, call).await {
                Ok(response) => return Ok(response),
                Err(error) => error,
            };
            if error.fault() == Fault::Temporary {
                on_failure(&error);
            }
            self.retries.wait_or_fail(attempt, error).await?;
        }
    }

    /// Sends a call once, and reads the response.
    pub(crate) async fn read_once(
        &self,
        protocol: &dyn Protocol,
        call: &Call,
    ) -> Result<FullResponse> {
        let (_permit, response) = self.send(protocol, call).await?;
        let (head, body) = response.into_parts();
        let body = collect_checked(body, MAX_BODY, &head.headers).await;
        let body = body.map_err(|cause| call.failure(ErrorKind::Temporary, cause))?;
        if call
            .is_complete
            .is_some_and(|is_complete| !is_complete(&body))
        {
            let message = "the response is truncated";
            return Err(call.failure(ErrorKind::Temporary, message));
        }
        Ok(FullResponse {
            headers: head.headers,
            body,
        })
    }

    /// Sends a call once, with a body that is produced while it is sent.
    pub(crate) async fn stream(
        &self,
        protocol: &dyn Protocol,
        call: &Call,
        body: StreamedBody,
    ) -> Result<()> {
        let sent = self.send_once(protocol, call, body).await;
        let (_permit, response) = sent.map_err(|failed| failed.into_error(call))?;
        let read = collect(response.into_body(), MAX_BODY).await;
        read.map(drop)
            .map_err(|cause| call.failure(ErrorKind::Temporary, cause))
    }

    /// Sends a call, and once more if its credentials had expired, this machine's clock is wrong,
    /// or the service is elsewhere. That is no failure of the service, so it is no retry either: it
    /// neither waits nor counts as an attempt.
    async fn send(
        &self,
        protocol: &dyn Protocol,
        call: &Call,
    ) -> Result<(LimiterPermit, Response<Incoming>)> {
        let mut sent = self.send_once(protocol, call, call.body.clone()).await;
        let failed = sent.as_ref().err();
        if let Some(again) = failed.and_then(|failed| failed.repeated(call)) {
            sent = self.send_once(protocol, &again, call.body.clone()).await;
        }
        sent.map_err(|failed| failed.into_error(call))
    }

    async fn send_once<B>(
        &self,
        protocol: &dyn Protocol,
        call: &Call,
        body: B,
    ) -> std::result::Result<(LimiterPermit, Response<Incoming>), FailedCall>
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let permit = self.limiter.acquire().await;
        let body_size = body.size_hint().exact();
        let signed = protocol.sign(call).await?;
        let request = call.request(signed.clone(), body)?;
        *self.counts.lock().entry(call.kind).or_default() += 1;
        let size = body_size.unwrap_or(u64::from(u32::MAX));
        let timeout = match call.method {
            Method::GET | Method::HEAD => READ_TIMEOUT,
            _ => WRITE_TIMEOUT + Duration::from_secs(size / MIN_UPLOAD_RATE),
        };
        let answer = tokio::time::timeout(timeout, self.outbound.send(request)).await;
        let response = match answer {
            Ok(Ok(response)) => response,
            Ok(Err(error)) => return Err(connect_error(call, error_chain(&error)).into()),
            Err(_) => {
                let (host, seconds) = (&call.origin, timeout.as_secs());
                let message = format!("{host} {NO_ANSWER} {seconds} s");
                return Err(call.failure(ErrorKind::Temporary, message).into());
            }
        };
        if protocol.is_success(response.status()) {
            self.limiter.on_success();
            return Ok((permit, response));
        }
        let (head, body) = response.into_parts();
        let body = collect(body, 64 << 10).await.unwrap_or_default();
        let (kind, message) = protocol.classify(head.status, &head.headers, &body);
        if let ErrorKind::Overload(after) = kind {
            self.limiter.on_overload(after);
        }
        let rejection = Rejection {
            status: head.status,
            headers: &head.headers,
            body: &body,
        };
        Err(FailedCall {
            error: call.failure(kind, message),
            recovery: protocol.recover(call, &signed, &rejection),
        })
    }
}

/// Returns the error of a connection that failed. An untrusted certificate is not worth a retry.
fn connect_error(call: &Call, mut message: String) -> Error {
    if !message.contains("invalid peer certificate") {
        return call.failure(ErrorKind::Temporary, message);
    }
    message.push_str("; set SSL_CERT_FILE to its certificate authority, or for S3 AWS_CA_BUNDLE");
    call.failure(ErrorKind::Denied, message)
}
