//! Client addresses behind trusted proxies.
//!
//! A header is believed only if the connection comes from a trusted proxy, and only the one header
//! that the operator chose. Proxies pass on headers they do not know, so believing any of them
//! would let a client choose its address. The module is stateless; a malformed header at worst ends
//! the walk early.

mod header;

use std::net::IpAddr;
use std::str::FromStr;

use http::HeaderMap;
use ipnet::IpNet;
use serde::{Deserialize, Serialize};

/// Maximum hops to follow, more than any legitimate chain has.
const MAX_HOPS: usize = 64;

/// The header in which a trusted proxy names the client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum ClientHeader {
    /// `X-Forwarded-For: client, proxy, proxy`
    #[default]
    XForwardedFor,
    /// `X-Real-IP: client`
    XRealIp,
    /// `Forwarded: for=client;proto=https, for=proxy` (RFC 7239)
    Forwarded,
}

/// A network or a single address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Network(IpNet);

impl Network {
    /// Whether the network contains the address. An IPv4-mapped IPv6 address counts as IPv4.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        self.0.contains(&address.to_canonical())
    }
}

impl FromStr for Network {
    type Err = String;

    fn from_str(text: &str) -> Result<Network, String> {
        let text = text.trim();
        text.parse::<IpNet>()
            .or_else(|_| text.parse::<IpAddr>().map(IpNet::from))
            .map(|network| Network(network.trunc()))
            .map_err(|_| {
                "expected a network such as \"10.0.0.0/8\", or one address such as \"10.0.0.1\""
                    .to_owned()
            })
    }
}

impl TryFrom<String> for Network {
    type Error = String;
    fn try_from(text: String) -> Result<Network, String> {
        text.parse()
    }
}

impl From<Network> for String {
    fn from(network: Network) -> String {
        network.0.to_string()
    }
}

/// The trusted proxies and the header they set.
///
/// ```
/// use headworks_service::proxies::{ClientHeader, TrustedProxies};
/// let networks = ["10.0.0.0/8".parse().unwrap()];
/// let trusted = TrustedProxies::new(&networks, ClientHeader::XForwardedFor);
/// let mut headers = http::HeaderMap::new();
/// headers.insert("x-forwarded-for", "203.0.113.7, 10.0.0.2".parse().unwrap());
/// let client = trusted.client("10.0.0.1".parse().unwrap(), &headers);
/// assert_eq!(client, "203.0.113.7".parse::<std::net::IpAddr>().unwrap());
/// ```
#[derive(Clone, Debug, Default)]
pub struct TrustedProxies {
    networks: Vec<IpNet>,
    header: ClientHeader,
}

impl TrustedProxies {
    /// Trusts `networks` and reads `header`.
    #[must_use]
    pub fn new(networks: &[Network], header: ClientHeader) -> TrustedProxies {
        let networks = networks.iter().map(|network| network.0).collect();
        TrustedProxies { networks, header }
    }

    /// Whether the address belongs to a trusted proxy. An IPv4-mapped IPv6 address counts as IPv4.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.networks
            .iter()
            .any(|network| network.contains(&address))
    }

    /// Returns the address of the client: the peer itself, unless the peer is a trusted proxy that
    /// names another. The list is walked from the right past trusted hops. The first untrusted hop
    /// is the client; it could have forged everything to its left.
    #[must_use]
    pub fn client(&self, peer: IpAddr, headers: &HeaderMap) -> IpAddr {
        let mut client = peer.to_canonical();
        if !self.contains(client) {
            return client;
        }
        let hops = header::hops(self.header, headers);
        for hop in hops.into_iter().rev().take(MAX_HOPS) {
            // A hidden hop ends the walk: nothing vouches for the entries to its left.
            let Some(address) = hop else { return client };
            client = address.to_canonical();
            if !self.contains(client) {
                return client;
            }
        }
        client
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::{HeaderName, HeaderValue};
    use proptest::prelude::*;

    fn headers(name: &'static str, values: &[&str]) -> HeaderMap {
        let values = values
            .iter()
            .filter_map(|value| HeaderValue::from_str(value).ok());
        values
            .map(|value| (HeaderName::from_static(name), value))
            .collect()
    }

    fn client(header: ClientHeader, peer: &str, headers: &HeaderMap) -> String {
        let networks = ["10.0.0.0/8", "fd00::/8", "192.0.2.1"].map(|n| n.parse().unwrap());
        let trusted = TrustedProxies::new(&networks, header);
        trusted.client(peer.parse().unwrap(), headers).to_string()
    }

    #[test]
    fn strangers_are_not_believed() {
        let headers = headers("x-forwarded-for", &["1.2.3.4"]);
        assert_eq!(
            client(ClientHeader::XForwardedFor, "203.0.113.9", &headers),
            "203.0.113.9"
        );
    }

    #[test]
    fn forwarded_for_is_walked_from_the_right() {
        let walk = |values: &[&str]| {
            client(
                ClientHeader::XForwardedFor,
                "10.0.0.1",
                &headers("x-forwarded-for", values),
            )
        };
        assert_eq!(walk(&["6.6.6.6, 203.0.113.7, 10.9.9.9"]), "203.0.113.7");
        assert_eq!(walk(&["6.6.6.6", "203.0.113.7", "10.9.9.9"]), "203.0.113.7");
        assert_eq!(walk(&["10.1.1.1, 10.2.2.2"]), "10.1.1.1");
        assert_eq!(walk(&["203.0.113.7:4711"]), "203.0.113.7");
        assert_eq!(walk(&["[2001:db8::1]:4711"]), "2001:db8::1");
        assert_eq!(walk(&["6.6.6.6, unknown, 10.2.2.2"]), "10.2.2.2");
        assert_eq!(walk(&["6.6.6.6, , 10.2.2.2"]), "10.2.2.2");
        assert_eq!(walk(&[]), "10.0.0.1");
    }

    #[test]
    fn mapped_addresses_are_the_same_addresses() {
        let headers = headers("x-forwarded-for", &["::ffff:203.0.113.7, ::ffff:10.2.2.2"]);
        let client = client(ClientHeader::XForwardedFor, "::ffff:10.0.0.1", &headers);
        assert_eq!(client, "203.0.113.7");
    }

    #[test]
    fn forwarded_as_the_standard_writes_it() {
        let walk = |values: &[&str]| {
            client(
                ClientHeader::Forwarded,
                "192.0.2.1",
                &headers("forwarded", values),
            )
        };
        assert_eq!(
            walk(&["for=203.0.113.7;proto=http, for=10.1.1.1"]),
            "203.0.113.7"
        );
        assert_eq!(
            walk(&[r#"For="[2001:db8:cafe::17]:4711""#]),
            "2001:db8:cafe::17"
        );
        assert_eq!(
            walk(&[r#"for=6.6.6.6;by="a,b", for=203.0.113.7"#]),
            "203.0.113.7"
        );
        assert_eq!(walk(&["for=6.6.6.6, for=_hidden"]), "192.0.2.1");
        assert_eq!(walk(&["proto=https"]), "192.0.2.1");
    }

    #[test]
    fn only_the_chosen_header_counts() {
        let mut all = headers("x-real-ip", &["203.0.113.7"]);
        all.extend(headers("x-forwarded-for", &["6.6.6.6"]));
        assert_eq!(
            client(ClientHeader::XRealIp, "10.0.0.1", &all),
            "203.0.113.7"
        );
        assert_eq!(
            client(ClientHeader::Forwarded, "10.0.0.1", &all),
            "10.0.0.1"
        );
    }

    proptest! {
        #[test]
        fn hostile_headers_never_panic(
            bytes in proptest::collection::vec(any::<u8>(), 0..200),
            text in r#"(for=|"|\\|,|;|\[|\]|:|[0-9a-f.]| ){0,60}"#,
        ) {
            for header in [ClientHeader::XForwardedFor, ClientHeader::XRealIp, ClientHeader::Forwarded] {
                for value in [HeaderValue::from_bytes(&bytes), HeaderValue::from_str(&text)] {
                    let Ok(value) = value else { continue };
                    let mut headers = HeaderMap::new();
                    for name in ["forwarded", "x-forwarded-for", "x-real-ip"] {
                        headers.insert(name, value.clone());
                    }
                    let _ = client(header, "10.0.0.1", &headers);
                }
            }
        }

        #[test]
        fn open_quotes_do_not_let_a_client_choose_its_address(invented in r#"(for=6\.6\.6\.6|;|"|\\|,|=|x| ){0,30}"#) {
            let written = format!("{invented}, for=203.0.113.7, for=10.3.3.3");
            let headers = headers("forwarded", &[&written]);
            let client = client(ClientHeader::Forwarded, "10.0.0.1", &headers);
            prop_assert!(["203.0.113.7", "10.0.0.1"].contains(&client.as_str()), "{}", client);
        }

        #[test]
        fn a_client_cannot_choose_its_address(invented in "[0-9., ]{0,40}") {
            let written = format!("{invented}, 203.0.113.7, 10.3.3.3");
            let headers = headers("x-forwarded-for", &[&written]);
            prop_assert_eq!(client(ClientHeader::XForwardedFor, "10.0.0.1", &headers), "203.0.113.7");
        }
    }
}
