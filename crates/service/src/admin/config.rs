//! The `[admin]` section.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use crate::config::{Secret, ValidationError};
use crate::proxies::{ClientHeader, Network};

crate::section! {
    /// The admin listener: health, metrics, panels, actions and reload.
    pub struct AdminConfig = "admin", check = check;

    /// The listen address. Addresses other than loopback need a `token`. Port 0 picks a free port.
    listen: SocketAddr = SocketAddr::from((Ipv4Addr::LOCALHOST, 7070)), restart();
    /// The token that clients must send: "env:NAME", "file:PATH", or the token itself. Without one,
    /// a token is generated at every start and printed.
    #[serde(deserialize_with = "crate::config::non_empty_secret")]
    token: Option<Secret> = None, example("\"env:ADMIN_TOKEN\""), restart();
    /// Proxies that are trusted to report the client's address.
    trusted_proxies: Vec<Network> = Vec::new(), example("[\"10.0.0.0/8\", \"192.0.2.1\"]"), restart();
    /// The one header that those proxies set: "x-forwarded-for", "x-real-ip" or "forwarded".
    client_header: ClientHeader = ClientHeader::XForwardedFor, restart();
    /// Timeout for the request header, and for idle connections.
    #[serde(with = "crate::config::seconds")]
    header_timeout: Duration = Duration::from_secs(10), restart();
}

/// Minimum length of a configured token. Wrong guesses are not blocked, so length is the
/// protection.
const MIN_TOKEN_LENGTH: usize = 16;

fn check(config: &AdminConfig) -> Vec<ValidationError> {
    let mut errors = Vec::new();
    if !config.listen.ip().to_canonical().is_loopback() && config.token.is_none() {
        let text = "an address other than loopback needs a token: set `admin.token`, or listen on 127.0.0.1";
        errors.push(ValidationError::new("listen", text));
    }
    if config
        .token
        .as_ref()
        .is_some_and(|token| token.reveal().len() < MIN_TOKEN_LENGTH)
    {
        let text = format!(
            "too short: use at least {MIN_TOKEN_LENGTH} characters, for example from `openssl rand -hex 32`"
        );
        errors.push(ValidationError::new("token", text));
    }
    if config.header_timeout.is_zero() {
        let text = "must not be zero; write \"10s\", or leave it out";
        errors.push(ValidationError::new("header_timeout", text));
    }
    errors
}
