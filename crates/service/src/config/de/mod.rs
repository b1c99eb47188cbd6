//! Deserializes the tree into typed sections and collects every problem.
//!
//! Serde stops at the first error. To report all of them, the faulty value is left out and the
//! section is read again until no new error appears. Each round removes one value, so the loop
//! terminates. Unknown keys are detected wherever a struct is deserialized, at any depth, because
//! serde tells the deserializer which fields a struct has. (Serde does not for `flatten`, untagged
//! and internally tagged types; those need `deny_unknown_fields` of their own.)

mod access;
mod error;
mod paths;
mod reader;
mod text;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use serde::de::DeserializeOwned;

use super::node::Node;
use super::origin::Origin;
use super::problem::{Problem, suggest};
use reader::Reader;

/// Keys from the section down, list positions included: `["upstreams", "0", "url"]`.
pub(crate) type Path = Vec<String>;

/// By-products of reading one section.
#[derive(Default)]
pub(crate) struct Findings {
    /// Paths of faulty values, which later rounds skip.
    skipped: BTreeSet<Path>,
    /// Unknown keys, with the keys that are known at that place.
    unknown: RefCell<BTreeMap<Path, Unknown>>,
}

struct Unknown {
    origin: Origin,
    known: &'static [&'static str],
}

/// An unknown key or an invalid value.
pub(crate) struct Finding {
    pub(crate) path: Path,
    pub(crate) problem: Problem,
    pub(crate) unknown_key: bool,
    /// A value of the right type, in TOML.
    pub(crate) example: Option<&'static str>,
}

/// Reads `node` as a `T`. The value lacks everything that the findings are about.
pub(crate) fn read<T: DeserializeOwned>(section: &str, node: &Node) -> (Option<T>, Vec<Finding>) {
    let mut findings = Findings::default();
    let mut wrong = Vec::new();
    let value = loop {
        match T::deserialize(Reader::new(node, Path::new(), &findings)) {
            Ok(value) => break Some(value),
            Err(error) => {
                let path = error.path().clone();
                // A value may be incomplete because a part of it was left out. That error is a
                // consequence of one already reported, not a new one.
                let is_consequence = findings.skipped.iter().any(|out| out.starts_with(&path));
                if !is_consequence {
                    wrong.push(Finding {
                        path: path.clone(),
                        example: error.example,
                        problem: error.into_problem(section, node),
                        unknown_key: false,
                    });
                }
                if path.is_empty() || !findings.skipped.insert(path) {
                    break None;
                }
            }
        }
    };
    let unknown = findings.unknown.into_inner();
    wrong.extend(unknown.into_iter().map(|(path, unknown)| {
        let key = dotted(section, &path);
        let wrong = path.last().map_or("", String::as_str);
        let remedy = suggest(wrong, unknown.known);
        let problem = Problem::new(unknown.origin, key, "unknown key").remedy(remedy);
        Finding {
            path,
            problem,
            example: None,
            unknown_key: true,
        }
    }));
    (value, wrong)
}

/// Formats a path as `gateway.upstreams[0].url`.
pub(crate) fn dotted(section: &str, path: &[String]) -> String {
    let mut out = section.to_owned();
    for step in path {
        if step.parse::<usize>().is_ok() {
            out.push_str(&format!("[{step}]"));
        } else {
            if !out.is_empty() {
                out.push('.');
            }
            out.push_str(step);
        }
    }
    out
}
