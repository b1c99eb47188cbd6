//! Relative paths in a configuration file.

use std::any::type_name;
use std::borrow::Cow;
use std::path::{Path, PathBuf};

use super::error::Error;
use crate::config::Secret;
use crate::config::origin::Origin;

/// Returns `text` in the form in which a `T` reads it.
///
/// A relative path in a configuration file starts at the directory of that file, so that it means
/// the same in every working directory. Flags and variables are set in the working directory and
/// stay relative to it.
pub(super) fn resolve_path<'t, T>(text: &'t str, origin: &Origin) -> Result<Cow<'t, str>, Error> {
    let Origin::File { path: file, .. } = origin else {
        return Ok(Cow::Borrowed(text));
    };
    // Decided by type, so that no section can forget to mark a path. `TypeId` would need
    // `T: 'static`, which serde does not promise of a visitor's value.
    let prefix = if type_name::<T>() == type_name::<PathBuf>() {
        ""
    } else if type_name::<T>() == type_name::<Secret>() && text.starts_with(Secret::FILE) {
        Secret::FILE
    } else {
        return Ok(Cow::Borrowed(text));
    };
    let relative = &text[prefix.len()..];
    if relative.is_empty() {
        return Ok(Cow::Borrowed(text));
    }
    let folder = file.parent().unwrap_or(Path::new(""));
    match folder.join(relative).to_str() {
        Some(path) => Ok(Cow::Owned(format!("{prefix}{path}"))),
        None => {
            let error = Error::new("the path of this file is not UTF-8");
            Err(error.remedy("write an absolute path"))
        }
    }
}
