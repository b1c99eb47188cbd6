//! Where a request may be sent: anywhere, or as far as a stranger may lead it.
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
    /// Anywhere: the operator names the server.
    Anywhere,
    /// Where a server in that scope may lead: one on the internet to the internet, one in a private
    /// network there, too, and one on this machine also to this machine. Link-local addresses, at
    /// which clouds serve credentials, are named by a server with such an address only.
    From(AddressScope),
}

impl Reach {
    /// Where a server on the internet may lead.
    pub(crate) const PUBLIC: Reach = Reach::From(AddressScope::Public);
}

pub(crate) fn is_public(ip: IpAddr) -> bool {
    AddressScope::of(ip) == AddressScope::Public
}

fn is_reachable_from(client: AddressScope, ip: IpAddr) -> bool {
    AddressScope::of(ip).is_reachable_from(client)
}

/// The HTTP client, and others like it that connect to the addresses that a server may name.
pub(crate) struct HttpReach {
    anywhere: Outbound,
    public: Outbound,
    private: Outbound,
    link_local: Outbound,
    loopback: Outbound,
}

impl HttpReach {
    pub(crate) fn new(outbound: Outbound) -> HttpReach {
        use AddressScope::{LinkLocal, Loopback, Private};
        HttpReach {
            public: outbound.restricted_to(is_public),
            private: outbound.restricted_to(|ip| is_reachable_from(Private, ip)),
            link_local: outbound.restricted_to(|ip| is_reachable_from(LinkLocal, ip)),
            loopback: outbound.restricted_to(|ip| is_reachable_from(Loopback, ip)),
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
            Reach::From(AddressScope::Private) => &self.private,
            Reach::From(AddressScope::LinkLocal) => &self.link_local,
            Reach::From(AddressScope::Loopback) => &self.loopback,
            Reach::From(AddressScope::Public | AddressScope::Unusable) => &self.public,
        };
        Ok(outbound.send(request).await?)
    }
}

/// Whether a request failed because it may not be sent to any address of its host.
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
    scope_of_server(response, uri) == AddressScope::Public
}

fn scope_of_server<B>(response: &Response<B>, uri: &Uri) -> AddressScope {
    match direct_peer(response) {
        Some(ip) => AddressScope::of(ip),
        None => Host::parse(uri.host().unwrap_or_default()).scope(),
    }
}

/// Returns where a redirect may lead. A server knows the network that it is in, and must lead into
/// no other.
pub(crate) fn reach_of_redirect<B>(response: &Response<B>, uri: &Uri) -> Reach {
    Reach::From(scope_of_server(response, uri))
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
            let error = client.send(Reach::PUBLIC, request).await.unwrap_err();
            assert!(is_refused(&*error), "{uri}: {error}");
        }
    }

    #[tokio::test]
    async fn a_server_leads_no_further_than_into_its_own_network() {
        let client = client();
        let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let here = format!("http://{}/", closed.local_addr().unwrap());
        drop(closed);
        let metadata = "http://169.254.169.254/latest";
        use AddressScope::{LinkLocal, Loopback, Private, Public, Unusable};
        for (server, to, refused) in [
            (Public, here.as_str(), true),
            (Unusable, &here, true),
            (Private, &here, true),
            (LinkLocal, &here, true),
            (Loopback, &here, false),
            (Public, metadata, true),
            (Private, metadata, true),
            (Loopback, metadata, true),
            (Public, "http://10.0.0.1/", true),
            (Unusable, "http://10.0.0.1/", true),
        ] {
            let request = Request::get(to).body(Empty::new()).unwrap();
            let sent = client.send(Reach::From(server), request).await;
            // Nothing listens there.
            let error = sent.unwrap_err();
            assert_eq!(is_refused(&*error), refused, "{server:?} to {to}: {error}");
        }
        assert!(is_reachable_from(Private, [10, 0, 0, 1].into()));
        assert!(is_reachable_from(LinkLocal, [169, 254, 169, 254].into()));
    }

    #[test]
    fn a_server_on_the_internet_does_not_redirect_into_our_network() {
        // As behind a proxy, where the address of the server is unknown.
        let response = Response::new(());
        for (uri, expected) in [
            ("http://8.8.8.8/announce", AddressScope::Public),
            ("http://tracker.example/announce", AddressScope::Public),
            ("http://192.168.0.9/announce", AddressScope::Private),
            ("http://tracker.lan/announce", AddressScope::Private),
            ("http://localhost/announce", AddressScope::Loopback),
            ("http://169.254.1.2/announce", AddressScope::LinkLocal),
        ] {
            let uri: Uri = uri.parse().unwrap();
            let reach = reach_of_redirect(&response, &uri);
            assert_eq!(reach, Reach::From(expected), "{uri}");
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
