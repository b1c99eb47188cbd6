//! The profile files: `~/.aws/credentials` and `~/.aws/config`.

use crate::error::{Error, ErrorKind, Result};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

pub(super) type Settings = BTreeMap<String, String>;

/// A profile, and the files that it is in.
#[derive(Clone)]
pub(super) struct Profile {
    pub(super) credentials: PathBuf,
    pub(super) config: PathBuf,
    pub(super) name: String,
}

impl Profile {
    /// Returns the settings of the profile. The file with credentials overrides the other one; a
    /// missing file is empty.
    pub(super) fn read(&self) -> Result<Settings> {
        let mut settings = section(&content(&self.config)?, |name| {
            let name = name.strip_prefix("profile ").map_or(name, str::trim);
            name == self.name
        });
        let credentials = content(&self.credentials)?;
        settings.extend(section(&credentials, |name| name == self.name));
        Ok(settings)
    }
}

fn content(path: &Path) -> Result<String> {
    match std::fs::read_to_string(path) {
        Ok(content) => Ok(content),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(String::new()),
        Err(error) => {
            let path = path.to_string_lossy();
            let message = error.to_string();
            Err(Error::new(
                ErrorKind::Denied,
                "read",
                path.as_bytes(),
                message,
            ))
        }
    }
}

fn section(content: &str, wanted: impl Fn(&str) -> bool) -> Settings {
    let mut settings = Settings::new();
    let mut inside = false;
    for line in content.lines() {
        // An indented line belongs to a nested setting, none of which is used.
        let nested = line.starts_with([' ', '\t']);
        let line = line.trim();
        if nested || line.is_empty() || line.starts_with(['#', ';']) {
            continue;
        }
        if let Some(name) = line.strip_prefix('[').and_then(|l| l.split(']').next()) {
            inside = wanted(name.trim());
        } else if inside && let Some((key, value)) = line.split_once('=') {
            settings.insert(key.trim().to_lowercase(), value.trim().to_owned());
        }
    }
    settings
}
