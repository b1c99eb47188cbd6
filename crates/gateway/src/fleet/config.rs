//! The `[fleet]` section: where several processes meet.

use std::time::Duration;

use headworks_fleet::FleetUrl;
use headworks_service::config::ValidationError;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

headworks_service::section! {
    /// Several gateways that share one set of limits, keys and usage.
    pub struct FleetConfig = "fleet", check = check;

    /// PostgreSQL database that the gateways share, or a Valkey or Redis server for the limits
    /// alone. Passwords come from PGPASSFILE, PGPASSWORD or VALKEYCLI_AUTH. Without it, this
    /// process is on its own.
    url: Option<String> = None, example("\"postgres://headworks@db.example/fleet\""), restart();
    /// Name of this process in lists and messages. Default: the name of the machine.
    name: Option<String> = None, example("\"gateway-1\""), restart();
    /// Behaviour of a process that cannot reach the shared server. "keep": it keeps using its
    /// share, which others do not get. "closed": it stops after 3 s, and others get its share.
    on_loss: OnLossName = OnLossName::Keep, restart();
    /// Silence after which the share of a process goes to the others, with `on_loss = "keep"`.
    #[serde(with = "headworks_service::config::seconds")]
    forget_after: Duration = Duration::from_secs(600), restart();
    /// Age of the last look at the shared keys beyond which only configured keys work.
    #[serde(with = "headworks_service::config::seconds")]
    keys_max_age: Duration = Duration::from_secs(30), restart();
}

/// Behaviour of a process that cannot reach the shared server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum OnLossName {
    /// It keeps using its share, which is withheld from the others.
    #[default]
    Keep,
    /// It stops granting, and its share goes to the others.
    Closed,
}

impl FleetConfig {
    /// The shared server, or `None` for a process on its own.
    ///
    /// # Errors
    /// If the address cannot be used. A loaded configuration has been checked.
    pub fn address(&self) -> headworks_fleet::Result<Option<FleetUrl>> {
        self.url.as_deref().map(str::parse).transpose()
    }

    /// Extends a fingerprint of limits by how this process treats the shares of others.
    pub(crate) fn fingerprint(&self, limits: u64) -> u64 {
        let text = format!("{limits}{:?}{:?}", self.on_loss, self.forget_after);
        let digest = Sha256::digest(text.as_bytes());
        let (first, _) = digest
            .split_first_chunk::<8>()
            .expect("a digest has 32 bytes");
        u64::from_be_bytes(*first)
    }

    /// The name of this process in lists: the configured one, or that of the machine.
    #[must_use]
    pub fn node_name(&self) -> String {
        let machine = || {
            rustix::system::uname()
                .nodename()
                .to_string_lossy()
                .into_owned()
        };
        self.name.clone().unwrap_or_else(machine)
    }
}

fn check(config: &FleetConfig) -> Vec<ValidationError> {
    let mut found = Vec::new();
    if let Err(error) = config.address() {
        found.push(ValidationError::new("url", error.to_string()));
    }
    if config.keys_max_age.is_zero() {
        found.push(ValidationError::new("keys_max_age", "must be above 0"));
    }
    found
}
