//! Declares the sections of the configuration, and loads them.

use std::any::Any;
use std::sync::Arc;

use super::de::Finding;
use super::display::{DisplayValue, flatten};
use super::layers::Layers;
use super::node::{Node, Table, Value};
use super::origin::Origin;
use super::problem::{Problem, Problems};
use super::section::{Section, SectionReading, SectionSpec};
use super::sources::Sources;

/// The sections that a program knows.
#[derive(Clone, Debug, Default)]
pub struct Schema {
    sections: Vec<SectionSpec>,
}

impl Schema {
    /// A schema without sections.
    #[must_use]
    pub fn new() -> Schema {
        Schema::default()
    }

    /// The sections that every program has: `[admin]`, `[log]`, `[outbound]`, `[process]` and
    /// `[shutdown]`.
    ///
    /// ```
    /// let schema = headworks_service::config::Schema::shared();
    /// assert!(schema.sections().iter().any(|section| section.name == "admin"));
    /// ```
    #[must_use]
    pub fn shared() -> Schema {
        Schema::new()
            .with::<crate::admin::AdminConfig>()
            .with::<crate::logs::LogConfig>()
            .with::<crate::outbound::OutboundConfig>()
            .with::<crate::privileges::ProcessConfig>()
            .with::<crate::shutdown::ShutdownConfig>()
    }

    /// Adds the section `S`.
    ///
    /// # Panics
    /// When a section of that name exists already. Two owners of one section are a bug in the
    /// program, not in its input.
    #[must_use]
    pub fn with<S: Section>(mut self) -> Schema {
        let spec = SectionSpec::of::<S>();
        let taken = self
            .sections
            .iter()
            .any(|section| section.name == spec.name);
        assert!(!taken, "section [{}] is declared twice", spec.name);
        self.sections.push(spec);
        self
    }

    /// The sections, in the order in which they were added.
    #[must_use]
    pub fn sections(&self) -> &[SectionSpec] {
        &self.sections
    }

    /// Loads and checks all sections. Returns either a valid configuration or the complete list of
    /// problems.
    ///
    /// # Errors
    /// Every problem of the sources, in the order of the file.
    pub fn load(&self, sources: &Sources) -> Result<Config, Problems> {
        let mut layers = Layers::read(&self.sections, sources);
        if layers.unreadable {
            return Err(Problems::sorted(layers.errors));
        }
        let mut sections = Vec::new();
        let mut shown = Vec::new();
        for spec in &self.sections {
            let node = layers.tree.remove(spec.name).unwrap_or_else(empty);
            let reading = (spec.read)(&node);
            sections.extend(reading.section.clone().map(|section| (*spec, section)));
            shown.extend(flatten(spec, &reading.shown, &node));
            layers.classify(spec, &node, reading);
        }
        if !layers.errors.is_empty() {
            return Err(Problems::sorted(layers.errors));
        }
        let warnings = Problems::sorted(layers.warnings);
        Ok(Config {
            sections,
            shown,
            warnings,
        })
    }
}

fn empty() -> Node {
    Node::new(Origin::Default, Value::Table(Table::new()))
}

impl Layers {
    /// Sorts the findings of a section into errors and warnings.
    fn classify(&mut self, spec: &SectionSpec, node: &Node, reading: SectionReading) {
        for finding in reading.findings {
            // A predecessor's file may set keys that Headworks has no use for. Its users must be
            // able to start with it as it is, so unknown keys are warnings there.
            let lenient = self.legacy && matches!(finding.problem.origin, Origin::File { .. });
            if finding.unknown_key && lenient {
                self.warnings.push(finding.problem);
            } else {
                self.errors.push(add_remedy(spec, finding));
            }
        }
        for error in reading.errors {
            let at = node.at(&[error.key.to_owned()]).unwrap_or(node);
            let key = format!("{}.{}", spec.name, error.key);
            self.errors
                .push(Problem::new(at.origin.clone(), key, error.text));
        }
    }
}

/// Adds a remedy from the key table: the native name of an alias, or an example value.
fn add_remedy(spec: &SectionSpec, finding: Finding) -> Problem {
    let Finding {
        path,
        mut problem,
        unknown_key,
        example,
    } = finding;
    if unknown_key {
        let alias = match path.as_slice() {
            [name] => spec
                .keys
                .iter()
                .find(|key| key.file.contains(&name.as_str())),
            _ => None,
        };
        if let Some(key) = alias {
            problem.remedy = Some(format!("use its name here: `{}`", key.name));
        }
    } else if problem.remedy.is_none() {
        problem.remedy = remedy(spec, &path, example);
    }
    problem
}

/// Suggests a valid value: the example or default of the key, or one of the right type.
fn remedy(spec: &SectionSpec, path: &[String], of_type: Option<&str>) -> Option<String> {
    let (name, example) = match path {
        [] => return Some(format!("write it as a section: [{}]", spec.name)),
        [name] => {
            let default = || (spec.defaults)().get(name).map(ToString::to_string);
            let own = spec.key(name)?.example.map(str::to_owned).or_else(default);
            let own = own.filter(|text| !text.contains('\n'));
            (name, own.or_else(|| of_type.map(str::to_owned))?)
        }
        [.., name] => (name, of_type?.to_owned()),
    };
    match name.parse::<usize>() {
        Ok(_) => Some(format!("for example: {example}")),
        Err(_) => Some(format!("for example: {name} = {example}")),
    }
}

/// A valid configuration. It is immutable: a reload creates a new one.
#[derive(Clone)]
pub struct Config {
    sections: Vec<(SectionSpec, Arc<dyn Any + Send + Sync>)>,
    shown: Vec<DisplayValue>,
    warnings: Problems,
}

impl Config {
    /// The section `S`.
    ///
    /// # Panics
    /// When `S` is not in the schema.
    #[must_use]
    pub fn section<S: Section>(&self) -> Arc<S> {
        self.sections
            .iter()
            .find_map(|(_, section)| Arc::clone(section).downcast::<S>().ok())
            .unwrap_or_else(|| panic!("the section [{}] is not in the schema", S::NAME))
    }

    /// Every value with its origin; secrets are masked.
    #[must_use]
    pub fn values(&self) -> &[DisplayValue] {
        &self.shown
    }

    /// Names of the sections that differ from those of `other`, also if only a secret differs.
    pub(crate) fn changed_sections(&self, other: &Config) -> Vec<&'static str> {
        let pairs = self.sections.iter().zip(&other.sections);
        let unlike =
            pairs.filter(|((spec, one), (_, other))| !(spec.same)(one.as_ref(), other.as_ref()));
        unlike.map(|((spec, _), _)| spec.name).collect()
    }

    /// Warnings: unknown keys of a predecessor's file.
    #[must_use]
    pub fn warnings(&self) -> &Problems {
        &self.warnings
    }
}

impl std::fmt::Debug for Config {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(&self.shown).finish()
    }
}
