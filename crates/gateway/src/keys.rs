//! API keys: the key file, and the lookup from a key to its principal.
//!
//! Keys are stored as SHA-256. They are long and random, so a slow password hash would add nothing.
//! Lookup tries exact keys first, then the longest prefix, then patterns in the order of the
//! configuration.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::Arc;

use headworks_core::Class;
use headworks_service::bounded_file;
use headworks_service::config::Secret;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use crate::config::{GatewayConfig, KeySettings};
use crate::error::Error;
use crate::{pattern, secret_pattern};

/// Tenant of all requests to a gateway without keys.
pub(crate) const OPEN_TENANT: &str = "default";

/// The principal of a request: its tenant, and what its key permits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Principal {
    pub(crate) tenant: Arc<str>,
    pub(crate) class: Class,
    /// The most urgent class that a request may choose with `X-Priority`.
    pub(crate) most_urgent: Class,
    pub(crate) models: Vec<String>,
}

impl Principal {
    fn new(key: &KeySettings, default_class: u8) -> Arc<Principal> {
        let class = key.class.unwrap_or(default_class);
        Arc::new(Principal {
            tenant: key.tenant.as_str().into(),
            class: Class(class),
            // A smaller number is more urgent. `max_class` can only widen the choice, never demote
            // the key's own class.
            most_urgent: Class(key.max_class.unwrap_or(class).min(class)),
            models: key.models.clone(),
        })
    }

    pub(crate) fn may_use(&self, model: &str) -> bool {
        pattern::any(&self.models, model)
    }

    /// Class of a request that chooses `asked`, limited by the key. A smaller number is more
    /// urgent.
    pub(crate) fn class_for(&self, asked: Option<Class>) -> Class {
        asked.unwrap_or(self.class).max(self.most_urgent)
    }
}

/// All keys in force.
#[derive(Debug)]
pub(crate) struct Keys {
    exact: HashMap<[u8; 32], Arc<Principal>>,
    prefixes: Vec<(Secret, Arc<Principal>)>,
    patterns: Vec<(Secret, Arc<Principal>)>,
    /// Principal of every request while the gateway is open.
    open_principal: Option<Arc<Principal>>,
    /// Whether keys are configured, or were at any time since the start.
    required: bool,
}

impl Keys {
    pub(crate) fn new<'a>(
        keys: impl IntoIterator<Item = &'a KeySettings>,
        config: &GatewayConfig,
    ) -> Keys {
        let mut all = Keys {
            exact: HashMap::new(),
            prefixes: Vec::new(),
            patterns: Vec::new(),
            open_principal: None,
            required: config.has_keys(),
        };
        for key in keys {
            let principal = Principal::new(key, config.effective_default_class());
            if let Some(hash) = key.hash.as_deref().and_then(decode_hash) {
                all.exact.insert(hash, principal);
            } else if let Some(prefix) = &key.prefix {
                all.prefixes.push((prefix.clone(), principal));
            } else if let Some(pattern) = &key.pattern {
                all.patterns.push((pattern.clone(), principal));
            }
        }
        // Longest first, so that the most specific prefix wins.
        all.prefixes
            .sort_by_key(|(prefix, _)| std::cmp::Reverse(prefix.reveal().len()));
        // Configured keys always win over `open`: a forgotten `open = true` must not bypass them.
        if config.open && !all.required {
            all.open_principal = Some(Arc::new(Principal {
                tenant: OPEN_TENANT.into(),
                class: Class(config.effective_default_class()),
                most_urgent: Class(0),
                models: Vec::new(),
            }));
        }
        all
    }

    /// Whether every request is rejected because no key exists.
    pub(crate) fn admits_nobody(&self) -> bool {
        let none = self.exact.is_empty() && self.prefixes.is_empty() && self.patterns.is_empty();
        none && self.open_principal.is_none()
    }

    /// Tenants that a request may belong to.
    pub(crate) fn tenants(&self) -> impl Iterator<Item = &str> {
        let selected = self.prefixes.iter().chain(&self.patterns);
        let selected = selected.map(|(_, principal)| principal);
        let all = self
            .exact
            .values()
            .chain(selected)
            .chain(&self.open_principal);
        all.map(|principal| &*principal.tenant)
    }

    /// Whether a key is required because keys are configured, or were since the start.
    pub(crate) fn is_required(&self) -> bool {
        self.required
    }

    /// Requires a key from now on, even if `open` is set.
    pub(crate) fn require(&mut self) {
        self.required = true;
        self.open_principal = None;
    }

    /// Whether requests without a key are served.
    pub(crate) fn is_open(&self) -> bool {
        self.open_principal.is_some()
    }

    /// Finds the principal of a key.
    pub(crate) fn authenticate(&self, key: Option<&str>) -> Option<Arc<Principal>> {
        if let Some(open_principal) = &self.open_principal {
            return Some(open_principal.clone());
        }
        let key = key.filter(|key| !key.is_empty())?;
        // The lookup compares hashes, so its timing reveals nothing about a key.
        if let Some(principal) = self.exact.get(&hash(key)) {
            return Some(principal.clone());
        }
        // All prefixes and patterns are compared in full: the time tells nothing about them.
        let by_prefix = self.prefixes.iter().fold(None, |found, one| {
            let prefix = one.0.reveal().as_bytes();
            let begins = key.as_bytes().get(..prefix.len());
            let is_same = begins.is_some_and(|begins| bool::from(begins.ct_eq(prefix)));
            found.or(is_same.then_some(one))
        });
        let by_pattern = self.patterns.iter().fold(None, |found, one| {
            let matches = secret_pattern::matches(one.0.reveal(), key);
            found.or(matches.then_some(one))
        });
        by_prefix
            .or(by_pattern)
            .map(|(_, principal)| principal.clone())
    }
}

fn hash(key: &str) -> [u8; 32] {
    Sha256::digest(key.as_bytes()).into()
}

fn decode_hash(text: &str) -> Option<[u8; 32]> {
    let mut hash = [0; 32];
    hex::decode_to_slice(text, &mut hash).ok()?;
    Some(hash)
}

/// Content of the key file that `headworks gateway key` maintains.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeyFile {
    /// The keys, oldest first.
    #[serde(default)]
    pub key: Vec<KeySettings>,
}

impl KeyFile {
    /// Reads a key file.
    ///
    /// # Errors
    /// If the file does not exist, cannot be read, or has invalid content.
    pub fn read(path: &Path, levels: u8) -> Result<KeyFile, Error> {
        let unusable = |cause: String| Error::KeyFile {
            path: path.to_path_buf(),
            cause,
        };
        if is_missing(path) {
            return Err(Error::KeyFileMissing(path.to_path_buf()));
        }
        let bytes = bounded_file::read(path).map_err(unusable)?;
        let text = String::from_utf8(bytes).map_err(|_| unusable("not UTF-8".into()))?;
        let file: KeyFile = toml::from_str(&text).map_err(|cause| unusable(cause.to_string()))?;
        for key in &file.key {
            crate::config::check_key(key, levels)
                .map_err(|cause| unusable(format!("key `{}`: {cause}", key.id)))?;
        }
        Ok(file)
    }

    /// Reads a key file, or returns an empty one if it does not exist.
    ///
    /// # Errors
    /// If the file cannot be read or has invalid content.
    pub fn read_or_new(path: &Path, levels: u8) -> Result<KeyFile, Error> {
        match KeyFile::read(path, levels) {
            Err(Error::KeyFileMissing(_)) => Ok(KeyFile::default()),
            read => read,
        }
    }

    /// Generates a key, adds it under `settings`, and returns it. Only its hash is stored, so this
    /// is the only time that the key is known.
    ///
    /// # Errors
    /// If the random number generator fails, or the id is already in use.
    pub fn add(&mut self, mut settings: KeySettings) -> Result<String, Error> {
        let mut random = [0; 32];
        getrandom::fill(&mut random)?;
        let key = format!("hw-{}", hex::encode(random));
        if settings.id.is_empty() {
            settings.id = format!("{}-{}", settings.tenant, &hex::encode(hash(&key))[..6]);
        }
        if self.key.iter().any(|known| known.id == settings.id) {
            return Err(Error::KeyTaken(settings.id));
        }
        settings.hash = Some(hex::encode(hash(&key)));
        self.key.push(settings);
        Ok(key)
    }

    /// Removes a key.
    ///
    /// # Errors
    /// If no key has this id.
    pub fn revoke(&mut self, id: &str) -> Result<(), Error> {
        let before = self.key.len();
        self.key.retain(|key| key.id != id);
        match self.key.len() == before {
            true => Err(Error::KeyUnknown(id.to_owned())),
            false => Ok(()),
        }
    }

    /// Content of the file. Serializing a `Secret` masks it, so prefixes and patterns are inserted
    /// in plain text.
    fn text(&self) -> Result<String, toml::ser::Error> {
        let mut keys = Vec::with_capacity(self.key.len());
        for key in &self.key {
            let mut table = toml::Table::try_from(key)?;
            for (name, secret) in [("prefix", &key.prefix), ("pattern", &key.pattern)] {
                if let Some(secret) = secret {
                    table.insert(name.to_owned(), secret.reveal().into());
                }
            }
            keys.push(table);
        }
        toml::to_string(&BTreeMap::from([("key", keys)]))
    }

    /// Replaces the file atomically. Only its owner can read it.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn write(&self, path: &Path) -> Result<(), Error> {
        let unusable = |cause: String| Error::KeyFile {
            path: path.to_path_buf(),
            cause,
        };
        let text = self.text().map_err(|cause| unusable(cause.to_string()))?;
        let mut temporary = path.as_os_str().to_owned();
        temporary.push(".new");
        // A reader sees either the old file or the new one, never a part of it.
        let written = write_private(Path::new(&temporary), &text)
            .and_then(|()| std::fs::rename(&temporary, path));
        written.map_err(|cause| unusable(cause.to_string()))
    }
}

/// Whether nothing exists at `path`. A dangling link counts as existing, so that reading it fails
/// instead of starting without keys.
pub(crate) fn is_missing(path: &Path) -> bool {
    let found = std::fs::symlink_metadata(path);
    found.is_err_and(|cause| cause.kind() == std::io::ErrorKind::NotFound)
}

fn write_private(path: &Path, text: &str) -> std::io::Result<()> {
    use std::io::Write;
    use std::os::unix::fs::OpenOptionsExt;
    let mut options = std::fs::OpenOptions::new();
    let mut file = options
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(tenant: &str) -> KeySettings {
        KeySettings {
            tenant: tenant.into(),
            ..KeySettings::default()
        }
    }

    #[test]
    fn exact_then_prefix_then_pattern() {
        let mut file = KeyFile::default();
        let key = file.add(settings("exact")).unwrap();
        for (prefix, tenant) in [("hw", "short"), ("hw-team-", "long")] {
            file.key.push(KeySettings {
                prefix: Some(prefix.into()),
                ..settings(tenant)
            });
        }
        file.key.push(KeySettings {
            pattern: Some("*-prod".into()),
            ..settings("pattern")
        });
        let keys = Keys::new(&file.key, &GatewayConfig::default());
        let tenant = |key: &str| {
            keys.authenticate(Some(key))
                .map(|principal| principal.tenant.to_string())
        };
        assert_eq!(tenant(&key).as_deref(), Some("exact"));
        assert_eq!(tenant("hw-team-7").as_deref(), Some("long"));
        assert_eq!(tenant("hw-other").as_deref(), Some("short"));
        assert_eq!(tenant("sk-prod").as_deref(), Some("pattern"));
        assert_eq!(tenant("sk-test"), None);
        assert!(keys.authenticate(None).is_none() && keys.authenticate(Some("")).is_none());
    }

    #[test]
    fn without_keys_nobody_is_admitted_unless_the_gateway_is_open() {
        let mut config = GatewayConfig::default();
        let keys = Keys::new([], &config);
        assert!(keys.admits_nobody() && keys.authenticate(Some("anything")).is_none());
        config.open = true;
        let keys = Keys::new([], &config);
        assert!(keys.is_open() && !keys.admits_nobody());
        assert_eq!(&*keys.authenticate(None).unwrap().tenant, OPEN_TENANT);
        config.keys_file = Some("keys.toml".into());
        let keys = Keys::new([], &config);
        assert!(keys.admits_nobody(), "an empty file of keys is not open");
    }

    #[test]
    fn a_class_is_lowered_freely_and_raised_as_far_as_allowed() {
        let principal = Principal {
            tenant: "t".into(),
            class: Class(5),
            most_urgent: Class(3),
            models: Vec::new(),
        };
        assert_eq!(principal.class_for(None), Class(5));
        assert_eq!(principal.class_for(Some(Class(9))), Class(9));
        assert_eq!(principal.class_for(Some(Class(4))), Class(4));
        assert_eq!(principal.class_for(Some(Class(0))), Class(3));
    }

    #[test]
    fn a_key_file_reads_back_and_never_holds_the_key() {
        let path = std::env::temp_dir().join(format!("headworks-keys-{}.toml", std::process::id()));
        let mut file = KeyFile::default();
        let key = file
            .add(KeySettings {
                class: Some(2),
                ..settings("search")
            })
            .unwrap();
        file.key.push(KeySettings {
            prefix: Some("sk-batch-".into()),
            ..settings("batch")
        });
        file.write(&path).unwrap();
        assert!(!std::fs::read_to_string(&path).unwrap().contains(&key));
        let mut read = KeyFile::read(&path, 10).unwrap();
        assert_eq!(read, file);
        let id = read.key[0].id.clone();
        read.revoke(&id).unwrap();
        assert!(read.key.len() == 1 && read.revoke(&id).is_err());
        std::fs::remove_file(&path).unwrap();
    }
}
