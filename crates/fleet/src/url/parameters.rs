//! The parameters of a URL.

use super::authority::decode;
use super::redact::is_secret;
use crate::error::{Error, Result};

/// Decoded parameters, all of them known and none of them twice.
pub(super) struct Parameters {
    left: Vec<(String, String)>,
}

impl Parameters {
    pub(super) fn parse(
        query: &str,
        known: &'static [&'static str],
        advice: &'static str,
    ) -> Result<Parameters> {
        let mut left: Vec<(String, String)> = Vec::new();
        for part in query.split('&').filter(|part| !part.is_empty()) {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            if is_secret(name) {
                return Err(Error::PasswordInUrl(advice));
            }
            let name = decode(name, "parameter")?;
            if !known.contains(&name.as_str()) {
                let known = known.join("`, `");
                return Err(Error::Url(format!(
                    "unknown parameter `{name}`; known are `{known}`"
                )));
            }
            if left.iter().any(|(other, _)| *other == name) {
                return Err(Error::Url(format!("the parameter `{name}` occurs twice")));
            }
            let value = decode(value, "parameter")?;
            left.push((name, value));
        }
        Ok(Parameters { left })
    }

    pub(super) fn take(&mut self, name: &str) -> Option<String> {
        let at = self.left.iter().position(|(other, _)| other == name)?;
        Some(self.left.swap_remove(at).1)
    }
}
