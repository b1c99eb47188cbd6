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
/// let level = Endpoint::get("/admin/level", "how high the water is").gives::<f64>();
/// assert_eq!(level.path(), "/admin/level");
/// ```
#[derive(Clone, Debug)]
pub struct Endpoint {
    pub(super) method: &'static str,
    pub(super) path: &'static str,
    pub(super) what: &'static str,
    pub(super) queries: Vec<Query>,
    pub(super) takes: Option<SchemaOf>,
    pub(super) gives: Gives,
    pub(super) open: bool,
}

/// One query parameter of an endpoint.
#[derive(Clone, Copy, Debug)]
pub(super) struct Query {
    pub(super) name: &'static str,
    pub(super) what: &'static str,
    pub(super) required: bool,
}

/// Response type of an endpoint.
#[derive(Clone, Copy, Debug)]
pub(super) enum Gives {
    Text(&'static str),
    Json(SchemaOf),
}

impl Endpoint {
    /// A `GET` endpoint. A path segment in braces is a parameter.
    #[must_use]
    pub fn get(path: &'static str, what: &'static str) -> Endpoint {
        Endpoint::new("GET", path, what)
    }

    /// A `POST` endpoint.
    #[must_use]
    pub fn post(path: &'static str, what: &'static str) -> Endpoint {
        Endpoint::new("POST", path, what)
    }

    fn new(method: &'static str, path: &'static str, what: &'static str) -> Endpoint {
        Endpoint {
            method,
            path,
            what,
            queries: Vec::new(),
            takes: None,
            gives: Gives::Text("text/plain"),
            open: false,
        }
    }

    /// Sets the response type to JSON of type `T`.
    #[must_use]
    pub fn gives<T: JsonSchema>(mut self) -> Endpoint {
        self.gives = Gives::Json(schemars::SchemaGenerator::subschema_for::<T>);
        self
    }

    /// Sets the response to a content type other than JSON.
    #[must_use]
    pub fn gives_text(mut self, content_type: &'static str) -> Endpoint {
        self.gives = Gives::Text(content_type);
        self
    }

    /// Sets the request body to JSON of type `T`.
    #[must_use]
    pub fn takes<T: JsonSchema>(mut self) -> Endpoint {
        self.takes = Some(schemars::SchemaGenerator::subschema_for::<T>);
        self
    }

    /// Adds the query parameter `name`.
    #[must_use]
    pub fn query(mut self, name: &'static str, what: &'static str, required: bool) -> Endpoint {
        self.queries.push(Query {
            name,
            what,
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
