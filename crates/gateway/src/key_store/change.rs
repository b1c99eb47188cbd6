//! Changes of keys and tenants.

use jiff::Timestamp;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::config::{KeySettings, TenantSettings};
use crate::error::Error;

/// A change of the stored keys or tenants.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum KeyChange {
    /// Adds a key.
    Add(KeySettings),
    /// Replaces a key by a successor, which gets its tenant and permissions.
    Rotate {
        /// Id of the key.
        id: String,
        /// The successor's id, hash and expiry. Without an expiry, it gets that of its predecessor.
        successor: KeySettings,
        /// How long the replaced key works beside its successor; `None` removes it at once.
        keep_until: Option<Timestamp>,
    },
    /// Sets the time from which a key is refused; `None` lets it work until it is revoked.
    Expire {
        /// Id of the key.
        id: String,
        /// The time.
        at: Option<Timestamp>,
    },
    /// Removes a key.
    Revoke {
        /// Id of the key.
        id: String,
    },
    /// Adds a tenant, or replaces its settings.
    SetTenant(TenantSettings),
    /// Removes a tenant's settings. Its keys stay.
    RemoveTenant {
        /// Name of the tenant.
        name: String,
    },
    /// Adds the keys and tenants of a key file.
    Import {
        /// The keys, by hash. Keys that are stored already, and keys that were revoked, are left
        /// out.
        keys: Vec<KeySettings>,
        /// The tenants. Those that are stored already stay as they are.
        tenants: Vec<TenantSettings>,
    },
}

/// The effect of a change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Changed {
    /// Ids of the keys that were added.
    pub added: Vec<String>,
    /// Ids of keys that an import left out, because they were revoked.
    pub revoked: Vec<String>,
}

impl KeyChange {
    /// The name of the change in the audit log.
    pub(super) fn action(&self) -> &'static str {
        match self {
            KeyChange::Add(_) => "add key",
            KeyChange::Rotate { .. } => "rotate key",
            KeyChange::Expire { .. } => "expire key",
            KeyChange::Revoke { .. } => "revoke key",
            KeyChange::SetTenant(_) => "set tenant",
            KeyChange::RemoveTenant { .. } => "remove tenant",
            KeyChange::Import { .. } => "import",
        }
    }

    /// Actions after which a key no longer works.
    pub(super) const REMOVING: [&'static str; 2] = ["rotate key", "revoke key"];

    /// Id of the key, or name of the tenant.
    pub(super) fn subject(&self) -> String {
        match self {
            KeyChange::Add(key) => key.id.clone(),
            KeyChange::Rotate { id, .. }
            | KeyChange::Expire { id, .. }
            | KeyChange::Revoke { id } => id.clone(),
            KeyChange::SetTenant(tenant) => tenant.name.clone(),
            KeyChange::RemoveTenant { name } => name.clone(),
            KeyChange::Import { .. } => String::new(),
        }
    }

    /// The new settings, without hashes.
    pub(super) fn detail(&self) -> Value {
        match self {
            KeyChange::Add(key) => without_secrets(key),
            KeyChange::Rotate {
                successor,
                keep_until,
                ..
            } => json!({ "successor": successor.id, "keep_until": keep_until }),
            KeyChange::Expire { at, .. } => json!({ "expires": at }),
            KeyChange::SetTenant(tenant) => json!(tenant),
            KeyChange::Revoke { .. } | KeyChange::RemoveTenant { .. } => Value::Null,
            KeyChange::Import { keys, tenants } => {
                let keys: Vec<&str> = keys.iter().map(|key| key.id.as_str()).collect();
                let tenants: Vec<&str> = tenants.iter().map(|one| one.name.as_str()).collect();
                json!({ "keys": keys, "tenants": tenants })
            }
        }
    }
}

/// Settings of a key as they may be shown.
fn without_secrets(key: &KeySettings) -> Value {
    json!({
        "tenant": key.tenant, "class": key.class, "max_class": key.max_class,
        "models": key.models, "expires": key.expires,
    })
}

/// A key that was just generated. Only its hash is stored, so this is the only time that the key is
/// known.
pub struct NewKey {
    /// The settings to store, with the hash.
    pub settings: KeySettings,
    key: String,
}

impl NewKey {
    /// Generates a key with these settings. Without an id, it gets one from its tenant and hash.
    ///
    /// # Errors
    /// If the random number generator fails.
    pub fn generate(mut settings: KeySettings) -> Result<NewKey, Error> {
        let mut random = [0; 32];
        getrandom::fill(&mut random)?;
        let key = format!("hw-{}", hex::encode(random));
        let hash = hex::encode(Sha256::digest(key.as_bytes()));
        if settings.id.is_empty() {
            let tenant = match settings.tenant.as_str() {
                "" => "key",
                tenant => tenant,
            };
            settings.id = format!("{tenant}-{}", &hash[..6]);
        }
        settings.hash = Some(hash);
        Ok(NewKey { settings, key })
    }

    /// The key itself.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.key
    }
}

impl std::fmt::Debug for NewKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NewKey")
            .field("id", &self.settings.id)
            .finish_non_exhaustive()
    }
}
