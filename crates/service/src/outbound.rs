//! The settings of the [HTTP client](headworks_outbound) that all applications share.

use std::path::PathBuf;
use std::time::Duration;

use crate::config::ValidationError;
pub use headworks_outbound::{
    DnsCache, Outbound, RequestBody, Settings, direct_peer, error_chain, is_address_not_allowed,
    is_host_not_found,
};

crate::section! {
    /// Outbound HTTP connections.
    pub struct OutboundConfig = "outbound", check = check;

    /// Use the proxies of the environment: HTTP_PROXY, HTTPS_PROXY, ALL_PROXY and NO_PROXY.
    proxy_from_environment: bool = true, restart();
    /// A PEM file with CA certificates to trust in addition to the system's.
    ca_file: Option<PathBuf> = None, example("\"/etc/ssl/private-ca.pem\""), restart();
    /// Connect timeout, including proxy and TLS.
    #[serde(with = "crate::config::seconds")]
    connect_timeout: Duration = Duration::from_secs(10), restart();
    /// Idle timeout of pooled connections.
    #[serde(with = "crate::config::seconds")]
    idle_timeout: Duration = Duration::from_secs(90), restart();
}

fn check(config: &OutboundConfig) -> Vec<ValidationError> {
    let mut errors = Vec::new();
    if config.connect_timeout.is_zero() {
        let text = "must not be zero; write \"10s\", or leave it out";
        errors.push(ValidationError::new("connect_timeout", text));
    }
    let certificates = config.ca_file.as_deref();
    if let Some(Err(error)) = certificates.map(headworks_outbound::read_certificates) {
        errors.push(ValidationError::new("ca_file", error.to_string()));
    }
    errors
}

impl From<&OutboundConfig> for Settings {
    fn from(config: &OutboundConfig) -> Self {
        let mut settings = Settings::default();
        settings.proxy_from_environment = config.proxy_from_environment;
        settings.ca_file.clone_from(&config.ca_file);
        settings.connect_timeout = config.connect_timeout;
        settings.idle_timeout = config.idle_timeout;
        settings
    }
}
