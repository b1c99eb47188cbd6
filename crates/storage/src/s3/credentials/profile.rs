//! The profile files: `~/.aws/credentials` and `~/.aws/config`.

use crate::error::{Error, ErrorKind, Result};
use std::collections::BTreeMap;
use std::path::Path;

pub(super) type Settings = BTreeMap<String, String>;

/// Returns the settings of a profile. The first file overrides the second; a missing file is empty.
pub(super) fn read(credentials: &Path, config: &Path, profile: &str) -> Result<Settings> {
    let mut settings = section(&content(config)?, |name| {
        let name = name.strip_prefix("profile ").map_or(name, str::trim);
        name == profile
    });
    settings.extend(section(&content(credentials)?, |name| name == profile));
    Ok(settings)
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
