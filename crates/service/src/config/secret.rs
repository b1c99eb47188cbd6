//! Secrets: values that are never printed.

use std::env::VarError;
use std::fmt;
use std::path::Path;

/// A password, key or token. It never appears in `Debug`, `Display`, logs or `config show`.
///
/// In a file it is written as `env:NAME`, as `file:PATH` (relative to that file), or as the value
/// itself. References are resolved when the configuration is loaded, and again on reload.
///
/// ```
/// use headworks_service::config::Secret;
/// let secret = Secret::from("hunter2");
/// assert_eq!(format!("{secret} {secret:?}"), "******** ********");
/// assert_eq!(secret.reveal(), "hunter2");
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

const EMPTY: &str = "the secret is empty; set one, or remove the key";

/// Printed in place of a secret.
pub(crate) const MASK: &str = "********";

impl Secret {
    /// Prefix of a secret that is stored in a file.
    pub(crate) const FILE: &str = "file:";

    /// Returns the value. Use it for comparison and transmission only, never for output.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }

    fn resolve(written: &str) -> Result<Secret, String> {
        let value = if let Some(name) = written.strip_prefix("env:") {
            std::env::var(name).map_err(|cause| match cause {
                VarError::NotPresent => format!("the environment variable `{name}` is not set"),
                VarError::NotUnicode(_) => {
                    format!("the environment variable `{name}` is not valid Unicode")
                }
            })?
        } else if let Some(path) = written.strip_prefix(Secret::FILE) {
            let text = crate::bounded_file::read(Path::new(path))
                .and_then(|bytes| String::from_utf8(bytes).map_err(|_| "not UTF-8 text".to_owned()))
                .map_err(|cause| format!("cannot read the file `{path}`: {cause}"))?;
            // Editors and `echo` end a file with a newline that is not part of the secret.
            text.trim_end_matches(['\r', '\n']).to_owned()
        } else {
            written.to_owned()
        };
        if value.is_empty() {
            return Err(EMPTY.to_owned());
        }
        Ok(Secret(value))
    }
}

impl From<&str> for Secret {
    fn from(value: &str) -> Secret {
        Secret(value.to_owned())
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(MASK)
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(MASK)
    }
}

impl serde::Serialize for Secret {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(MASK)
    }
}

impl<'de> serde::Deserialize<'de> for Secret {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Secret, D::Error> {
        deserializer.deserialize_str(SecretVisitor)
    }
}

/// Visitor for secrets. Its value type is `Secret`, by which the deserializer recognizes text that
/// may name a file.
struct SecretVisitor;

impl serde::de::Visitor<'_> for SecretVisitor {
    type Value = Secret;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_str<E: serde::de::Error>(self, written: &str) -> Result<Secret, E> {
        Secret::resolve(written).map_err(E::custom)
    }
}

/// Deserializes an optional secret, and rejects an empty one instead of treating it as absent: an
/// empty value usually means a variable that was meant to be set.
///
/// # Errors
/// When the value is not a valid secret.
pub fn non_empty_secret<'de, D: serde::Deserializer<'de>>(
    from: D,
) -> Result<Option<Secret>, D::Error> {
    serde::Deserialize::deserialize(from).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comes_from_environment_or_file_or_itself() {
        let from_env = Secret::resolve("env:CARGO_PKG_NAME").unwrap();
        assert_eq!(from_env.reveal(), "headworks-service");
        let from_file = Secret::resolve("file:Cargo.toml").unwrap();
        assert!(from_file.reveal().starts_with("[package]"));
        assert_eq!(Secret::resolve("plain").unwrap().reveal(), "plain");
    }

    #[test]
    fn missing_sources_are_named() {
        assert_eq!(
            Secret::resolve("env:HEADWORKS_NO_SUCH").unwrap_err(),
            "the environment variable `HEADWORKS_NO_SUCH` is not set"
        );
        assert!(
            Secret::resolve("file:/no/such")
                .unwrap_err()
                .contains("/no/such")
        );
        assert_eq!(Secret::resolve("").unwrap_err(), EMPTY);
    }
}
