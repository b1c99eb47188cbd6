//! A deserialization error that records the path of the value.

use std::fmt::{self, Display};

use serde::de::{Expected, Unexpected};

use super::{Path, dotted};
use crate::config::node::Node;
use crate::config::origin::Origin;
use crate::config::problem::Problem;

/// The message, a remedy, and the path of the value once it is known.
#[derive(Debug)]
pub(crate) struct Error {
    text: String,
    remedy: Option<String>,
    /// A valid value, in TOML.
    pub(super) example: Option<&'static str>,
    path: Option<Path>,
}

impl Error {
    pub(super) fn expected(what: impl Display, found: &Node) -> Error {
        Error::new(format!("expected {what}, found {}", found.kind()))
    }

    pub(super) fn new(text: impl Into<String>) -> Error {
        Error {
            text: text.into(),
            remedy: None,
            example: None,
            path: None,
        }
    }

    pub(super) fn remedy(mut self, remedy: impl Into<String>) -> Error {
        self.remedy = Some(remedy.into());
        self
    }

    pub(super) fn with_example(mut self, example: &'static str) -> Error {
        self.example = Some(example);
        self
    }

    /// Sets the path, unless a deeper level has already set it.
    pub(super) fn at(mut self, path: &Path) -> Error {
        self.path.get_or_insert_with(|| path.clone());
        self
    }

    pub(super) fn path(&self) -> &Path {
        const ROOT: &Path = &Path::new();
        self.path.as_ref().unwrap_or(ROOT)
    }

    pub(super) fn into_problem(self, section: &str, root: &Node) -> Problem {
        let path = self.path.unwrap_or_default();
        let origin = root.at(&path).map_or(Origin::Default, |n| n.origin.clone());
        let mut problem = Problem::new(origin, dotted(section, &path), self.text);
        problem.remedy = self.remedy;
        problem
    }
}

impl Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Error {}

/// Names only the kind of the value: the value itself may be a secret.
fn kind(found: &Unexpected<'_>) -> &'static str {
    match found {
        Unexpected::Bool(_) => "true or false",
        Unexpected::Unsigned(_) | Unexpected::Signed(_) => "another integer",
        Unexpected::Float(_) => "a decimal number",
        Unexpected::Str(_) | Unexpected::Char(_) => "other text",
        Unexpected::Seq => "a list",
        Unexpected::Map => "a table",
        _ => "another type",
    }
}

impl serde::de::Error for Error {
    fn custom<T: Display>(text: T) -> Error {
        Error::new(text.to_string())
    }

    fn invalid_type(found: Unexpected<'_>, expected: &dyn Expected) -> Error {
        Error::new(format!("expected {expected}, found {}", kind(&found)))
    }

    fn invalid_value(found: Unexpected<'_>, expected: &dyn Expected) -> Error {
        Error::new(format!("expected {expected}, found {}", kind(&found)))
    }

    fn missing_field(field: &'static str) -> Error {
        Error::new(format!("missing key `{field}`")).remedy("add it")
    }
}
