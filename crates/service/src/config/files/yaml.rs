//! Flat YAML files in the format of the tracker's predecessor.

use std::path::PathBuf;
use std::sync::Arc;

use saphyr::{LoadableYamlNode, MarkedYaml, Scalar, YamlData};
use saphyr_parser::{Event, Parser};

use super::LegacyKey;
use crate::config::node::{Node, Table, Value};
use crate::config::origin::Origin;
use crate::config::problem::Problem;

/// Maximum nesting depth. The YAML loader recurses once per level, so a deeper file could overflow
/// the stack.
const MAX_DEPTH: usize = 64;

/// Whether the YAML is shallow enough to be parsed without risk to the stack. Invalid YAML counts
/// as shallow: the parser reports the error later.
fn is_shallow_yaml(text: &str) -> bool {
    let mut depth = 0usize;
    for event in Parser::new_from_str(text).map_while(Result::ok) {
        match event.0 {
            Event::SequenceStart(..) | Event::MappingStart(..) => depth += 1,
            Event::SequenceEnd | Event::MappingEnd => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > MAX_DEPTH {
            return false;
        }
    }
    true
}

/// Whether YAML from anybody can be parsed without risk to the stack and to the memory: it is
/// shallow and has no alias, which the loader would replace by a copy of its anchor each time.
#[must_use]
pub fn is_plain_yaml(text: &str) -> bool {
    let events = Parser::new_from_str(text).map_while(Result::ok);
    let mut aliases = events.filter(|(event, _)| matches!(event, Event::Alias(..)));
    is_shallow_yaml(text) && aliases.next().is_none()
}

pub(super) fn parse(path: &Arc<PathBuf>, text: &str) -> (Vec<LegacyKey>, Vec<Problem>) {
    if !is_shallow_yaml(text) {
        let words = format!("nested more than {MAX_DEPTH} levels deep");
        let problem = Problem::new(Origin::line(path, 1), "", words);
        return (Vec::new(), vec![problem]);
    }
    let documents = match MarkedYaml::load_from_str(text) {
        Ok(documents) => documents,
        Err(error) => {
            let origin = Origin::line(path, error.marker().line());
            let text = format!("not valid YAML: {}", error.info());
            return (Vec::new(), vec![Problem::new(origin, "", text)]);
        }
    };
    let (mut keys, mut problems) = (Vec::new(), Vec::new());
    for document in &documents {
        let YamlData::Mapping(mapping) = &document.data else {
            let origin = Origin::line(path, document.span.start.line());
            let problem = Problem::new(origin, "", "expected `key: value` lines");
            problems.push(problem);
            continue;
        };
        for (key, value) in mapping {
            let Some(name) = scalar(key) else { continue };
            let origin = Origin::line(path, key.span.start.line());
            let node = Node::new(origin, node_value(path, value));
            keys.push(LegacyKey {
                header: None,
                name,
                node,
            });
        }
    }
    (keys, problems)
}

/// Scalars stay text: the configuration key decides their type, not YAML.
fn node_value(path: &Arc<PathBuf>, yaml: &MarkedYaml<'_>) -> Value {
    let node = |yaml: &MarkedYaml<'_>| {
        let origin = Origin::line(path, yaml.span.start.line());
        Node::new(origin, node_value(path, yaml))
    };
    match &yaml.data {
        YamlData::Sequence(list) => Value::List(list.iter().map(node).collect()),
        YamlData::Mapping(mapping) => {
            let entries = mapping
                .iter()
                .filter_map(|(k, v)| Some((scalar(k)?, node(v))));
            Value::Table(entries.collect::<Table>())
        }
        YamlData::Tagged(_, inner) => node_value(path, inner),
        _ => Value::Text(scalar(yaml).unwrap_or_default()),
    }
}

fn scalar(yaml: &MarkedYaml<'_>) -> Option<String> {
    match &yaml.data {
        YamlData::Value(Scalar::Null) => Some(String::new()),
        YamlData::Value(Scalar::Boolean(value)) => Some(value.to_string()),
        YamlData::Value(Scalar::Integer(number)) => Some(number.to_string()),
        YamlData::Value(Scalar::FloatingPoint(number)) => Some(number.to_string()),
        YamlData::Value(Scalar::String(text)) => Some(text.to_string()),
        YamlData::Representation(text, ..) => Some(text.to_string()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deeply_nested_yaml_is_rejected_before_parsing() {
        assert!(is_shallow_yaml("a: [1, {b: 2}]\nc: - d"));
        assert!(is_shallow_yaml(": not [ yaml"));
        assert!(!is_shallow_yaml(&"- ".repeat(100_000)));
        assert!(is_plain_yaml("a: &b [1]"));
        assert!(!is_plain_yaml("a: &b [1]\nc: *b"));
        for deep in ["- ".repeat(100_000), "[".repeat(10_000)] {
            let (keys, problems) = parse(&Arc::new("f.yml".into()), &deep);
            assert!(keys.is_empty() && problems.len() == 1);
        }
    }
}
