//! Announces over HTTP and HTTPS.

use super::error::ClientError;
use super::query::AnnounceQuery;
use super::reach::{HttpReach, Reach, reach_of_redirect};
use crate::forwarders::ForwarderState;
use bytes::Bytes;
use flate2::read::GzDecoder;
use headworks_service::outbound::{
    Outbound, direct_peer, is_address_not_allowed, is_host_not_found,
};
use headworks_tracker_wire::query;
use headworks_tracker_wire::response::{self, AnnounceResponse};
use http::header::{ACCEPT_ENCODING, AUTHORIZATION, CONTENT_ENCODING, HOST, LOCATION, USER_AGENT};
use http::{HeaderValue, Request, Response, Uri};
use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::{Body, Incoming};
use std::io::{self, ErrorKind, Read};

/// The largest response accepted, compressed and decompressed. Two thousand peers as dictionaries
/// fit several times.
const MAX_RESPONSE: usize = 512 * 1024;
/// The most redirects followed per request.
const MAX_REDIRECTS: usize = 3;

/// A redirect to an address that the server must not name.
const INTO_OTHER_NETWORK: ClientError =
    ClientError::UnsafeRedirect("into a private network that its server is not in");

/// The HTTP side of the tracker client.
pub(super) struct HttpClient {
    reach: HttpReach,
}

impl HttpClient {
    pub(super) fn new(outbound: Outbound) -> HttpClient {
        HttpClient {
            reach: HttpReach::new(outbound),
        }
    }

    pub(super) async fn announce(
        &self,
        query: &AnnounceQuery<'_>,
    ) -> Result<AnnounceResponse, ClientError> {
        let mut text = String::new();
        let id = query.forwarder.tracker_id.lock().clone();
        query::write_announce(&query.announce, id.as_deref(), &mut text);
        let uri = with_query(&query.forwarder.uri, &text);
        let response = self.get_following(query.forwarder, uri).await?;
        *query.forwarder.last_address.lock() = direct_peer(&response);
        let status = response.status().as_u16();
        let body = read_body(response).await;
        // Some trackers send a regular failure response with an error status. A rate limit takes
        // precedence over its text.
        match (status, body) {
            (200, body) => {
                response::parse(&body?).map_err(|error| ClientError::Malformed(error.to_string()))
            }
            (429, _) => Err(ClientError::Status(429)),
            (_, Ok(body)) => match response::parse(&body) {
                Ok(failure @ AnnounceResponse::Failure { .. }) if status < 500 => Ok(failure),
                _ => Err(ClientError::Status(status)),
            },
            (_, Err(_)) => Err(ClientError::Status(status)),
        }
    }

    /// Succeeds unless the status shows that no tracker is there or that it rejects us.
    pub(super) async fn probe(&self, forwarder: &ForwarderState) -> Result<(), ClientError> {
        let uri = forwarder.uri.to_string();
        let response = self.get_following(forwarder, uri).await?;
        match response.status().as_u16() {
            status @ (403 | 404 | 429 | 500..=599) => Err(ClientError::Status(status)),
            // A probe carries no torrent, so 400 is the proper response of a working tracker.
            _ => Ok(()),
        }
    }

    /// Sends a GET request and follows redirects.
    async fn get_following(
        &self,
        forwarder: &ForwarderState,
        uri: String,
    ) -> Result<Response<Incoming>, ClientError> {
        let mut uri: Uri = uri
            .parse()
            .map_err(|_| ClientError::Malformed("the address is invalid".into()))?;
        let mut reach = match forwarder.published {
            true => Reach::PUBLIC,
            false => Reach::Anywhere,
        };
        for redirects in 0..=MAX_REDIRECTS {
            // Header and password are meant for the forwarder, and for no other server.
            let same = origin(&uri) == origin(&forwarder.uri);
            let host = forwarder.host.as_deref().filter(|_| same);
            let authorization = forwarder.authorization.as_ref().filter(|_| same);
            let response = self.get(uri.clone(), host, authorization, reach).await;
            let response = response.map_err(|error| match error {
                ClientError::PrivateHost if redirects > 0 => INTO_OTHER_NETWORK,
                error => error,
            })?;
            let location = response.headers().get(LOCATION);
            let location = location.and_then(|location| location.to_str().ok());
            match (response.status().as_u16(), location) {
                (301 | 302 | 303 | 307 | 308, Some(location)) => {
                    let to = redirect_target(&uri, location).ok_or(ClientError::Redirects)?;
                    check_redirect(forwarder, &uri, &to)?;
                    if !forwarder.published {
                        reach = reach_of_redirect(&response, &uri);
                    }
                    uri = to;
                }
                _ => return Ok(response),
            }
        }
        Err(ClientError::Redirects)
    }

    async fn get(
        &self,
        uri: Uri,
        host: Option<&str>,
        authorization: Option<&HeaderValue>,
        reach: Reach,
    ) -> Result<Response<Incoming>, ClientError> {
        let mut request = Request::get(uri)
            .header(USER_AGENT, concat!("headworks/", env!("CARGO_PKG_VERSION")))
            .header(ACCEPT_ENCODING, "gzip");
        if let Some(host) = host {
            request = request.header(HOST, host);
        }
        if let Some(authorization) = authorization {
            request = request.header(AUTHORIZATION, authorization);
        }
        let request = request
            .body(Empty::<Bytes>::new())
            .map_err(|_| ClientError::Malformed("the request is invalid".into()))?;
        let response = self.reach.send(reach, request).await;
        response.map_err(|error| client_error(&*error))
    }
}

/// Appends the announce to a URI. An existing query stays, because it may hold a passkey.
fn with_query(uri: &Uri, announce: &str) -> String {
    let separator = match uri.query() {
        None => "?",
        Some("") => "",
        Some(_) => "&",
    };
    let mut text = uri.to_string();
    text.push_str(separator);
    text.push_str(announce);
    text
}

/// Checks that a redirect leads neither away from encryption, nor carries the operator's passkey to
/// another server.
fn check_redirect(forwarder: &ForwarderState, from: &Uri, to: &Uri) -> Result<(), ClientError> {
    if from.scheme_str() == Some("https") && to.scheme_str() != Some("https") {
        return Err(ClientError::UnsafeRedirect("from https to http"));
    }
    if forwarder.uri.host() != to.host() && forwarder.is_secret_in(to) {
        return Err(ClientError::UnsafeRedirect(
            "to another host with the passkey",
        ));
    }
    Ok(())
}

/// Returns the scheme, host and port of a URI.
fn origin(uri: &Uri) -> (Option<&str>, Option<&str>, Option<u16>) {
    let default = match uri.scheme_str() {
        Some("https") => 443,
        _ => 80,
    };
    let port = uri.port_u16().unwrap_or(default);
    (uri.scheme_str(), uri.host(), Some(port))
}

/// Resolves a redirect. Only HTTP addresses and absolute paths are followed.
pub(crate) fn redirect_target(from: &Uri, location: &str) -> Option<Uri> {
    let to: Uri = location.parse().ok()?;
    match (to.scheme_str(), to.host()) {
        (Some("http" | "https"), Some(_)) => Some(to),
        (None, None) if location.starts_with('/') => {
            let mut parts = from.clone().into_parts();
            parts.path_and_query = location.parse().ok();
            Uri::from_parts(parts).ok()
        }
        _ => None,
    }
}

async fn read_body(response: Response<Incoming>) -> Result<Vec<u8>, ClientError> {
    let compressed = response.headers().get(CONTENT_ENCODING);
    let compressed =
        compressed.is_some_and(|encoding| encoding.as_bytes().eq_ignore_ascii_case(b"gzip"));
    // A declared length that is too large is rejected before anything is read.
    if response.body().size_hint().lower() > MAX_RESPONSE as u64 {
        return Err(ClientError::TooLarge);
    }
    let body = Limited::new(response.into_body(), MAX_RESPONSE)
        .collect()
        .await;
    let body = body.map_err(
        |error| match error.is::<http_body_util::LengthLimitError>() {
            true => ClientError::TooLarge,
            false => ClientError::Transient(format!("cannot read the response: {error}")),
        },
    )?;
    let body = body.to_bytes().to_vec();
    if !compressed {
        return Ok(body);
    }
    gunzip(&body)
}

/// Decompresses gzip up to the size limit, so that a small response cannot fill the memory.
pub(crate) fn gunzip(body: &[u8]) -> Result<Vec<u8>, ClientError> {
    let mut plain = Vec::new();
    let limit = MAX_RESPONSE as u64 + 1;
    match GzDecoder::new(body).take(limit).read_to_end(&mut plain) {
        Ok(length) if length > MAX_RESPONSE => Err(ClientError::TooLarge),
        Ok(_) => Ok(plain),
        Err(_) => Err(ClientError::Malformed("invalid gzip data".into())),
    }
}

/// Converts a transport error by its innermost cause that is specific enough.
fn client_error(error: &(dyn std::error::Error + 'static)) -> ClientError {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    let mut message = error.to_string();
    while let Some(error) = cause {
        message = error.to_string();
        if let Some(error) = error.downcast_ref::<io::Error>() {
            match error.kind() {
                ErrorKind::ConnectionRefused => return ClientError::Refused,
                ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable => {
                    return ClientError::Unreachable;
                }
                ErrorKind::TimedOut => return ClientError::Timeout,
                _ if is_host_not_found(error) => return ClientError::NoSuchHost,
                _ if is_address_not_allowed(error) => return ClientError::PrivateHost,
                _ if matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE)) => {
                    return ClientError::NoDescriptor;
                }
                _ => {}
            }
        }
        cause = error.source();
    }
    if message.starts_with("connect timeout after") {
        return ClientError::Timeout;
    }
    // The system has no error of its own for a resolver that does not respond.
    match message.contains("failed to lookup address") {
        true => ClientError::Lookup(message),
        false => ClientError::Transient(message),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::forwarders::Forwarder;
    use headworks_service::outbound::DnsCache;
    use std::time::Duration;

    #[test]
    fn passkeys_stay_in_the_uri() {
        let with = |uri: &str| with_query(&uri.parse().unwrap(), "a=1");
        assert_eq!(with("http://h/announce"), "http://h/announce?a=1");
        assert_eq!(
            with("http://h/abc/announce?passkey=s"),
            "http://h/abc/announce?passkey=s&a=1"
        );
        assert_eq!(with("http://h/announce?"), "http://h/announce?a=1");
        assert_eq!(with("http://h"), "http://h/?a=1");
    }

    #[test]
    fn unsafe_redirects_are_not_followed() {
        for (forwarder, to, allowed) in [
            ("http://8.8.8.1/announce", "http://8.8.8.2/x", true),
            ("http://8.8.8.1/announce", "https://8.8.8.2/x", true),
            ("https://8.8.8.1/announce", "http://8.8.8.1/x", false),
            (
                "http://8.8.8.1/a?key=s3cr3ts3cr3t",
                "http://8.8.8.2/x",
                true,
            ),
            (
                "http://8.8.8.1/a?key=s3cr3ts3cr3t",
                "http://8.8.8.2/?s3cr3ts3cr3t",
                false,
            ),
            (
                "http://8.8.8.1/s3cr3ts3cr3t/a",
                "http://8.8.8.2/s3cr3ts3cr3t",
                false,
            ),
            (
                "http://8.8.8.1/s3cr3ts3cr3t/a",
                "http://8.8.8.1/s3cr3ts3cr3t/b",
                true,
            ),
            // Padding belongs to the value.
            ("http://8.8.8.1/a?k=abcd1234==", "http://8.8.8.2/?k=x", true),
            (
                "http://8.8.8.1/a?k=abcd1234==",
                "http://8.8.8.2/?k=abcd1234==",
                false,
            ),
            (
                "http://8.8.8.1/a?k=abcd1234==",
                "http://8.8.8.2/?k=abcd1234%3D%3D",
                false,
            ),
            // Other ways to write the same.
            (
                "http://8.8.8.1/a?k=s3cr%2Bt99",
                "http://8.8.8.2/s3cr+t99",
                false,
            ),
            (
                "http://8.8.8.1/s3cr+t99/a",
                "http://8.8.8.2/?s3cr%2bt99",
                false,
            ),
            (
                "http://8.8.8.1/a?k=s3cr3ts3cr3t",
                "http://8.8.8.2/s%33cr3ts3cr3t",
                false,
            ),
            (
                "http://me:s3cr3ts3cr3t@8.8.8.1/a",
                "http://8.8.8.2/s3cr3ts3cr3t",
                false,
            ),
            // Words that are no secrets.
            (
                "http://8.8.8.1/tracker/announce.php",
                "http://8.8.8.2/tracker/announce.php",
                true,
            ),
        ] {
            let state = ForwarderState::new(&Forwarder::at(forwarder), "f").unwrap();
            let to: Uri = to.parse().unwrap();
            let checked = check_redirect(&state, &state.uri, &to);
            assert_eq!(checked.is_ok(), allowed, "{forwarder} to {to}: {checked:?}");
        }
    }

    #[tokio::test]
    async fn a_name_in_a_public_list_does_not_lead_into_our_network() {
        let proxies = hyper_util::client::proxy::matcher::Matcher::builder().build();
        let config = headworks_service::outbound::OutboundConfig::default();
        let client = HttpClient::new(Outbound::with_proxies(&config, proxies).unwrap());
        let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let uri = format!("http://localhost:{}/", closed.local_addr().unwrap().port());
        drop(closed);
        for (published, expected) in [
            (false, ClientError::Refused),
            (true, ClientError::PrivateHost),
        ] {
            let listed = Forwarder {
                published,
                ..Forwarder::at(&uri)
            };
            let state = ForwarderState::new(&listed, "f").unwrap();
            assert_eq!(client.probe(&state).await, Err(expected));
        }
    }

    /// A resolver that fails first, and finds loopback later.
    fn rebinding() -> DnsCache {
        let lookups = std::sync::atomic::AtomicUsize::default();
        DnsCache::with_lookup(move |_| {
            let before = lookups.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            Box::pin(async move {
                match before {
                    0 => Err(io::Error::other("temporary failure in name resolution")),
                    _ => Ok(vec!["127.0.0.1:0".parse().unwrap()]),
                }
            })
        })
    }

    #[tokio::test]
    async fn a_name_that_changes_between_check_and_connection_leads_nowhere() {
        let proxies = hyper_util::client::proxy::matcher::Matcher::builder().build();
        let config = headworks_service::outbound::OutboundConfig::default();
        let outbound = Outbound::with_names(&config, proxies, rebinding()).unwrap();
        let client = HttpClient::new(outbound);
        let ours = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        ours.set_nonblocking(true).unwrap();
        let port = ours.local_addr().unwrap().port();
        let listed = Forwarder {
            published: true,
            ..Forwarder::at(&format!("http://tracker.example:{port}/"))
        };
        let state = ForwarderState::new(&listed, "f").unwrap();
        for _ in 0..2 {
            // A connection would be accepted, and never answered.
            let probe = tokio::time::timeout(Duration::from_secs(2), client.probe(&state)).await;
            assert!(!matches!(probe, Ok(Ok(()))), "{probe:?}");
            let reached = ours.accept();
            assert!(reached.is_err(), "{reached:?}");
        }
    }

    #[test]
    fn a_forwarder_is_not_blamed_for_a_lack_of_descriptors() {
        for (code, expected) in [
            (libc::EMFILE, ClientError::NoDescriptor),
            (libc::ENFILE, ClientError::NoDescriptor),
            (libc::ECONNREFUSED, ClientError::Refused),
        ] {
            let cause = io::Error::from_raw_os_error(code);
            assert_eq!(client_error(&cause), expected);
        }
    }

    #[test]
    fn only_http_redirects_are_followed() {
        let from: Uri = "http://h/announce?a=1".parse().unwrap();
        let to = |location| redirect_target(&from, location).map(|uri| uri.to_string());
        assert_eq!(to("https://o/x").as_deref(), Some("https://o/x"));
        assert_eq!(to("/y?b=2").as_deref(), Some("http://h/y?b=2"));
        assert_eq!(to("file:///etc/passwd"), None);
        assert_eq!(to("udp://x:1"), None);
    }
}
