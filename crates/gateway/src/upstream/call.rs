//! One call to one upstream.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use headworks_service::config::show_duration;
use http::{HeaderMap, Method, Request, Response};
use http_body_util::Full;

use super::{Links, Upstream, UpstreamBody, compact, echo, headers};
use crate::config::Kind;
use crate::wire::Endpoint;

/// A client's request, ready to be sent to any upstream.
#[derive(Clone)]
pub(crate) struct Forward {
    pub(crate) endpoint: Endpoint,
    pub(crate) query: Option<String>,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    /// Whether headers and body share a buffer with other requests of the connection, as over
    /// HTTP/2.
    pub(crate) shares: bool,
}

impl Forward {
    /// Moves out everything that is sent. Only the endpoint stays.
    pub(crate) fn take(&mut self) -> Forward {
        Forward {
            endpoint: self.endpoint,
            query: self.query.take(),
            headers: std::mem::take(&mut self.headers),
            body: std::mem::take(&mut self.body),
            shares: self.shares,
        }
    }

    /// Copies headers and body out of a shared buffer, so that they do not keep it alive.
    pub(crate) fn compact(&mut self) {
        if !std::mem::take(&mut self.shares) {
            return;
        }
        compact(&mut self.headers);
        self.body = Bytes::copy_from_slice(&self.body);
    }
}

/// Response whose head has arrived.
pub(crate) type Answer = Response<UpstreamBody>;

/// Reason why no response began. Only after [`Failure::Connect`] is it certain that nothing was
/// generated.
#[derive(Debug)]
pub(crate) enum Failure {
    /// No connection: the request was never sent.
    Connect(String),
    /// No response within the timeout.
    Timeout(Duration),
    /// The connection broke, or the response was not HTTP.
    Broken(String),
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Failure::Connect(cause) => write!(f, "cannot be reached: {cause}"),
            Failure::Timeout(time) => {
                write!(f, "did not begin an answer within {}", show_duration(*time))
            }
            Failure::Broken(cause) => write!(f, "broke off before its answer: {cause}"),
        }
    }
}

impl Upstream {
    /// Sends the request. Returns when the head of the response has arrived.
    pub(crate) async fn call(
        &self,
        links: &Arc<Links>,
        forward: Forward,
        most: Duration,
    ) -> Result<Answer, Failure> {
        let began = Instant::now();
        let time = self.settings.first_byte_timeout.min(most);
        let answer = tokio::time::timeout(time, self.send(links, forward)).await;
        let answer = answer.unwrap_or(Err(Failure::Timeout(time)));
        if answer.is_ok() {
            self.times.latency.record(began.elapsed());
        }
        answer
    }

    async fn send(&self, links: &Arc<Links>, forward: Forward) -> Result<Answer, Failure> {
        if self.settings.kind == Kind::Echo {
            let answer = echo::answer(&self.settings, &forward).await;
            return Ok(answer.map(UpstreamBody::Echo));
        }
        let (endpoint, query) = (forward.endpoint, forward.query.as_deref());
        let address = self.address.as_ref();
        let uri = address.and_then(|address| address.join(endpoint, query));
        let uri = uri.ok_or_else(|| Failure::Connect("its address is wrong".to_owned()))?;
        let headers = headers::forwarded(forward.headers, &self.headers);
        let body = forward.body;
        // Direct connections are served here; `None` means that TLS or a proxy is needed.
        if let Some(answer) = links.ask(self.target, &uri, &headers, &body).await {
            return answer.map(|answer| answer.map(UpstreamBody::Link));
        }
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = uri;
        *request.headers_mut() = headers;
        match links.outbound.send(request).await {
            // The client skips other interim responses. A 101 is final, and nobody asked for it.
            Ok(response) if response.status().is_informational() => {
                let status = response.status();
                Err(Failure::Broken(format!("it answered {status}")))
            }
            Ok(response) => Ok(response.map(UpstreamBody::Http)),
            Err(error) if error.is_connect() => Err(Failure::Connect(causes(&error))),
            Err(error) => Err(Failure::Broken(causes(&error))),
        }
    }
}

/// Formats an error and its causes in one line.
pub(crate) fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}
