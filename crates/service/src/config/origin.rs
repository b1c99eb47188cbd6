//! Origins of configuration values.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The source of a configuration value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Origin {
    /// The built-in default.
    #[default]
    Default,
    /// A value that applies because there is no configuration file.
    NoFile,
    /// A line of the configuration file, counted from one.
    File {
        /// The file, as it was named by the caller.
        path: Arc<PathBuf>,
        /// The line, counted from one; zero means the file as a whole.
        line: usize,
    },
    /// An environment variable.
    Env(String),
    /// A flag of the command line.
    Flag(String),
}

impl Origin {
    pub(crate) fn line(path: &Arc<PathBuf>, line: usize) -> Origin {
        let path = Arc::clone(path);
        Origin::File { path, line }
    }

    pub(crate) fn whole_file(path: &Path) -> Origin {
        Origin::line(&Arc::new(path.to_path_buf()), 0)
    }

    /// Sort key for problems: by line of the file, then environment, then flags.
    pub(crate) fn rank(&self) -> (u8, usize) {
        match self {
            Origin::File { line, .. } => (0, *line),
            Origin::Default | Origin::NoFile => (1, 0),
            Origin::Env(_) => (2, 0),
            Origin::Flag(_) => (3, 0),
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Default => f.write_str("default"),
            Origin::NoFile => f.write_str("no configuration file"),
            Origin::File { path, line: 0 } => write!(f, "{}", path.display()),
            Origin::File { path, line } => write!(f, "{}:{line}", path.display()),
            Origin::Env(name) => write!(f, "env {name}"),
            Origin::Flag(name) => write!(f, "flag {name}"),
        }
    }
}
