//! One address of the admin listener, and what is to be known about it.
//!
//! The list at `/`, the OpenAPI document and the router are made of the same endpoints, so that
//! none of them can tell of something that the others do not have.

use schemars::{JsonSchema, Schema, SchemaGenerator};

type SchemaOf = fn(&mut SchemaGenerator) -> Schema;

/// One address, with what it takes and gives.
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

/// One part of an address's query.
#[derive(Clone, Copy, Debug)]
pub(super) struct Query {
    pub(super) name: &'static str,
    pub(super) what: &'static str,
    pub(super) required: bool,
}

/// What an endpoint answers with.
#[derive(Clone, Copy, Debug)]
pub(super) enum Gives {
    Text(&'static str),
    Json(SchemaOf),
}

impl Endpoint {
    /// Reads something. A part of the path in braces is a parameter.
    #[must_use]
    pub fn get(path: &'static str, what: &'static str) -> Endpoint {
        Endpoint::new("GET", path, what)
    }

    /// Does something.
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

    /// Answers with JSON of type `T`.
    #[must_use]
    pub fn gives<T: JsonSchema>(mut self) -> Endpoint {
        self.gives = Gives::Json(schemars::SchemaGenerator::subschema_for::<T>);
        self
    }

    /// Answers with something that is not JSON.
    #[must_use]
    pub fn gives_text(mut self, content_type: &'static str) -> Endpoint {
        self.gives = Gives::Text(content_type);
        self
    }

    /// Takes JSON of type `T`.
    #[must_use]
    pub fn takes<T: JsonSchema>(mut self) -> Endpoint {
        self.takes = Some(schemars::SchemaGenerator::subschema_for::<T>);
        self
    }

    /// Takes `name` in the query.
    #[must_use]
    pub fn query(mut self, name: &'static str, what: &'static str, required: bool) -> Endpoint {
        self.queries.push(Query {
            name,
            what,
            required,
        });
        self
    }

    /// Needs no token.
    pub(super) fn open(mut self) -> Endpoint {
        self.open = true;
        self
    }

    /// Its address.
    #[must_use]
    pub fn path(&self) -> &'static str {
        self.path
    }
}
