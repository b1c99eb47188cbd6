//! A request, before it is signed.

use super::words::quoted;
use super::{Pieces, percent, xml};
use crate::backend::Expect;
use crate::error::{Error, ErrorKind, Result};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request};

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
    /// What tells of an answer whether all of it is there: a document may arrive cut off and look
    /// whole.
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
            Expect::Anything | Expect::Listed(_) => self,
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
        Error::overtaken(self.operation, &self.path)
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

    pub(super) fn request<B>(&self, headers: HeaderMap, body: B) -> Result<Request<B>> {
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
