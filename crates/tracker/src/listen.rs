//! Listening addresses as the operator writes them.

use serde::{Deserialize, Serialize};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

/// Addresses to listen on: `127.0.0.1:6969`, `[::1]:6969`, or `:6969` and `*:6969` for all
/// addresses. Several are separated by commas; an empty text means not to listen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Listen {
    text: String,
    addresses: Vec<SocketAddr>,
}

impl Listen {
    /// Creates the loopback address with that port.
    #[must_use]
    pub fn loopback(port: u16) -> Listen {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        Listen {
            text: address.to_string(),
            addresses: vec![address],
        }
    }

    /// Returns the addresses. An IPv6 address does not include IPv4.
    #[must_use]
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }
}

impl TryFrom<String> for Listen {
    type Error = String;

    fn try_from(text: String) -> Result<Listen, String> {
        let mut addresses = Vec::new();
        for part in text
            .split(',')
            .map(str::trim)
            .filter(|part| !part.is_empty())
        {
            let all = part.strip_prefix(':').or_else(|| part.strip_prefix("*:"));
            match all.map(str::parse::<u16>) {
                Some(Ok(port)) => {
                    addresses.push(SocketAddr::from((Ipv4Addr::UNSPECIFIED, port)));
                    addresses.push(SocketAddr::from((Ipv6Addr::UNSPECIFIED, port)));
                }
                _ => addresses.push(part.parse().map_err(|_| {
                    "expected an address such as \"127.0.0.1:6969\", \"[::1]:6969\" or \":6969\"".to_owned()
                })?),
            }
        }
        Ok(Listen { text, addresses })
    }
}

impl From<Listen> for String {
    fn from(listen: Listen) -> String {
        listen.text
    }
}
