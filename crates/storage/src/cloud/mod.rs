//! What the storages behind HTTP share: calls that are counted, bounded, slowed down when the far side asks for it, and
//! tried again when one of them fails.
//!
//! A call here is one page, one part, one object: small enough to be tried again by itself, so that a fault in the
//! middle of something large does not begin the large thing anew. Whoever uses a backend still decides about the whole.

pub(crate) mod ahead;
mod body;
pub(crate) mod chunks;
pub(crate) mod dress;
mod gate;
pub(crate) mod held;
pub(crate) mod lender;
pub(crate) mod media;
pub(crate) mod paged;
pub(crate) mod parts;
pub(crate) mod percent;
pub(crate) mod place;
pub(crate) mod xml;

pub(crate) use body::{Pieces, Piped, collect, next, pipe};

use crate::backend::{Expect, Requests};
use crate::error::{Error, ErrorKind, Result};
use crate::{BoxFuture, Fault};
use body::collect_within;
use bytes::Bytes;
use gate::{Gate, Pass};
use headworks_core::Backoff;
use headworks_service::outbound::Outbound;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode};
use hyper::body::{Body, Incoming};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

/// Attempts in total for a call that fails for the moment.
const ATTEMPTS: u32 = 8;
/// How long the head of an answer may take: of what is only read, and of what the far side may be at work for. And how many
/// bytes a second are sent at least before it.
const ANSWER: Duration = Duration::from_secs(60);
const WORKED: Duration = Duration::from_secs(300);
const SLOWEST: u64 = 32 << 10;
/// Attempts in total for a call to which nothing is answered.
const SILENT: u32 = 2;
/// What is said of it.
const NO_ANSWER: &str = "did not answer in";
/// No answer that is read whole is larger.
const LARGEST: usize = 64 << 20;

/// Where variables of the environment come from; tests hand in their own.
pub(crate) type Environment = Arc<dyn Fn(&str) -> Option<String> + Send + Sync>;

/// The environment of the process.
pub(crate) fn environment() -> Environment {
    Arc::new(|name| std::env::var(name).ok().filter(|value| !value.is_empty()))
}

/// One request, before it is signed.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    /// What it is counted as.
    pub(crate) kind: &'static str,
    /// What is being done, and to what, for the words of an error.
    pub(crate) operation: &'static str,
    pub(crate) path: Vec<u8>,
    pub(crate) method: Method,
    /// Scheme and host.
    pub(crate) origin: String,
    /// The path, percent-encoded.
    pub(crate) target: String,
    /// The query, neither sorted nor encoded.
    pub(crate) query: Vec<(String, String)>,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Pieces,
    /// What tells of an answer whether all of it is there: a document may arrive cut off and look whole.
    pub(crate) is_whole: Option<fn(&[u8]) -> bool>,
}

impl Call {
    /// `what` is what it is counted as, what is being done, and to what.
    pub(crate) fn new(
        what: (&'static str, &'static str, &[u8]),
        method: Method,
        origin: &str,
        target: String,
    ) -> Call {
        Call {
            kind: what.0,
            operation: what.1,
            path: what.2.to_vec(),
            method,
            origin: origin.to_owned(),
            target,
            query: Vec::new(),
            headers: HeaderMap::new(),
            body: Pieces::default(),
            is_whole: None,
        }
    }

    /// The answer is a document in XML.
    pub(crate) fn document(mut self) -> Call {
        self.is_whole = Some(xml::is_whole);
        self
    }

    /// The answer is a document in JSON.
    pub(crate) fn json(mut self) -> Call {
        self.is_whole = Some(|body| serde_json::from_slice::<serde::de::IgnoredAny>(body).is_ok());
        self
    }

    pub(crate) fn header(mut self, name: &'static str, value: &str) -> Call {
        // What cannot be a header never is the only place of what it says.
        if let Ok(value) = HeaderValue::from_str(value) {
            self.headers.insert(HeaderName::from_static(name), value);
        }
        self
    }

    pub(crate) fn query(mut self, name: &str, value: &str) -> Call {
        self.query.push((name.to_owned(), value.to_owned()));
        self
    }

    pub(crate) fn body(mut self, body: Pieces) -> Call {
        self.body = body;
        self
    }

    /// The same, to be done only if what is expected is there.
    pub(crate) fn expecting(self, expect: &Expect) -> Call {
        match expect {
            Expect::Anything => self,
            Expect::Nothing => self.header("if-none-match", "*"),
            Expect::Version(version) => self.if_match(version),
        }
    }

    /// The same, to be done only to that version.
    pub(crate) fn if_match(self, version: &[u8]) -> Call {
        self.header("if-match", &quoted(version))
    }

    /// What was expected is not there.
    pub(crate) fn overtaken(&self) -> Error {
        let words =
            "somebody else wrote it since it was listed; plan again to see what is there now";
        self.wrong(ErrorKind::Changed, words)
    }

    pub(crate) fn wrong(&self, kind: ErrorKind, cause: impl Into<String>) -> Error {
        Error::new(kind, self.operation, &self.path, cause)
    }

    /// The query as it is sent: encoded, and in the order in which signatures want it.
    pub(crate) fn encoded_query(&self) -> String {
        let encode = |(name, value): &(String, String)| {
            (
                percent::encode(name.as_bytes()),
                percent::encode(value.as_bytes()),
            )
        };
        let mut pairs: Vec<_> = self.query.iter().map(encode).collect();
        pairs.sort();
        let pairs: Vec<String> = pairs.iter().map(|(n, v)| format!("{n}={v}")).collect();
        pairs.join("&")
    }

    fn request<B>(&self, headers: HeaderMap, body: B) -> Result<Request<B>> {
        let query = self.encoded_query();
        let mark = if query.is_empty() { "" } else { "?" };
        let address = format!("{}{}{mark}{query}", self.origin, self.target);
        let request = Request::builder().method(self.method.clone()).uri(address);
        let mut request = request
            .body(body)
            .map_err(|error| self.wrong(ErrorKind::BadName, error.to_string()))?;
        *request.headers_mut() = headers;
        Ok(request)
    }
}

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
    backoff: Backoff,
    counts: Mutex<BTreeMap<&'static str, u64>>,
}

impl Endpoint {
    /// At most so many calls at once.
    pub(crate) fn new(outbound: Outbound, most: usize) -> Endpoint {
        Endpoint {
            outbound,
            gate: Gate::new(most),
            backoff: Backoff::new(Duration::from_millis(50), Duration::from_secs(5)),
            counts: Mutex::default(),
        }
    }

    /// How many calls of each kind were made, those that failed among them.
    pub(crate) fn requests(&self) -> Requests {
        self.counts.lock().iter().map(|(k, n)| (*k, *n)).collect()
    }

    /// Calls, and leaves the answer's body to be read.
    pub(crate) async fn open(&self, protocol: &dyn Protocol, call: &Call) -> Result<Answer> {
        self.attempts(|_| async move {
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
            self.pause(attempt, error).await?;
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

    async fn attempts<T, F: Future<Output = Result<T>>>(
        &self,
        mut once: impl FnMut(u32) -> F,
    ) -> Result<T> {
        let mut attempt = 0;
        loop {
            attempt += 1;
            match once(attempt).await {
                Ok(done) => return Ok(done),
                Err(error) => self.pause(attempt, error).await?,
            }
        }
    }

    /// Waits until it is worth trying again, or hands the error back.
    pub(crate) async fn pause(&self, attempt: u32, error: Error) -> Result<()> {
        let is_silent = error.cause().contains(NO_ANSWER);
        if attempt >= ATTEMPTS || (is_silent && attempt >= SILENT) {
            return Err(error);
        }
        let random = random();
        match error.fault() {
            Fault::Temporary => {
                tokio::time::sleep(self.backoff.delay(attempt, random)).await;
                Ok(())
            }
            // How long is told by the gate to all calls alike.
            Fault::Overload(_) => Ok(()),
            _ => Err(error),
        }
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
            Ok(Err(error)) => return Err(call.wrong(ErrorKind::Temporary, causes(&error))),
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

/// What every HTTP server means by these.
pub(crate) fn of_status(status: StatusCode, headers: &HeaderMap) -> ErrorKind {
    match status.as_u16() {
        404 | 410 => ErrorKind::NotFound,
        401 | 403 | 407 => ErrorKind::Denied,
        405 | 501 => ErrorKind::Unsupported,
        408 | 425 | 500 | 502 | 504 => ErrorKind::Temporary,
        412 | 304 => ErrorKind::Changed,
        414 => ErrorKind::BadName,
        429 | 503 => ErrorKind::Overload(retry_after(headers)),
        507 => ErrorKind::NoSpace,
        _ => ErrorKind::Other,
    }
}

/// No far side makes us wait longer at a time.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds = text(headers, "retry-after")?.parse().ok()?;
    Some(Duration::from_secs(seconds).min(LONGEST_WAIT))
}

/// A version as an etag.
pub(crate) fn quoted(version: &[u8]) -> String {
    format!("\"{}\"", version.escape_ascii())
}

/// A header as text.
pub(crate) fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

/// An error with what is behind it: the outermost alone says only that a request failed.
pub(crate) fn causes(error: &dyn std::error::Error) -> String {
    let mut words = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        let inner_words = inner.to_string();
        if !words.contains(&inner_words) {
            words = format!("{words}: {inner_words}");
        }
        source = inner.source();
    }
    words
}

/// For the jitter of pauses, and to tell things apart: not a secret.
pub(crate) fn random() -> u64 {
    use std::hash::{BuildHasher, Hasher, RandomState};
    RandomState::new().build_hasher().finish()
}

/// As it stands in headers: lower-case digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use headworks_service::outbound::OutboundConfig;

    #[tokio::test(start_paused = true)]
    async fn a_far_side_that_is_silent_is_given_up_sooner_than_one_that_fails() {
        let outbound = Outbound::new(&OutboundConfig::default()).unwrap();
        let endpoint = Endpoint::new(outbound, 1);
        let call = Call::new(("get", "read", b"x"), Method::GET, "http://h", "/".into());
        let failed = |words: &str| call.wrong(ErrorKind::Temporary, words);
        let silent = format!("http://h {NO_ANSWER} 60 s");
        assert!(endpoint.pause(1, failed(&silent)).await.is_ok());
        assert!(endpoint.pause(SILENT, failed(&silent)).await.is_err());
        assert!(endpoint.pause(SILENT, failed("reset")).await.is_ok());
        assert!(endpoint.pause(ATTEMPTS, failed("reset")).await.is_err());
    }
}
