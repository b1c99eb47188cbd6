//! The OpenAPI document, generated from the endpoints and their types.

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Map, Value, json};

use super::endpoint::{Endpoint, ResponseKind};

/// Body of every error response.
#[derive(JsonSchema)]
#[expect(
    dead_code,
    reason = "only its schema is used; HttpProblem writes the response"
)]
struct Problem {
    /// The error.
    error: String,
    /// A suggested remedy.
    way_out: Option<String>,
    /// The individual problems.
    problems: Option<Vec<String>>,
}

/// Returns the document that describes `endpoints`.
pub(super) fn document(endpoints: &[Endpoint]) -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.definitions_path = "/components/schemas".into();
    });
    let mut schemas = settings.into_generator();
    let mut paths = Map::new();
    for endpoint in endpoints {
        let path = paths.entry(endpoint.path).or_insert_with(|| json!({}));
        path[endpoint.method.to_lowercase()] = operation(endpoint, &mut schemas);
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Headworks admin API",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "The state and the actions of every application.",
        },
        "security": [{ "bearer": [] }, { "session": [] }],
        "paths": paths,
        "components": {
            "securitySchemes": {
                "bearer": { "type": "http", "scheme": "bearer" },
                "session": {
                    "type": "apiKey", "in": "cookie", "name": crate::authenticator::SESSION_COOKIE,
                    "description": "set by `/?token=TOKEN`; a state-changing request also needs the header `x-headworks`",
                },
            },
            "schemas": schemas.take_definitions(true),
        },
    })
}

fn operation(endpoint: &Endpoint, schemas: &mut SchemaGenerator) -> Value {
    let answer = match endpoint.response {
        ResponseKind::Text(content_type) => content(content_type, &json!({ "type": "string" })),
        ResponseKind::Json(of) => content("application/json", &of(schemas).to_value()),
    };
    let problem = schemas.subschema_for::<Problem>().to_value();
    let mut operation = json!({
        "summary": endpoint.summary,
        "responses": {
            "200": { "description": endpoint.summary, "content": answer },
            "default": { "description": "the error", "content": content("application/json", &problem) },
        },
    });
    let parameters = parameters(endpoint);
    if !parameters.is_empty() {
        operation["parameters"] = parameters.into();
    }
    if let Some(of) = endpoint.request_body {
        let body = content("application/json", &of(schemas).to_value());
        operation["requestBody"] = json!({ "content": body });
    }
    if endpoint.open {
        operation["security"] = json!([]);
    }
    operation
}

fn content(content_type: &str, schema: &Value) -> Value {
    let mut content = Map::new();
    content.insert(content_type.to_owned(), json!({ "schema": schema }));
    content.into()
}

fn parameters(endpoint: &Endpoint) -> Vec<Value> {
    let text = json!({ "type": "string" });
    let in_path = endpoint.path.split('/').filter_map(|part| {
        let name = part.strip_prefix('{')?.strip_suffix('}')?;
        Some(json!({ "name": name, "in": "path", "required": true, "schema": text }))
    });
    let in_query = endpoint.queries.iter().map(|query| {
        json!({
            "name": query.name, "in": "query", "required": query.required,
            "description": query.summary, "schema": text,
        })
    });
    in_path.chain(in_query).collect()
}
