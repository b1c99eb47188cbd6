//! A far side: calls to it are counted, bounded and tried again.

use super::body::collect_within;
use super::gate::{Gate, Limits, Pass};
use super::retries::{NO_ANSWER, Retries};
use super::words::causes;
use super::{Call, Piped, collect};
use crate::backend::Requests;
use crate::error::{Error, ErrorKind, Result};
use crate::{BoxFuture, Fault};
use bytes::Bytes;
use headworks_service::outbound::Outbound;
use http::{HeaderMap, Method, Response, StatusCode};
use hyper::body::{Body, Incoming};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::time::Duration;

/// How long the head of an answer may take: of what is only read, and of what the far side may be
/// at work for. And how many bytes a second are sent at least before it.
const ANSWER: Duration = Duration::from_secs(60);
const WORKED: Duration = Duration::from_secs(300);
const SLOWEST: u64 = 32 << 10;
/// No answer that is read whole is larger.
const LARGEST: usize = 64 << 20;

/// What a protocol adds to a call, and what it makes of a refusal.
pub(crate) trait Protocol: Send + Sync {
    /// The headers to send: those of the call, and who we are.
    fn sign<'a>(&'a self, call: &'a Call) -> BoxFuture<'a, Result<HeaderMap>>;

    /// Whether an answer is no refusal.
    fn is_good(&self, status: StatusCode) -> bool {
        status.is_success()
    }

    /// What a refusal means, and its words.
    fn judge(&self, status: StatusCode, headers: &HeaderMap, body: &[u8]) -> (ErrorKind, String);
}

/// A streamed answer; while it lives, its place at the far side is taken.
pub(crate) struct Answer {
    pub(crate) headers: HeaderMap,
    pub(crate) body: Incoming,
    _pass: Pass,
}

/// An answer that was read whole.
#[derive(Debug)]
pub(crate) struct Whole {
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

/// A far side: all calls to it go through here.
pub(crate) struct Endpoint {
    outbound: Outbound,
    gate: Gate,
    pub(crate) retries: Retries,
    counts: Mutex<BTreeMap<&'static str, u64>>,
}

impl Endpoint {
    pub(crate) fn new(outbound: Outbound, limits: Limits) -> Endpoint {
        Endpoint {
            outbound,
            gate: Gate::new(limits),
            retries: Retries::default(),
            counts: Mutex::default(),
        }
    }

    /// How many calls of each kind were made, those that failed among them.
    pub(crate) fn requests(&self) -> Requests {
        self.counts.lock().iter().map(|(k, n)| (*k, *n)).collect()
    }

    /// Calls, and leaves the answer's body to be read.
    pub(crate) async fn open(&self, protocol: &dyn Protocol, call: &Call) -> Result<Answer> {
        self.retries
            .run(|_| async move {
                let (pass, response) = self.once(protocol, call, call.body.clone()).await?;
                let (head, body) = response.into_parts();
                Ok(Answer {
                    headers: head.headers,
                    body,
                    _pass: pass,
                })
            })
            .await
    }

    /// Calls, and reads the answer.
    pub(crate) async fn fetch(&self, protocol: &dyn Protocol, call: &Call) -> Result<Whole> {
        self.fetch_noting(protocol, call, |_| {}).await
    }

    /// The same, and tells of every failure after which the call may have been done nevertheless.
    pub(crate) async fn fetch_noting(
        &self,
        protocol: &dyn Protocol,
        call: &Call,
        mut note: impl FnMut(&Error) + Send,
    ) -> Result<Whole> {
        let mut attempt = 0;
        loop {
            attempt += 1;
            let error = match self.read_once(protocol, call).await {
                Ok(whole) => return Ok(whole),
                Err(error) => error,
            };
            if error.fault() == Fault::Temporary {
                note(&error);
            }
            self.retries.pause(attempt, error).await?;
        }
    }

    /// Calls once, and reads the answer.
    pub(crate) async fn read_once(&self, protocol: &dyn Protocol, call: &Call) -> Result<Whole> {
        let (_pass, response) = self.once(protocol, call, call.body.clone()).await?;
        let (head, body) = response.into_parts();
        let body = collect_within(body, LARGEST, &head.headers).await;
        let body = body.map_err(|cause| call.wrong(ErrorKind::Temporary, cause))?;
        if call.is_whole.is_some_and(|is_whole| !is_whole(&body)) {
            let words = "the answer is cut off";
            return Err(call.wrong(ErrorKind::Temporary, words));
        }
        Ok(Whole {
            headers: head.headers,
            body,
        })
    }

    /// Calls once, with a body that is made while it is sent.
    pub(crate) async fn stream(
        &self,
        protocol: &dyn Protocol,
        call: &Call,
        body: Piped,
    ) -> Result<()> {
        let (_pass, response) = self.once(protocol, call, body).await?;
        let read = collect(response.into_body(), LARGEST).await;
        read.map(drop)
            .map_err(|cause| call.wrong(ErrorKind::Temporary, cause))
    }

    async fn once<B>(
        &self,
        protocol: &dyn Protocol,
        call: &Call,
        body: B,
    ) -> Result<(Pass, Response<Incoming>)>
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let pass = self.gate.enter().await;
        let body_size = body.size_hint().exact();
        let request = call.request(protocol.sign(call).await?, body)?;
        *self.counts.lock().entry(call.kind).or_default() += 1;
        let size = body_size.unwrap_or(u64::from(u32::MAX));
        let patience = match call.method {
            Method::GET | Method::HEAD => ANSWER,
            _ => WORKED + Duration::from_secs(size / SLOWEST),
        };
        let answer = tokio::time::timeout(patience, self.outbound.send(request)).await;
        let response = match answer {
            Ok(Ok(response)) => response,
            Ok(Err(error)) => return Err(unreached(call, causes(&error))),
            Err(_) => {
                let (host, seconds) = (&call.origin, patience.as_secs());
                let words = format!("{host} {NO_ANSWER} {seconds} s");
                return Err(call.wrong(ErrorKind::Temporary, words));
            }
        };
        if protocol.is_good(response.status()) {
            self.gate.fine();
            return Ok((pass, response));
        }
        let (head, body) = response.into_parts();
        let body = collect(body, 64 << 10).await.unwrap_or_default();
        let (kind, words) = protocol.judge(head.status, &head.headers, &body);
        if let ErrorKind::Overload(after) = kind {
            self.gate.overloaded(after);
        }
        Err(call.wrong(kind, words))
    }
}

/// The far side cannot be spoken to. Who is not trusted now is not the next time.
fn unreached(call: &Call, mut words: String) -> Error {
    if !words.contains("invalid peer certificate") {
        return call.wrong(ErrorKind::Temporary, words);
    }
    words.push_str("; name its authority in SSL_CERT_FILE, or for S3 in AWS_CA_BUNDLE");
    call.wrong(ErrorKind::Denied, words)
}
