//! Response headers `x-headworks-…`, which say how a request was treated.

use std::time::Duration;

use headworks_core::Class;
use http::{HeaderMap, HeaderName, HeaderValue, Response};

use super::body::GatewayBody;
use crate::wire::{Dialect, Problem};

const CLASS: HeaderName = HeaderName::from_static("x-headworks-class");
const WAIT: HeaderName = HeaderName::from_static("x-headworks-wait-ms");
const REASON: HeaderName = HeaderName::from_static("x-headworks-reason");
const POSITION: HeaderName = HeaderName::from_static("x-headworks-position");
const REQUEST: HeaderName = HeaderName::from_static("x-headworks-request-id");
const UPSTREAM: HeaderName = HeaderName::from_static("x-headworks-upstream");
/// Request id headers that OpenAI's and Anthropic's SDKs read.
const OPENAI_ID: HeaderName = HeaderName::from_static("x-request-id");
const ANTHROPIC_ID: HeaderName = HeaderName::from_static("request-id");

/// Values of the response headers.
#[derive(Clone, Debug, Default)]
pub(crate) struct ResponseHeaders {
    pub(crate) id: String,
    pub(crate) class: Option<Class>,
    pub(crate) waited: Duration,
    pub(crate) position: u32,
    pub(crate) reason: &'static str,
    pub(crate) upstream: Option<HeaderValue>,
}

impl ResponseHeaders {
    /// Adds the headers to a response.
    pub(crate) fn write(&self, dialect: Dialect, headers: &mut HeaderMap) {
        headers.reserve(8);
        if let Some(class) = self.class {
            headers.insert(CLASS, class_value(class));
        }
        if let Some(upstream) = &self.upstream {
            headers.insert(UPSTREAM, upstream.clone());
        }
        headers.insert(REASON, HeaderValue::from_static(self.reason));
        let id = HeaderValue::try_from(self.id.as_str());
        let id = id.expect("an id is letters, digits and dashes");
        let sdk_header = match dialect {
            Dialect::OpenAi => OPENAI_ID,
            Dialect::Anthropic => ANTHROPIC_ID,
        };
        // If the upstream set an id, it stays: its support needs that one.
        headers.entry(sdk_header).or_insert_with(|| id.clone());
        headers.insert(REQUEST, id);
        let millis = u64::try_from(self.waited.as_millis()).unwrap_or(u64::MAX);
        headers.insert(WAIT, number(millis));
        headers.insert(POSITION, number(self.position.into()));
    }

    /// Builds an error response.
    pub(crate) fn error_response(
        &self,
        dialect: Dialect,
        problem: &Problem,
    ) -> Response<GatewayBody> {
        let body = problem.body(dialect, &self.id);
        let mut response = Response::new(GatewayBody::Whole(Some(body)));
        *response.status_mut() = problem.status;
        problem.write_headers(response.headers_mut());
        let response_headers = ResponseHeaders {
            reason: problem.reason,
            ..self.clone()
        };
        response_headers.write(dialect, response.headers_mut());
        response
    }
}

/// Builds an error response in place of a response that could not be relayed, and keeps its
/// scheduling headers.
pub(crate) fn replacement_response(
    headers: &HeaderMap,
    problem: &Problem,
) -> Response<GatewayBody> {
    let dialect = match headers.contains_key(ANTHROPIC_ID) {
        true => Dialect::Anthropic,
        false => Dialect::OpenAi,
    };
    let id = headers.get(REQUEST).and_then(|id| id.to_str().ok());
    let response_headers = ResponseHeaders {
        id: id.unwrap_or_default().to_owned(),
        ..ResponseHeaders::default()
    };
    let mut response = response_headers.error_response(dialect, problem);
    for name in [CLASS, WAIT, POSITION, UPSTREAM] {
        if let Some(value) = headers.get(&name) {
            response.headers_mut().insert(name, value.clone());
        }
    }
    response
}

/// Header value of a number. Most requests do not wait, so 0 needs no formatting.
fn number(number: u64) -> HeaderValue {
    match number {
        0 => HeaderValue::from_static("0"),
        number => HeaderValue::from(number),
    }
}

fn class_value(class: Class) -> HeaderValue {
    const USUAL: [&str; 10] = ["P0", "P1", "P2", "P3", "P4", "P5", "P6", "P7", "P8", "P9"];
    match USUAL.get(usize::from(class.0)) {
        Some(name) => HeaderValue::from_static(name),
        None => HeaderValue::try_from(class.to_string()).expect("a letter and digits"),
    }
}
