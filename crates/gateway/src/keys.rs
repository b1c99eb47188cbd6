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
use jiff::Timestamp;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use crate::config::{GatewayConfig, KeySettings, TenantSettings, check_tenant};
use crate::error::Error;
use crate::fleet::KeyClock;
use crate::key_store::{KeyTable, NewKey};
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
    /// Id of the key; empty without one.
    pub(crate) key_id: String,
    /// Time from which the key is refused.
    pub(crate) expires: Option<Timestamp>,
}

impl Principal {
    fn new(key: &KeySettings, config: &GatewayConfig) -> Arc<Principal> {
        // Another node of the fleet may have more classes.
        let last = config.scheduler_priority_levels.saturating_sub(1);
        let class = key.class.unwrap_or(config.effective_default_class());
        let class = class.min(last);
        Arc::new(Principal {
            key_id: key.id.clone(),
            expires: key.expires,
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

/// Why a request has no principal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyRefusal {
    /// It has no key.
    Missing,
    /// No key is like it.
    Unknown,
    /// The key worked until this time.
    Expired(Timestamp),
    /// The stored keys are too old to be trusted.
    Stale,
}

/// A key in force.
#[derive(Clone, Debug)]
struct Entry {
    principal: Arc<Principal>,
    /// Whether it comes from the key store, and not from the configuration.
    is_stored: bool,
}

/// All keys in force.
#[derive(Debug)]
pub(crate) struct Keys {
    exact: HashMap<[u8; 32], Entry>,
    prefixes: Vec<(Secret, Entry)>,
    patterns: Vec<(Secret, Entry)>,
    /// Principal of every request while the gateway is open.
    open_principal: Option<Arc<Principal>>,
    /// Whether keys are configured, or were at any time since the start.
    required: bool,
    /// Whether it is unknown as yet if any key is stored.
    is_undecided: bool,
    /// Tenants of the key store. They count before those of the configuration.
    pub(crate) stored_tenants: Vec<TenantSettings>,
}

impl Keys {
    /// The keys of the configuration and those of the key store.
    pub(crate) fn new(stored: &KeyTable, config: &GatewayConfig) -> Keys {
        let mut all = Keys {
            exact: HashMap::new(),
            prefixes: Vec::new(),
            patterns: Vec::new(),
            open_principal: None,
            required: config.has_keys(),
            is_undecided: false,
            stored_tenants: stored.tenants.clone(),
        };
        let configured = config.key.iter().map(|key| (key, false));
        for (key, is_stored) in configured.chain(stored.keys.iter().map(|key| (key, true))) {
            let entry = Entry {
                principal: Principal::new(key, config),
                is_stored,
            };
            if let Some(hash) = key.hash.as_deref().and_then(decode_hash) {
                all.exact.insert(hash, entry);
            } else if let Some(prefix) = &key.prefix {
                all.prefixes.push((prefix.clone(), entry));
            } else if let Some(pattern) = &key.pattern {
                all.patterns.push((pattern.clone(), entry));
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
                key_id: String::new(),
                expires: None,
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
        let selected = selected.map(|(_, entry)| entry);
        let entries = self.exact.values().chain(selected);
        let all = entries.map(|entry| &entry.principal);
        let all = all.chain(&self.open_principal);
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

    /// Serves nobody without a key until the key store has been read.
    pub(crate) fn await_store(&mut self) {
        self.is_undecided = self.open_principal.take().is_some();
    }

    /// Whether requests without a key are served.
    pub(crate) fn is_open(&self) -> bool {
        self.open_principal.is_some()
    }

    /// Finds the principal of a key that works now.
    pub(crate) fn authenticate(
        &self,
        key: Option<&str>,
        clock: &KeyClock,
    ) -> Result<Arc<Principal>, KeyRefusal> {
        if let Some(open_principal) = &self.open_principal {
            return Ok(open_principal.clone());
        }
        if self.is_undecided {
            return Err(KeyRefusal::Stale);
        }
        let key = key.filter(|key| !key.is_empty());
        let key = key.ok_or(KeyRefusal::Missing)?;
        match self.find(key) {
            // A key that is unknown here may have been stored in the meantime.
            None if !clock.is_fresh() => Err(KeyRefusal::Stale),
            None => Err(KeyRefusal::Unknown),
            // The key may have been revoked in the meantime.
            Some(entry) if entry.is_stored && !clock.is_fresh() => Err(KeyRefusal::Stale),
            Some(Entry { principal, .. }) => match principal.expires {
                Some(at) if clock.now() >= at => Err(KeyRefusal::Expired(at)),
                _ => Ok(principal.clone()),
            },
        }
    }

    fn find(&self, key: &str) -> Option<&Entry> {
        // The lookup compares hashes, so its timing reveals nothing about a key.
        if let Some(entry) = self.exact.get(&hash(key)) {
            return Some(entry);
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
        by_prefix.or(by_pattern).map(|(_, entry)| entry)
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
    /// Tenants that were set at run time. They count before those of the configuration.
    #[serde(default)]
    pub tenant: Vec<TenantSettings>,
}

impl KeyFile {
    /// Reads a key file.
    ///
    /// # Errors
    /// If the file does not exist, is empty, cannot be read, or has invalid content.
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
        // Perhaps in the middle of being written. Without any key it has `key = []`.
        if text.trim().is_empty() {
            return Err(Error::KeyFileEmpty(path.to_path_buf()));
        }
        let file: KeyFile = toml::from_str(&text).map_err(|cause| unusable(cause.to_string()))?;
        for key in &file.key {
            crate::config::check_key(key, levels)
                .map_err(|cause| unusable(format!("key `{}`: {cause}", key.id)))?;
        }
        for tenant in &file.tenant {
            check_tenant(tenant).map_err(unusable)?;
        }
        Ok(file)
    }

    /// Reads a key file, or returns one without keys if it is empty or does not exist.
    ///
    /// # Errors
    /// If the file cannot be read or has invalid content.
    pub fn read_or_new(path: &Path, levels: u8) -> Result<KeyFile, Error> {
        match KeyFile::read(path, levels) {
            Err(Error::KeyFileMissing(_) | Error::KeyFileEmpty(_)) => Ok(KeyFile::default()),
            read => read,
        }
    }

    /// Generates a key, adds it under `settings`, and returns it. Only its hash is stored, so this
    /// is the only time that the key is known.
    ///
    /// # Errors
    /// If the random number generator fails, or the id is already in use.
    pub fn add(&mut self, settings: KeySettings) -> Result<String, Error> {
        let new = NewKey::generate(settings)?;
        if self.key.iter().any(|known| known.id == new.settings.id) {
            return Err(Error::KeyTaken(new.settings.id));
        }
        self.key.push(new.settings.clone());
        Ok(new.reveal().to_owned())
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

    /// Changes the file: reads it, or begins a new one, and replaces it unless `change` fails. Only
    /// one process does this at a time: of two that read the same file, the second would restore
    /// the key that the first revokes.
    ///
    /// # Errors
    /// If the file cannot be locked, read or written, or `change` fails.
    pub fn update<R>(
        path: &Path,
        levels: u8,
        change: impl FnOnce(&mut KeyFile) -> Result<R, Error>,
    ) -> Result<R, Error> {
        // The file itself is replaced, so a lock on it would be one on the file that was there.
        let _lock = lock_beside(path)?;
        let mut file = KeyFile::read_or_new(path, levels)?;
        let result = change(&mut file)?;
        file.write(path)?;
        Ok(result)
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
        let mut tables = vec![("key", keys)];
        if !self.tenant.is_empty() {
            let tenants = self.tenant.iter().map(toml::Table::try_from);
            tables.push(("tenant", tenants.collect::<Result<_, _>>()?));
        }
        toml::to_string(&BTreeMap::from_iter(tables))
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
            .and_then(|()| std::fs::rename(&temporary, path))
            // A key that was revoked stays so after a power failure.
            .and_then(|()| std::fs::File::open(folder_of(path))?.sync_all());
        written.map_err(|cause| unusable(cause.to_string()))
    }
}

/// Whether nothing exists at `path`. A dangling link counts as existing, so that reading it fails
/// instead of starting without keys.
pub(crate) fn is_missing(path: &Path) -> bool {
    let found = std::fs::symlink_metadata(path);
    found.is_err_and(|cause| cause.kind() == std::io::ErrorKind::NotFound)
}

/// The folder of a file.
fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

/// Waits for the lock file beside `path`. Closing the file releases the lock.
pub(crate) fn lock_beside(path: &Path) -> Result<std::fs::File, Error> {
    use std::os::unix::fs::OpenOptionsExt;
    let mut name = path.as_os_str().to_owned();
    name.push(".lock");
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create(true).truncate(false).mode(0o600);
    let locked = options.open(name).and_then(|file| {
        file.lock()?;
        Ok(file)
    });
    locked.map_err(|cause| Error::KeyFile {
        path: path.to_path_buf(),
        cause: format!("cannot lock it: {cause}"),
    })
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

    fn authenticate(keys: &Keys, key: Option<&str>) -> Result<Arc<Principal>, KeyRefusal> {
        keys.authenticate(key, &KeyClock::Local)
    }

    #[test]
    fn an_expired_key_is_refused() {
        let mut file = KeyFile::default();
        let now = Timestamp::now();
        let minute = jiff::SignedDuration::from_mins(1);
        let mut key_until = |expires| {
            let settings = KeySettings {
                expires: Some(expires),
                ..settings("t")
            };
            file.add(settings).unwrap()
        };
        let (past, future) = (key_until(now - minute), key_until(now + minute));
        let keys = Keys::new(&file.into(), &GatewayConfig::default());
        let refused = authenticate(&keys, Some(&past)).unwrap_err();
        assert_eq!(refused, KeyRefusal::Expired(now - minute));
        assert!(authenticate(&keys, Some(&future)).is_ok());
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
        let keys = Keys::new(&file.into(), &GatewayConfig::default());
        let tenant = |key: &str| {
            let found = authenticate(&keys, Some(key)).ok();
            found.map(|principal| principal.tenant.to_string())
        };
        assert_eq!(tenant(&key).as_deref(), Some("exact"));
        assert_eq!(tenant("hw-team-7").as_deref(), Some("long"));
        assert_eq!(tenant("hw-other").as_deref(), Some("short"));
        assert_eq!(tenant("sk-prod").as_deref(), Some("pattern"));
        assert_eq!(tenant("sk-test"), None);
        for missing in [None, Some("")] {
            let refused = authenticate(&keys, missing).unwrap_err();
            assert_eq!(refused, KeyRefusal::Missing);
        }
    }

    #[test]
    fn without_keys_nobody_is_admitted_unless_the_gateway_is_open() {
        let mut config = GatewayConfig::default();
        let keys = Keys::new(&KeyTable::default(), &config);
        assert!(keys.admits_nobody() && authenticate(&keys, Some("anything")).is_err());
        config.open = true;
        let keys = Keys::new(&KeyTable::default(), &config);
        assert!(keys.is_open() && !keys.admits_nobody());
        assert_eq!(&*authenticate(&keys, None).unwrap().tenant, OPEN_TENANT);
        config.keys_file = Some("keys.toml".into());
        let keys = Keys::new(&KeyTable::default(), &config);
        assert!(keys.admits_nobody(), "an empty file of keys is not open");
    }

    #[test]
    fn a_class_is_lowered_freely_and_raised_as_far_as_allowed() {
        let principal = Principal {
            tenant: "t".into(),
            class: Class(5),
            most_urgent: Class(3),
            models: Vec::new(),
            key_id: String::new(),
            expires: None,
        };
        assert_eq!(principal.class_for(None), Class(5));
        assert_eq!(principal.class_for(Some(Class(9))), Class(9));
        assert_eq!(principal.class_for(Some(Class(4))), Class(4));
        assert_eq!(principal.class_for(Some(Class(0))), Class(3));
    }

    #[test]
    fn concurrent_changes_lose_no_key_and_restore_none() {
        let folder = std::env::temp_dir().join(format!("headworks-keys-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("keys.toml");
        let named = |id: String| KeySettings {
            id,
            ..settings("t")
        };
        for number in 0..16 {
            KeyFile::update(&path, 10, |file| file.add(named(format!("old {number}")))).unwrap();
        }
        std::thread::scope(|scope| {
            for number in 0..16 {
                let (path, named) = (&path, &named);
                let add = move |file: &mut KeyFile| file.add(named(format!("new {number}")));
                scope.spawn(move || KeyFile::update(path, 10, add).unwrap());
                let revoke = move |file: &mut KeyFile| file.revoke(&format!("old {number}"));
                scope.spawn(move || KeyFile::update(path, 10, revoke).unwrap());
            }
        });
        let file = KeyFile::read(&path, 10).unwrap();
        assert_eq!(file.key.len(), 16);
        assert!(file.key.iter().all(|key| key.id.starts_with("new")));
        std::fs::remove_dir_all(&folder).unwrap();
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
