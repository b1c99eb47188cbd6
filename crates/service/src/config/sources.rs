//! What a configuration is read from, in order of precedence: flag, environment, file, default.

use std::path::{Path, PathBuf};

/// The sources of one configuration. Kept by a [`Reloader`](crate::reload::Reloader), which reads
/// the file again and keeps the rest.
///
/// ```
/// use headworks_service::config::Sources;
/// let sources = Sources::new().env("HEADWORKS_LOG__FORMAT", "json").flag("--set", "log.level", "debug");
/// assert!(sources.path().is_none());
/// ```
#[derive(Clone, Default)]
pub struct Sources {
    pub(crate) file: Option<PathBuf>,
    /// Where to look for a file if none was named.
    pub(crate) look_in: Vec<PathBuf>,
    pub(crate) text: Option<String>,
    pub(crate) env: Vec<(String, String)>,
    /// Variables whose values are not Unicode.
    pub(crate) unreadable_env: Vec<String>,
    pub(crate) flags: Vec<Setting>,
    /// Dotted keys and values that hold where no file is read.
    pub(crate) without_file: Vec<(String, String)>,
    /// Dotted keys, and files that they name where those exist.
    pub(crate) beside: Vec<(String, String)>,
}

/// A value given by a flag.
#[derive(Clone)]
pub(crate) struct Setting {
    pub(crate) flag: String,
    pub(crate) key: String,
    pub(crate) value: String,
}

impl Sources {
    /// Nothing but the defaults.
    #[must_use]
    pub fn new() -> Sources {
        Sources::default()
    }

    /// With the file at `path`; its extension tells the format.
    #[must_use]
    pub fn file(mut self, path: impl Into<PathBuf>) -> Sources {
        self.file = Some(path.into());
        self
    }

    /// With the first of these files that exists when the configuration is read: one that is
    /// written later is found by a reload.
    #[must_use]
    pub fn look_for(mut self, paths: impl IntoIterator<Item = PathBuf>) -> Sources {
        self.look_in = paths.into_iter().collect();
        self
    }

    /// With `text` as the content of a file called `name`, which need not exist.
    #[must_use]
    pub fn text(mut self, name: impl Into<PathBuf>, text: impl Into<String>) -> Sources {
        self.file = Some(name.into());
        self.text = Some(text.into());
        self
    }

    /// With the variables of this process. One whose name is not Unicode is none of ours.
    #[must_use]
    pub fn environment(mut self) -> Sources {
        for (name, value) in std::env::vars_os() {
            match (name.into_string(), value.into_string()) {
                (Ok(name), Ok(value)) => self.env.push((name, value)),
                (Ok(name), Err(_)) => self.unreadable_env.push(name),
                (Err(_), _) => {}
            }
        }
        self
    }

    /// With one environment variable.
    #[must_use]
    pub fn env(mut self, name: impl Into<String>, value: impl Into<String>) -> Sources {
        self.env.push((name.into(), value.into()));
        self
    }

    /// With `value` for the dotted `key`, given by the flag called `flag`.
    #[must_use]
    pub fn flag(
        mut self,
        flag: impl Into<String>,
        key: impl Into<String>,
        value: impl Into<String>,
    ) -> Sources {
        let (flag, key, value) = (flag.into(), key.into(), value.into());
        self.flags.push(Setting { flag, key, value });
        self
    }

    /// With `value` for the dotted `key` where no configuration file is read and nothing else sets
    /// it.
    #[must_use]
    pub fn without_file(mut self, key: impl Into<String>, value: impl Into<String>) -> Sources {
        self.without_file.push((key.into(), value.into()));
        self
    }

    /// With the file `name` in [`Sources::folder`] for the dotted `key`, where that file exists
    /// when the configuration is read and nothing else sets the key.
    #[must_use]
    pub fn beside(mut self, key: impl Into<String>, name: impl Into<String>) -> Sources {
        self.beside.push((key.into(), name.into()));
        self
    }

    /// The folder that paths in the configuration file are relative to; without a file, the working
    /// directory as an empty path.
    #[must_use]
    pub fn folder(&self) -> &Path {
        let folder = self.path().and_then(Path::parent);
        folder.unwrap_or(Path::new(""))
    }

    /// The file that is read now, if any.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        let found = || self.look_in.iter().find(|path| path.is_file());
        self.file
            .as_deref()
            .or_else(|| found().map(PathBuf::as_path))
    }
}
