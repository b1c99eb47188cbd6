//! A request before it is signed.

use super::text::quoted_etag;
use super::{SegmentedBytes, percent, xml};
use crate::backend::Precondition;
use crate::error::{Error, ErrorKind, Result};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request};

/// A request before it is signed.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    /// The kind as which it is counted.
    pub(crate) kind: &'static str,
    /// The operation and its object, for error messages.
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
    pub(crate) body: SegmentedBytes,
    /// Returns whether a response is complete: a truncated document may look whole.
    pub(crate) is_complete: Option<fn(&[u8]) -> bool>,
}

impl Call {
    /// `labels` are the kind, the operation, and its object.
    pub(crate) fn new(
        labels: (&'static str, &'static str, &[u8]),
        method: Method,
        origin: &str,
        target: String,
    ) -> Call {
        Call {
            kind: labels.0,
            operation: labels.1,
            path: labels.2.to_vec(),
            method,
            origin: origin.to_owned(),
            target,
            query: Vec::new(),
            headers: HeaderMap::new(),
            body: SegmentedBytes::default(),
            is_complete: None,
        }
    }

    /// Expects an XML document as response.
    pub(crate) fn expect_xml(mut self) -> Call {
        self.is_complete = Some(xml::is_complete);
        self
    }

    /// Expects a JSON document as response.
    pub(crate) fn expect_json(mut self) -> Call {
        self.is_complete =
            Some(|body| serde_json::from_slice::<serde::de::IgnoredAny>(body).is_ok());
        self
    }

    pub(crate) fn header(mut self, name: &'static str, value: &str) -> Call {
        // An invalid header value is dropped: the value is always stored elsewhere as well.
        if let Ok(value) = HeaderValue::from_str(value) {
            self.headers.insert(HeaderName::from_static(name), value);
        }
        self
    }

    pub(crate) fn query(mut self, name: &str, value: &str) -> Call {
        self.query.push((name.to_owned(), value.to_owned()));
        self
    }

    pub(crate) fn body(mut self, body: SegmentedBytes) -> Call {
        self.body = body;
        self
    }

    /// Adds the header for a precondition. `Unchanged` adds none: it is for storages without
    /// versions.
    pub(crate) fn with_precondition(self, precondition: &Precondition) -> Call {
        match precondition {
            Precondition::Any | Precondition::Unchanged(_) => self,
            Precondition::Absent => self.header("if-none-match", "*"),
            Precondition::Version(version) => self.if_match(version),
        }
    }

    /// Makes the request conditional on a version.
    pub(crate) fn if_match(self, version: &[u8]) -> Call {
        self.header("if-match", &quoted_etag(version))
    }

    /// Returns the error for a failed precondition.
    pub(crate) fn conflict(&self) -> Error {
        Error::conflict(self.operation, &self.path)
    }

    pub(crate) fn failure(&self, kind: ErrorKind, cause: impl Into<String>) -> Error {
        Error::new(kind, self.operation, &self.path, cause)
    }

    /// Returns the query as it is sent: encoded, and sorted as signatures require.
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

    pub(super) fn request<B>(&self, headers: HeaderMap, body: B) -> Result<Request<B>> {
        let query = self.encoded_query();
        let mark = if query.is_empty() { "" } else { "?" };
        let address = format!("{}{}{mark}{query}", self.origin, self.target);
        let request = Request::builder().method(self.method.clone()).uri(address);
        let mut request = request
            .body(body)
            .map_err(|error| self.failure(ErrorKind::BadName, error.to_string()))?;
        *request.headers_mut() = headers;
        Ok(request)
    }
}
