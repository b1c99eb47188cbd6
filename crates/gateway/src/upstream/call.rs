//! One call to one upstream.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use headworks_core::TargetId;
use headworks_h1::CallProgress;
use headworks_service::config::format_duration;
use headworks_service::outbound::error_chain;
use http::header::CONTENT_LENGTH;
use http::{HeaderMap, HeaderValue, Method, Request, Response};
use http_body_util::{BodyExt, Full};

use super::{ClientPool, Upstream, UpstreamBody, detach, echo, headers};
use crate::config::Kind;
use crate::wire::Endpoint;

/// A client's request, ready to be sent to any upstream.
#[derive(Clone)]
pub(crate) struct ForwardedRequest {
    pub(crate) endpoint: Endpoint,
    pub(crate) query: Option<String>,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    /// Whether the headers share a buffer with other requests of the connection, as over HTTP/2.
    pub(crate) shares_buffer: bool,
}

impl ForwardedRequest {
    /// Moves out the query and the headers. The body stays: a fault is judged by it.
    pub(crate) fn take(&mut self) -> ForwardedRequest {
        ForwardedRequest {
            endpoint: self.endpoint,
            query: self.query.take(),
            headers: std::mem::take(&mut self.headers),
            body: self.body.clone(),
            shares_buffer: self.shares_buffer,
        }
    }

    /// Copies the headers out of a shared buffer, so that they do not keep it alive.
    pub(crate) fn detach(&mut self) {
        if std::mem::take(&mut self.shares_buffer) {
            detach(&mut self.headers);
        }
    }
}

/// Response whose head has arrived.
pub(crate) type UpstreamResponse = Response<UpstreamBody>;

/// Reason why no response began. Only after [`CallError::Connect`] is it certain that nothing was
/// generated.
#[derive(Debug)]
pub(crate) enum CallError {
    /// No connection: the request was never sent.
    Connect(String),
    /// No connection, because this process has no file descriptor left. The upstream is not to
    /// blame.
    NoDescriptor,
    /// No response within the timeout.
    Timeout(Duration),
    /// The connection broke, or the response was not HTTP.
    Broken(String),
}

impl CallError {
    /// Classifies a failed connection.
    pub(crate) fn connect(error: &(dyn std::error::Error + 'static)) -> CallError {
        let mut cause = Some(error);
        while let Some(error) = cause {
            let io_error = error.downcast_ref::<std::io::Error>();
            let code = io_error.and_then(std::io::Error::raw_os_error);
            let errnos = [rustix::io::Errno::MFILE, rustix::io::Errno::NFILE];
            if errnos
                .iter()
                .any(|errno| code == Some(errno.raw_os_error()))
            {
                return CallError::NoDescriptor;
            }
            // The source of an I/O error is not the error that it wraps, but the source of that.
            let wrapped = io_error.and_then(std::io::Error::get_ref);
            cause = match wrapped {
                Some(wrapped) => Some(wrapped),
                None => error.source(),
            };
        }
        CallError::Connect(error_chain(error))
    }
}

impl std::fmt::Display for CallError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            CallError::Connect(cause) => write!(f, "cannot be reached: {cause}"),
            CallError::NoDescriptor => write!(
                f,
                "cannot be called: this process has too many open files; raise the limit (`ulimit -n`)"
            ),
            CallError::Timeout(time) => {
                write!(f, "did not respond within {}", format_duration(*time))
            }
            CallError::Broken(cause) => write!(f, "broke off before its response: {cause}"),
        }
    }
}

impl Upstream {
    /// Sends the request. Returns when the head of the response has arrived.
    pub(crate) async fn call(
        &self,
        client_pool: &Arc<ClientPool>,
        forward: ForwardedRequest,
        most: Duration,
        progress: &Arc<CallProgress>,
    ) -> Result<UpstreamResponse, CallError> {
        let began = Instant::now();
        let time = self.settings.first_byte_timeout.min(most);
        let answer = tokio::time::timeout(time, self.send(client_pool, forward, progress)).await;
        progress.set_sent(false);
        let answer = answer.unwrap_or(Err(CallError::Timeout(time)));
        if answer.is_ok() {
            self.metrics.latency.record(began.elapsed());
        }
        answer
    }

    async fn send(
        &self,
        client_pool: &Arc<ClientPool>,
        forward: ForwardedRequest,
        progress: &Arc<CallProgress>,
    ) -> Result<UpstreamResponse, CallError> {
        if self.settings.kind == Kind::Echo {
            progress.set_sent(true);
            let answer = echo::answer(&self.settings, &forward).await;
            return Ok(answer.map(UpstreamBody::Echo));
        }
        let (endpoint, query) = (forward.endpoint, forward.query.as_deref());
        let address = self.address.as_ref();
        let uri = address.and_then(|address| address.join(endpoint, query));
        let uri = uri.ok_or_else(|| CallError::Connect("its `url` is invalid".to_owned()))?;
        let headers = headers::forwarded(forward.headers, &self.headers);
        let body = forward.body;
        // Direct connections are served here; `None` means that TLS or a proxy is needed.
        // Connections are kept by upstream, not by pool: a pool may have several servers.
        let connections = TargetId::new(self.id.0);
        let direct = client_pool.send(connections, &uri, &headers, &body, progress);
        if let Some(answer) = direct.await {
            return answer.map(|answer| answer.map(UpstreamBody::Direct));
        }
        let (progress, length) = (progress.clone(), body.len());
        let mut request = Request::new(Full::new(body).map_frame(move |frame| {
            // The client reads the body once it is connected.
            progress.set_sent(true);
            frame
        }));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = uri;
        *request.headers_mut() = headers;
        // A body that is watched while it is sent does not tell its length, and would be chunked,
        // which some servers do not accept.
        let length = HeaderValue::from(length);
        request.headers_mut().insert(CONTENT_LENGTH, length);
        match client_pool.outbound.send(request).await {
            // The client skips other interim responses. A 101 is final, and nobody asked for it.
            Ok(response) if response.status().is_informational() => {
                let status = response.status();
                Err(CallError::Broken(format!(
                    "unexpected interim response {status}"
                )))
            }
            Ok(response) => Ok(response.map(UpstreamBody::Http)),
            Err(error) if error.is_connect() => Err(CallError::connect(&error)),
            Err(error) => Err(CallError::Broken(error_chain(&error))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lack_of_descriptors_is_not_the_upstreams_fault() {
        let lack = std::io::Error::from_raw_os_error(rustix::io::Errno::MFILE.raw_os_error());
        let wrapped = std::io::Error::other(lack);
        assert!(matches!(
            CallError::connect(&wrapped),
            CallError::NoDescriptor
        ));
        let refused = std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
        assert!(matches!(
            CallError::connect(&refused),
            CallError::Connect(_)
        ));
    }
}
