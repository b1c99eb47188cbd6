//! Passwords, from the environment and from files only.

use std::collections::HashMap;
use std::fmt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::url::{Host, PostgresUrl, ValkeyUrl};

/// A password. It is never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Wraps a password.
    #[must_use]
    pub fn new(password: impl Into<String>) -> Secret {
        Secret(password.into())
    }

    pub(crate) fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(***)")
    }
}

/// The environment variables that name users and passwords.
const VARIABLES: [&str; 7] = [
    "HOME",
    "PGPASSFILE",
    "PGPASSWORD",
    "PGUSER",
    "REDISCLI_AUTH",
    "USER",
    "VALKEYCLI_AUTH",
];

/// Where users and passwords come from: a copy of the environment variables that name them.
///
/// PostgreSQL: `PGUSER`, `PGPASSWORD`, `PGPASSFILE` and `~/.pgpass`, as for psql. Valkey and Redis:
/// `VALKEYCLI_AUTH` and `REDISCLI_AUTH`, as for their command-line clients.
#[derive(Clone, Default)]
pub struct Secrets {
    variables: HashMap<&'static str, String>,
}

impl Secrets {
    /// Reads the environment of this process.
    #[must_use]
    pub fn from_env() -> Secrets {
        Secrets::from_variables(|name| std::env::var(name).ok())
    }

    /// Reads variables from a function.
    #[must_use]
    pub fn from_variables(get: impl Fn(&str) -> Option<String>) -> Secrets {
        let variables = VARIABLES
            .into_iter()
            .filter_map(|name| Some((name, get(name)?)))
            .filter(|(_, value)| !value.is_empty())
            .collect();
        Secrets { variables }
    }

    fn get(&self, name: &str) -> Option<&str> {
        self.variables.get(name).map(String::as_str)
    }

    pub(crate) fn postgres_user(&self, url: &PostgresUrl) -> Result<String> {
        url.user()
            .or_else(|| self.get("PGUSER"))
            .or_else(|| self.get("USER"))
            .map(str::to_owned)
            .ok_or_else(|| Error::Url("no user: write `postgres://user@host/database`".to_owned()))
    }

    /// The password for one of the servers of `url`, if there is one.
    pub(crate) fn postgres_password(
        &self,
        url: &PostgresUrl,
        host: &Host,
        user: &str,
    ) -> Result<Option<Secret>> {
        if let Some(password) = self.get("PGPASSWORD") {
            return Ok(Some(Secret::new(password)));
        }
        let wanted = [
            host.name.as_str(),
            &host.port.to_string(),
            url.database(),
            user,
        ];
        match (self.get("PGPASSFILE"), self.get("HOME")) {
            // A file that the user names must be there; the default one need not.
            (Some(path), _) => read_password_file(Path::new(path), &wanted),
            (None, Some(home)) => {
                let path = PathBuf::from(home).join(".pgpass");
                if path.exists() {
                    read_password_file(&path, &wanted)
                } else {
                    Ok(None)
                }
            }
            (None, None) => Ok(None),
        }
    }

    pub(crate) fn valkey_password(&self, _url: &ValkeyUrl) -> Option<Secret> {
        self.get("VALKEYCLI_AUTH")
            .or_else(|| self.get("REDISCLI_AUTH"))
            .map(Secret::new)
    }
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Secrets").finish_non_exhaustive()
    }
}

fn read_password_file(path: &Path, wanted: &[&str; 4]) -> Result<Option<Secret>> {
    let failed = |cause: String| Error::Password(format!("`{}`: {cause}", path.display()));
    let about = std::fs::metadata(path).map_err(|e| failed(e.to_string()))?;
    if !about.is_file() || about.len() > 1 << 20 {
        return Err(failed("not a regular file of at most 1 MiB".to_owned()));
    }
    // libpq ignores such a file; then the error would be a missing password.
    if about.permissions().mode() & 0o077 != 0 {
        return Err(failed(
            "others can read it: run `chmod 600` on it".to_owned(),
        ));
    }
    let content = std::fs::read_to_string(path).map_err(|e| failed(e.to_string()))?;
    Ok(find_password(&content, wanted))
}

/// Returns the password of the first line that fits: `host:port:database:user:password`.
fn find_password(content: &str, wanted: &[&str; 4]) -> Option<Secret> {
    content
        .lines()
        .filter(|line| !line.starts_with('#'))
        .find_map(|line| {
            let fields = fields(line);
            let [host, port, database, user, password] = fields.as_slice() else {
                return None;
            };
            let fits = [host, port, database, user]
                .iter()
                .zip(wanted)
                .all(|(field, wanted)| *field == "*" || field == wanted);
            fits.then(|| Secret::new(password.as_str()))
        })
}

/// Splits a line at colons. A backslash makes the next character an ordinary one.
fn fields(line: &str) -> Vec<String> {
    let mut fields = vec![String::new()];
    let mut characters = line.chars();
    while let Some(character) = characters.next() {
        let literal = match character {
            // The password is the rest of the line, and may contain colons.
            ':' if fields.len() < 5 => {
                fields.push(String::new());
                continue;
            }
            '\\' => characters.next().unwrap_or('\\'),
            other => other,
        };
        if let Some(last) = fields.last_mut() {
            last.push(literal);
        }
    }
    fields
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secrets(pairs: &[(&str, &str)]) -> Secrets {
        Secrets::from_variables(|name| {
            let pair = pairs.iter().find(|(other, _)| *other == name)?;
            Some(pair.1.to_owned())
        })
    }

    fn password(secrets: &Secrets) -> Result<Option<String>> {
        let url: PostgresUrl = "postgres://me@db.example/fleet".parse()?;
        let found = secrets.postgres_password(&url, &url.hosts()[0], "me")?;
        Ok(found.map(|secret| secret.expose().to_owned()))
    }

    #[test]
    fn the_first_line_that_fits_has_the_password() {
        let wanted = ["h", "5432", "d", "u"];
        let find = |content| find_password(content, &wanted).map(|s| s.expose().to_owned());
        assert_eq!(
            find("h:5432:d:x:1\n*:*:*:u:2\nh:5432:d:u:3"),
            Some("2".into())
        );
        assert_eq!(
            find("#h:5432:d:u:1\nh:5432:d:u:a\\:b\\\\c:d"),
            Some("a:b\\c:d".into())
        );
        assert_eq!(find("h:5432:d:u"), None);
        assert_eq!(find(""), None);
    }

    #[test]
    fn a_password_file_must_be_private_and_exist_if_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pass");
        let named = secrets(&[("PGPASSFILE", path.to_str().unwrap())]);
        assert!(password(&named).unwrap_err().to_string().contains("pass`"));
        std::fs::write(&path, "db.example:5432:fleet:me:pw\n").unwrap();
        let set = |mode| std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
        set(0o644);
        assert!(
            password(&named)
                .unwrap_err()
                .to_string()
                .contains("chmod 600")
        );
        set(0o600);
        assert_eq!(password(&named).unwrap().as_deref(), Some("pw"));
        let both = secrets(&[("PGPASSFILE", "/absent"), ("PGPASSWORD", "first")]);
        assert_eq!(password(&both).unwrap().as_deref(), Some("first"));
    }

    #[test]
    fn nothing_shows_a_password() {
        let all = secrets(&[("PGPASSWORD", "hunter2")]);
        assert!(!format!("{all:?} {:?}", Secret::new("hunter2")).contains("hunter2"));
    }
}
