//! Description of one endpoint of the admin listener.
//!
//! The list at `/`, the OpenAPI document and the router are built from the same endpoints, so they
//! cannot disagree.

use schemars::{JsonSchema, Schema, SchemaGenerator};

type SchemaOf = fn(&mut SchemaGenerator) -> Schema;

/// One endpoint: method, path, parameters, request and response types.
///
/// ```
/// use headworks_service::admin::Endpoint;
/// let level = Endpoint::get("/admin/level", "how high the water is").returns::<f64>();
/// assert_eq!(level.path(), "/admin/level");
/// ```
#[derive(Clone, Debug)]
pub struct Endpoint {
    pub(super) method: &'static str,
    pub(super) path: &'static str,
    pub(super) summary: &'static str,
    pub(super) queries: Vec<Query>,
    pub(super) request_body: Option<SchemaOf>,
    pub(super) response: ResponseKind,
    pub(super) open: bool,
}

/// One query parameter of an endpoint.
#[derive(Clone, Copy, Debug)]
pub(super) struct Query {
    pub(super) name: &'static str,
    pub(super) summary: &'static str,
    pub(super) required: bool,
}

/// Response type of an endpoint.
#[derive(Clone, Copy, Debug)]
pub(super) enum ResponseKind {
    Text(&'static str),
    Json(SchemaOf),
}

impl Endpoint {
    /// A `GET` endpoint. A path segment in braces is a parameter.
    #[must_use]
    pub fn get(path: &'static str, summary: &'static str) -> Endpoint {
        Endpoint::new("GET", path, summary)
    }

    /// A `POST` endpoint.
    #[must_use]
    pub fn post(path: &'static str, summary: &'static str) -> Endpoint {
        Endpoint::new("POST", path, summary)
    }

    fn new(method: &'static str, path: &'static str, summary: &'static str) -> Endpoint {
        Endpoint {
            method,
            path,
            summary,
            queries: Vec::new(),
            request_body: None,
            response: ResponseKind::Text("text/plain"),
            open: false,
        }
    }

    /// Sets the response type to JSON of type `T`.
    #[must_use]
    pub fn returns<T: JsonSchema>(mut self) -> Endpoint {
        self.response = ResponseKind::Json(schemars::SchemaGenerator::subschema_for::<T>);
        self
    }

    /// Sets the response to a content type other than JSON.
    #[must_use]
    pub fn returns_text(mut self, content_type: &'static str) -> Endpoint {
        self.response = ResponseKind::Text(content_type);
        self
    }

    /// Sets the request body to JSON of type `T`.
    #[must_use]
    pub fn accepts<T: JsonSchema>(mut self) -> Endpoint {
        self.request_body = Some(schemars::SchemaGenerator::subschema_for::<T>);
        self
    }

    /// Adds the query parameter `name`.
    #[must_use]
    pub fn query(mut self, name: &'static str, summary: &'static str, required: bool) -> Endpoint {
        self.queries.push(Query {
            name,
            summary,
            required,
        });
        self
    }

    /// Marks the endpoint as open: it needs no token.
    pub(super) fn open(mut self) -> Endpoint {
        self.open = true;
        self
    }

    /// The path of the endpoint.
    #[must_use]
    pub fn path(&self) -> &'static str {
        self.path
    }
}
