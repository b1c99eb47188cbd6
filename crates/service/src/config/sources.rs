//! The sources of a configuration, in order of precedence: flag, environment, file, default.

use std::path::{Path, PathBuf};

/// The sources of one configuration. A [`Reloader`](crate::reload::Reloader) keeps them and reads
/// the file again on reload.
///
/// ```
/// use headworks_service::config::Sources;
/// let sources = Sources::new()
///     .env("HEADWORKS_LOG__FORMAT", "json")
///     .flag("--set", "log.level", "debug");
/// assert!(sources.path().is_none());
/// ```
#[derive(Clone, Default)]
pub struct Sources {
    pub(crate) file: Option<PathBuf>,
    /// Paths to try if no file is named.
    pub(crate) search_paths: Vec<PathBuf>,
    pub(crate) text: Option<String>,
    pub(crate) env: Vec<(String, String)>,
    /// Variables whose values are not Unicode.
    pub(crate) unreadable_env: Vec<String>,
    pub(crate) flags: Vec<Setting>,
    /// Dotted keys and their values if there is no configuration file.
    pub(crate) without_file: Vec<(String, String)>,
    /// Dotted keys and file names to use as their values, if those files exist.
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
    /// Only the defaults.
    #[must_use]
    pub fn new() -> Sources {
        Sources::default()
    }

    /// Adds the file at `path`; its extension selects the format.
    #[must_use]
    pub fn file(mut self, path: impl Into<PathBuf>) -> Sources {
        self.file = Some(path.into());
        self
    }

    /// Uses the first of these files that exists at loading time, so that a reload finds a file
    /// that was created later.
    #[must_use]
    pub fn search(mut self, paths: impl IntoIterator<Item = PathBuf>) -> Sources {
        self.search_paths = paths.into_iter().collect();
        self
    }

    /// Uses `text` as the content of a file called `name`, which need not exist.
    #[must_use]
    pub fn text(mut self, name: impl Into<PathBuf>, text: impl Into<String>) -> Sources {
        self.file = Some(name.into());
        self.text = Some(text.into());
        self
    }

    /// Adds the environment variables of this process, except those whose names are not Unicode.
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

    /// Adds one environment variable.
    #[must_use]
    pub fn env(mut self, name: impl Into<String>, value: impl Into<String>) -> Sources {
        self.env.push((name.into(), value.into()));
        self
    }

    /// Sets the dotted `key` to `value`, on behalf of the flag called `flag`.
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

    /// Sets the dotted `key` to `value` if there is no configuration file and no other source sets
    /// it.
    #[must_use]
    pub fn without_file(mut self, key: impl Into<String>, value: impl Into<String>) -> Sources {
        self.without_file.push((key.into(), value.into()));
        self
    }

    /// Sets the dotted `key` to the file `name` in [`Sources::directory`], if that file exists at
    /// loading time and no other source sets the key.
    #[must_use]
    pub fn sibling_file(mut self, key: impl Into<String>, name: impl Into<String>) -> Sources {
        self.beside.push((key.into(), name.into()));
        self
    }

    /// The directory that paths in the configuration file are relative to. Without a file it is the
    /// working directory, as an empty path.
    #[must_use]
    pub fn directory(&self) -> &Path {
        let folder = self.path().and_then(Path::parent);
        folder.unwrap_or(Path::new(""))
    }

    /// The file that would be read now, if any.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        let found = || self.search_paths.iter().find(|path| path.is_file());
        self.file
            .as_deref()
            .or_else(|| found().map(PathBuf::as_path))
    }
}
