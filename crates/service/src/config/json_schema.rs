//! The configuration file as a JSON Schema, for editors that complete and check while one types.

use serde_json::{Map, Value, json};

use super::schema::Schema;
use super::section::{Key, SectionSpec, lines};
use super::units::{parse_seconds, parse_size};

impl Schema {
    /// A JSON Schema of the configuration file.
    ///
    /// It knows sections, keys, defaults and the kinds of values. Whether values fit together is
    /// checked by [`Schema::load`] alone.
    ///
    /// ```
    /// let schema = headworks_service::config::Schema::shared().json_schema();
    /// let listen = &schema["properties"]["admin"]["properties"]["listen"];
    /// assert_eq!(listen["type"], "string");
    /// ```
    #[must_use]
    pub fn json_schema(&self) -> Value {
        let sections = self.sections().iter();
        let sections = sections.map(|section| (section.name.to_owned(), section_schema(section)));
        json!({
            "$schema": "http://json-schema.org/draft-07/schema#",
            "title": "Headworks configuration",
            "type": "object",
            "additionalProperties": false,
            "properties": sections.collect::<Map<_, _>>(),
        })
    }
}

fn section_schema(section: &SectionSpec) -> Value {
    let defaults = (section.defaults)();
    let keys = section.keys.iter();
    let keys = keys.map(|key| (key.name.to_owned(), key_schema(key, defaults.get(key.name))));
    json!({
        "description": text(section.doc),
        "type": "object",
        "additionalProperties": false,
        "properties": keys.collect::<Map<_, _>>(),
    })
}

fn key_schema(key: &Key, default: Option<&toml::Value>) -> Value {
    let example = key.example.and_then(|example| example_value(key, example));
    let mut schema = Map::new();
    schema.insert("description".to_owned(), text(key.doc).into());
    // The kind of an unset value is that of its example. Where an example is a whole number, others
    // may have a fraction.
    let kind = match (default, &example) {
        (Some(toml::Value::Integer(_)), _) => Some(json!("integer")),
        (Some(default), _) => Some(kind(default)),
        (None, Some(example)) => Some(kind(example)),
        (None, None) => None,
    };
    schema.extend(kind.map(|kind| ("type".to_owned(), kind)));
    let defaults = default.and_then(|value| serde_json::to_value(value).ok());
    schema.extend(defaults.map(|value| ("default".to_owned(), value)));
    let examples = example.and_then(|value| serde_json::to_value([value]).ok());
    schema.extend(examples.map(|value| ("examples".to_owned(), value)));
    Value::Object(schema)
}

/// The value of an example, which is either one value or tables with headers.
fn example_value(key: &Key, example: &str) -> Option<toml::Value> {
    let document = match example.contains('\n') {
        true => example.to_owned(),
        false => format!("{} = {example}", key.name),
    };
    let mut value = toml::Value::Table(document.parse().ok()?);
    // `[[gateway.upstream]]` is nested by its section.
    loop {
        let table = value.as_table_mut()?;
        match table.remove(key.name) {
            Some(found) => return Some(found),
            None => value = table.iter().next()?.1.clone(),
        }
    }
}

fn kind(value: &toml::Value) -> Value {
    match value {
        // Durations and sizes are also read as plain numbers.
        toml::Value::String(text)
            if parse_seconds(text).is_some() || parse_size(text).is_some() =>
        {
            json!(["string", "number"])
        }
        toml::Value::String(_) | toml::Value::Datetime(_) => json!("string"),
        toml::Value::Integer(_) | toml::Value::Float(_) => json!("number"),
        toml::Value::Boolean(_) => json!("boolean"),
        toml::Value::Array(_) => json!("array"),
        toml::Value::Table(_) => json!("object"),
    }
}

fn text(doc: &'static str) -> String {
    lines(doc).collect::<Vec<_>>().join(" ")
}
