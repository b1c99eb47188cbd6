//! Where a request may be sent: anywhere, or to public addresses only.
//!
//! Strangers name forwarders in published lists and in redirects, and must not be able to have
//! requests sent to this machine or into its network. The rule is applied to the addresses that are
//! dialled, because a look-up before proves nothing.

use crate::address_scope::AddressScope;
use crate::forwarders::Host;
use bytes::Bytes;
use headworks_service::outbound::{Outbound, direct_peer, is_address_not_allowed};
use http::{Request, Response, Uri};
use http_body_util::Empty;
use hyper::body::Incoming;
use std::error::Error;
use std::io;
use std::net::IpAddr;

/// Where a request may be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    Anywhere,
    Public,
}

pub(crate) fn is_public(ip: IpAddr) -> bool {
    AddressScope::of(ip) == AddressScope::Public
}

/// The HTTP client, and one like it that connects to public addresses only.
pub(crate) struct HttpReach {
    anywhere: Outbound,
    public: Outbound,
}

impl HttpReach {
    pub(crate) fn new(outbound: Outbound) -> HttpReach {
        HttpReach {
            public: outbound.restricted_to(is_public),
            anywhere: outbound,
        }
    }

    /// Sends a request as far as `reach` allows.
    pub(crate) async fn send(
        &self,
        reach: Reach,
        request: Request<Empty<Bytes>>,
    ) -> Result<Response<Incoming>, Box<dyn Error + Send + Sync>> {
        let outbound = match reach {
            Reach::Anywhere => &self.anywhere,
            Reach::Public => &self.public,
        };
        Ok(outbound.send(request).await?)
    }
}

/// Whether a request failed because its host has no public address.
pub(crate) fn is_refused(error: &(dyn Error + 'static)) -> bool {
    let mut cause = Some(error);
    while let Some(error) = cause {
        let io = error.downcast_ref::<io::Error>();
        if io.is_some_and(is_address_not_allowed) {
            return true;
        }
        cause = error.source();
    }
    false
}

/// Whether a response came from a server on the internet. The address that it came from decides: a
/// name may have others by now. Behind a proxy only the host's own spelling tells.
pub(crate) fn is_from_internet<B>(response: &Response<B>, uri: &Uri) -> bool {
    match direct_peer(response) {
        Some(ip) => is_public(ip),
        None => Host::parse(uri.host().unwrap_or_default()).scope() == AddressScope::Public,
    }
}

/// Returns where a redirect may lead. A server in the operator's network knows that network; one
/// on the internet must not.
pub(crate) fn reach_of_redirect<B>(response: &Response<B>, uri: &Uri) -> Reach {
    match is_from_internet(response, uri) {
        true => Reach::Public,
        false => Reach::Anywhere,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headworks_service::outbound::OutboundConfig;

    fn client() -> HttpReach {
        let proxies = hyper_util::client::proxy::matcher::Matcher::builder().build();
        let outbound = Outbound::with_proxies(&OutboundConfig::default(), proxies);
        HttpReach::new(outbound.unwrap())
    }

    #[tokio::test]
    async fn only_public_addresses_are_dialled_for_strangers() {
        let client = client();
        for uri in [
            "http://127.0.0.1/x",
            "http://[::1]/x",
            "https://[::ffff:127.0.0.1]/x",
            "http://localhost/x",
            "http://169.254.169.254/x",
            "https://192.168.0.1/x",
            "http://[fd00::1]/x",
        ] {
            let request = Request::get(uri).body(Empty::new()).unwrap();
            let error = client.send(Reach::Public, request).await.unwrap_err();
            assert!(is_refused(&*error), "{uri}: {error}");
        }
    }

    #[test]
    fn a_server_on_the_internet_does_not_redirect_into_our_network() {
        // As behind a proxy, where the address of the server is unknown.
        let response = Response::new(());
        for (uri, expected) in [
            ("http://8.8.8.8/announce", Reach::Public),
            ("http://tracker.example/announce", Reach::Public),
            ("http://192.168.0.9/announce", Reach::Anywhere),
            ("http://tracker.lan/announce", Reach::Anywhere),
            ("http://localhost/announce", Reach::Anywhere),
        ] {
            let uri: Uri = uri.parse().unwrap();
            assert_eq!(reach_of_redirect(&response, &uri), expected, "{uri}");
        }
    }

    #[tokio::test]
    async fn the_address_of_the_server_decides_and_not_its_name() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap();
        tokio::spawn(async move {
            use tokio::io::{AsyncReadExt, AsyncWriteExt};
            let (mut stream, _) = listener.accept().await.unwrap();
            let _ = stream.read(&mut [0; 1024]).await;
            let response = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
            let _ = stream.write_all(response).await;
        });
        let request = Request::get(format!("http://{at}/"));
        let request = request.body(Empty::new()).unwrap();
        let response = client().send(Reach::Anywhere, request).await.unwrap();
        let public: Uri = "http://tracker.example/".parse().unwrap();
        assert!(!is_from_internet(&response, &public));
    }
}
