//! The content of a key store, and the effect of every change on it.

use std::collections::HashSet;

use jiff::Timestamp;

use super::change::{Changed, KeyChange};
use crate::config::{KeySettings, TenantSettings, check_key, check_tenant};
use crate::error::Error;

/// All stored keys and tenants.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct KeyTable {
    /// The keys, oldest first.
    pub keys: Vec<KeySettings>,
    /// The tenants, oldest first.
    pub tenants: Vec<TenantSettings>,
}

/// Longest id of a key and name of a tenant.
const MAX_NAME: usize = 200;

impl KeyTable {
    /// Applies a change. `removed` has the ids of an import's keys that were removed earlier.
    pub(super) fn apply(
        &mut self,
        change: &KeyChange,
        levels: u8,
        removed: &HashSet<String>,
    ) -> Result<Changed, Error> {
        match change {
            KeyChange::Add(key) => self.add(key.clone(), levels),
            KeyChange::Rotate {
                id,
                successor,
                keep_until,
            } => self.rotate(id, successor, *keep_until, levels),
            KeyChange::Expire { id, at } => {
                self.find(id)?.expires = at.map(whole_second);
                Ok(Changed::default())
            }
            KeyChange::Revoke { id } => {
                self.find(id)?;
                self.keys.retain(|key| key.id != *id);
                Ok(Changed::default())
            }
            KeyChange::SetTenant(tenant) => self.set_tenant(tenant),
            KeyChange::RemoveTenant { name } => {
                let before = self.tenants.len();
                self.tenants.retain(|tenant| tenant.name != *name);
                match self.tenants.len() == before {
                    true => Err(Error::TenantUnknown(name.clone())),
                    false => Ok(Changed::default()),
                }
            }
            KeyChange::Import { keys, tenants } => self.import(keys, tenants, levels, removed),
        }
    }

    fn find(&mut self, id: &str) -> Result<&mut KeySettings, Error> {
        let found = self.keys.iter_mut().find(|key| key.id == id);
        found.ok_or_else(|| Error::KeyUnknown(id.to_owned()))
    }

    fn add(&mut self, mut key: KeySettings, levels: u8) -> Result<Changed, Error> {
        check_name("key", &key.id)?;
        check_name("tenant", &key.tenant)?;
        let invalid = |cause| Error::KeyInvalid(format!("key `{}`: {cause}", key.id));
        check_key(&key, levels).map_err(invalid)?;
        let taken = |known: &&KeySettings| known.id == key.id || is_same_key(known, &key);
        if let Some(known) = self.keys.iter().find(taken) {
            return Err(Error::KeyTaken(known.id.clone()));
        }
        key.expires = key.expires.map(whole_second);
        let added = vec![key.id.clone()];
        self.keys.push(key);
        Ok(Changed {
            added,
            ..Changed::default()
        })
    }

    fn rotate(
        &mut self,
        id: &str,
        successor: &KeySettings,
        keep_until: Option<Timestamp>,
        levels: u8,
    ) -> Result<Changed, Error> {
        let replaced = self.find(id)?;
        let successor = KeySettings {
            id: successor.id.clone(),
            hash: successor.hash.clone(),
            prefix: None,
            pattern: None,
            // A limited time of use is not extended by the way.
            expires: successor.expires.or(replaced.expires),
            ..replaced.clone()
        };
        if let Some(until) = keep_until {
            let until = whole_second(until);
            replaced.expires = Some(replaced.expires.map_or(until, |at| at.min(until)));
        }
        let changed = self.add(successor, levels)?;
        if keep_until.is_none() {
            self.keys.retain(|key| key.id != id);
        }
        Ok(changed)
    }

    fn set_tenant(&mut self, tenant: &TenantSettings) -> Result<Changed, Error> {
        check_name("tenant", &tenant.name)?;
        check_tenant(tenant).map_err(Error::KeyInvalid)?;
        let known = self.tenants.iter_mut().find(|one| one.name == tenant.name);
        match known {
            Some(known) => *known = tenant.clone(),
            None => self.tenants.push(tenant.clone()),
        }
        Ok(Changed::default())
    }

    fn import(
        &mut self,
        keys: &[KeySettings],
        tenants: &[TenantSettings],
        levels: u8,
        removed: &HashSet<String>,
    ) -> Result<Changed, Error> {
        let mut changed = Changed::default();
        for key in keys {
            if key.hash.is_none() {
                return Err(Error::KeyInvalid(format!(
                    "key `{}` has a prefix or pattern, which would be stored in plain text: move it to \
                     `[[gateway.key]]`",
                    key.id
                )));
            }
            let same = |known: &KeySettings| known.id == key.id && is_same_key(known, key);
            if self.keys.iter().any(same) {
                continue;
            }
            if removed.contains(&key.id) {
                changed.revoked.push(key.id.clone());
                continue;
            }
            changed.added.extend(self.add(key.clone(), levels)?.added);
        }
        for tenant in tenants {
            if !self.tenants.iter().any(|known| known.name == tenant.name) {
                self.set_tenant(tenant)?;
            }
        }
        Ok(changed)
    }
}

/// Whether two entries are for the same key. Hashes are hexadecimal, in either case.
fn is_same_key(one: &KeySettings, other: &KeySettings) -> bool {
    match (&one.hash, &other.hash) {
        (Some(one), Some(other)) => one.eq_ignore_ascii_case(other),
        _ => false,
    }
}

/// Stores differ in the precision of times, so it is the same for all.
fn whole_second(at: Timestamp) -> Timestamp {
    Timestamp::from_second(at.as_second()).unwrap_or(at)
}

/// Names are shown in terminals and travel in paths.
fn check_name(kind: &str, name: &str) -> Result<(), Error> {
    let wrong = match name {
        "" => "is empty".to_owned(),
        name if name.len() > MAX_NAME => format!("has more than {MAX_NAME} bytes"),
        name if name.chars().any(char::is_control) => "has control characters".to_owned(),
        _ => return Ok(()),
    };
    Err(Error::KeyInvalid(format!("the name of a {kind} {wrong}")))
}
