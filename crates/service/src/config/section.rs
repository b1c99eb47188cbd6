//! Declaration of a section: keys, types, defaults, documentation and aliases in one place.

use std::any::Any;
use std::fmt::Debug;
use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::de::{self, Finding};
use super::node::Node;

/// A section of the configuration file. Implemented by the [`section!`](crate::section) macro.
pub trait Section:
    Default + Clone + PartialEq + Debug + Serialize + DeserializeOwned + Send + Sync + 'static
{
    /// The section's name in the file.
    const NAME: &'static str;
    /// The documentation of the section.
    const DOC: &'static str;
    /// The keys, in the order in which `config init` prints them.
    const KEYS: &'static [Key];

    /// Checks constraints between values that are valid one by one. Accepts everything by default.
    fn check(&self) -> Vec<ValidationError> {
        Vec::new()
    }
}

/// An error that a section reports about its own values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValidationError {
    /// The key.
    pub key: &'static str,
    /// The problem and the remedy.
    pub text: String,
}

impl ValidationError {
    /// An error about the value of `key`.
    #[must_use]
    pub fn new(key: &'static str, text: impl Into<String>) -> ValidationError {
        let text = text.into();
        ValidationError { key, text }
    }
}

/// One key of a section.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    pub(crate) name: &'static str,
    pub(crate) doc: &'static str,
    pub(crate) example: Option<&'static str>,
    pub(crate) file: &'static [&'static str],
    pub(crate) env: &'static [&'static str],
    pub(crate) flag: &'static [&'static str],
    pub(crate) restart: bool,
}

impl Key {
    /// A key with its documentation, and no aliases.
    #[must_use]
    pub const fn new(name: &'static str, doc: &'static str) -> Key {
        Key {
            name,
            doc,
            example: None,
            file: &[],
            env: &[],
            flag: &[],
            restart: false,
        }
    }

    /// An example value in TOML, shown if the default is unset.
    #[must_use]
    pub const fn example(mut self, example: &'static str) -> Key {
        self.example = Some(example);
        self
    }

    /// Names of this key in YAML and INI files of predecessors.
    #[must_use]
    pub const fn file(mut self, names: &'static [&'static str]) -> Key {
        self.file = names;
        self
    }

    /// Environment variables that set the key, in addition to `HEADWORKS_SECTION__KEY`.
    #[must_use]
    pub const fn env(mut self, names: &'static [&'static str]) -> Key {
        self.env = names;
        self
    }

    /// Flags that set the key, in addition to the one derived from its name.
    #[must_use]
    pub const fn flag(mut self, names: &'static [&'static str]) -> Key {
        self.flag = names;
        self
    }

    /// Marks a key that is read only at start; a reload that changes it reports so.
    #[must_use]
    pub const fn restart(mut self) -> Key {
        self.restart = true;
        self
    }

    /// The key's name in the file.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// The documentation of the key, line by line.
    pub fn doc(&self) -> impl Iterator<Item = &'static str> {
        lines(self.doc)
    }

    /// Additional flags, such as `-Q` or `--queue-throttle-top`.
    #[must_use]
    pub const fn flags(&self) -> &'static [&'static str] {
        self.flag
    }
}

/// The lines of a `///` comment without the leading space.
pub(crate) fn lines(doc: &'static str) -> impl Iterator<Item = &'static str> {
    doc.trim_end()
        .lines()
        .map(|line| line.strip_prefix(' ').unwrap_or(line))
}

/// A type-erased section, so that a schema can hold many.
#[derive(Clone, Copy, Debug)]
pub struct SectionSpec {
    /// The section's name in the file.
    pub name: &'static str,
    /// Its keys.
    pub keys: &'static [Key],
    pub(crate) doc: &'static str,
    pub(crate) read: fn(&Node) -> SectionReading,
    pub(crate) same: fn(&dyn Any, &dyn Any) -> bool,
    pub(crate) defaults: fn() -> toml::Table,
}

/// The result of reading a section.
pub(crate) struct SectionReading {
    /// The typed section, unless it could not be read as a whole.
    pub(crate) section: Option<Arc<dyn Any + Send + Sync>>,
    /// The values for display; secrets are masked.
    pub(crate) shown: toml::Table,
    pub(crate) findings: Vec<Finding>,
    pub(crate) errors: Vec<ValidationError>,
}

impl SectionSpec {
    pub(crate) fn of<S: Section>() -> SectionSpec {
        SectionSpec {
            name: S::NAME,
            keys: S::KEYS,
            doc: S::DOC,
            read: read::<S>,
            same: |one, other| one.downcast_ref::<S>() == other.downcast_ref::<S>(),
            defaults: || written(&S::default()),
        }
    }

    pub(crate) fn key(&self, name: &str) -> Option<&'static Key> {
        self.keys.iter().find(|key| key.name == name)
    }
}

fn read<S: Section>(node: &Node) -> SectionReading {
    let (section, findings) = de::read::<S>(S::NAME, node);
    let errors = match &section {
        // Checks assume that each value is valid; unknown keys do not affect them.
        Some(section) if findings.iter().all(|f| f.unknown_key) => section.check(),
        _ => Vec::new(),
    };
    SectionReading {
        shown: section.as_ref().map(written).unwrap_or_default(),
        section: section.map(|section| Arc::new(section) as Arc<dyn Any + Send + Sync>),
        findings,
        errors,
    }
}

fn written<S: Section>(section: &S) -> toml::Table {
    toml::Table::try_from(section).expect("a section is a table of values that TOML can express")
}

/// Declares a section of the configuration: a typed struct, its defaults, its documentation and its
/// aliases, in one place.
///
/// The default may be followed by methods of [`Key`](crate::config::Key): `example("TOML")` for
/// keys that are unset by default, `file(&[..])` with names in YAML and INI files of predecessors,
/// `env(&[..])` with additional environment variables, `flag(&[..])` with additional flags, and
/// `restart()` for keys that are read only at start. A field may carry `#[serde(..)]` attributes
/// and have any type that serde reads and writes. `check = path` names a `fn(&Self) ->
/// Vec<ValidationError>`.
///
/// ```
/// use headworks_service::config::{ValidationError, Schema, Section, Sources};
/// use std::time::Duration;
///
/// headworks_service::section! {
///     /// Gates and pumps.
///     pub struct Waterworks = "waterworks", check = at_least_one_pump;
///
///     /// How many pumps run.
///     pumps: u32 = 2, env(&["PUMPS"]), flag(&["-p"]);
///     /// How long a gate takes to open.
///     #[serde(with = "headworks_service::config::seconds")]
///     gate_time: Duration = Duration::from_secs(30), file(&["gate_seconds"]);
/// }
///
/// fn at_least_one_pump(section: &Waterworks) -> Vec<ValidationError> {
///     let wrong = section.pumps == 0;
///     wrong.then(|| ValidationError::new("pumps", "at least one is needed")).into_iter().collect()
/// }
///
/// let schema = Schema::new().with::<Waterworks>();
/// let config = schema.load(&Sources::new().env("PUMPS", "5")).unwrap();
/// assert_eq!(config.section::<Waterworks>().pumps, 5);
/// ```
#[macro_export]
macro_rules! section {
    (
        $(#[doc = $doc:literal])+
        $vis:vis struct $name:ident = $section:literal $(, check = $check:path)?;
        $(
            $(#[doc = $key_doc:literal])+
            $(#[serde($($serde:tt)*)])*
            $field:ident : $type:ty = $default:expr $(, $trait:ident($($of:expr)?))*;
        )*
    ) => {
        $(#[doc = $doc])+
        #[derive(Clone, Debug, PartialEq, $crate::serde::Serialize, $crate::serde::Deserialize)]
        #[serde(crate = "headworks_service::serde", default)]
        #[non_exhaustive]
        $vis struct $name {
            $(
                $(#[doc = $key_doc])+
                $(#[serde($($serde)*)])*
                pub $field: $type,
            )*
        }

        impl ::std::default::Default for $name {
            fn default() -> Self {
                Self { $($field: $default,)* }
            }
        }

        impl $crate::config::Section for $name {
            const NAME: &'static str = $section;
            const DOC: &'static str = concat!($($doc, "\n"),+);
            const KEYS: &'static [$crate::config::Key] = &[$(
                $crate::config::Key::new(stringify!($field), concat!($($key_doc, "\n"),+))
                    $(.$trait($($of)?))*,
            )*];

            $(fn check(&self) -> ::std::vec::Vec<$crate::config::ValidationError> {
                $check(self)
            })?
        }
    };
}
