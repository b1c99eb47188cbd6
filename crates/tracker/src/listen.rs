//! Where to listen, as people write it.

use serde::{Deserialize, Serialize};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

/// Addresses to listen on: `127.0.0.1:6969`, `[::1]:6969`, `:6969` or `*:6969` for all, several
/// with commas, or nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Listen {
    text: String,
    addresses: Vec<SocketAddr>,
}

impl Listen {
    /// Only this machine.
    #[must_use]
    pub fn loopback(port: u16) -> Listen {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        Listen {
            text: address.to_string(),
            addresses: vec![address],
        }
    }

    /// The addresses, IPv6 ones meaning IPv6 alone.
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
