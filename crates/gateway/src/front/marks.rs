//! The headers with which every answer says what happened.

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
/// Where OpenAI's and Anthropic's clients look for it.
const OPENAI_ID: HeaderName = HeaderName::from_static("x-request-id");
const ANTHROPIC_ID: HeaderName = HeaderName::from_static("request-id");

/// What is known of a request when it is answered.
#[derive(Clone, Debug, Default)]
pub(super) struct Marks {
    pub(super) id: String,
    pub(super) class: Option<Class>,
    pub(super) waited: Duration,
    pub(super) position: u32,
    pub(super) reason: &'static str,
    pub(super) upstream: Option<String>,
}

impl Marks {
    pub(super) fn write(&self, dialect: Dialect, headers: &mut HeaderMap) {
        let mut put = |name: HeaderName, value: &str| {
            if let Ok(value) = HeaderValue::from_str(value) {
                headers.insert(name, value);
            }
        };
        if let Some(class) = self.class {
            put(CLASS, &class.to_string());
        }
        if let Some(upstream) = &self.upstream {
            put(UPSTREAM, upstream);
        }
        put(REASON, self.reason);
        put(REQUEST, &self.id);
        let theirs = match dialect {
            Dialect::OpenAi => OPENAI_ID,
            Dialect::Anthropic => ANTHROPIC_ID,
        };
        // An upstream's own id is worth more to its support.
        if !headers.contains_key(&theirs)
            && let Ok(id) = HeaderValue::from_str(&self.id)
        {
            headers.insert(theirs, id);
        }
        let millis = u64::try_from(self.waited.as_millis()).unwrap_or(u64::MAX);
        headers.insert(WAIT, HeaderValue::from(millis));
        headers.insert(POSITION, HeaderValue::from(self.position));
    }

    /// Our own answer to a problem.
    pub(super) fn refuse(&self, dialect: Dialect, problem: &Problem) -> Response<GatewayBody> {
        let body = problem.body(dialect, &self.id);
        let mut response = Response::new(GatewayBody::Whole(Some(body)));
        *response.status_mut() = problem.status;
        problem.write_headers(response.headers_mut());
        let marks = Marks {
            reason: problem.reason,
            ..self.clone()
        };
        marks.write(dialect, response.headers_mut());
        response
    }
}
