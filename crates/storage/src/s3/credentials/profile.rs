//! The profile files: `~/.aws/credentials` and `~/.aws/config`.

use crate::error::{Error, ErrorKind, Result};
use std::collections::BTreeMap;
use std::path::Path;

pub(super) type Settings = BTreeMap<String, String>;

/// What both files say of a profile; the first file goes before the second. A file that is not
/// there says nothing.
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
        // A line that begins with a space belongs to a setting of a setting, none of which we read.
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
