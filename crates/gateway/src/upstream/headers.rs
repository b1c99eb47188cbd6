//! Headers that are forwarded, dropped or added between client and upstream.

use http::header::{
    ACCEPT_ENCODING, AUTHORIZATION, CONNECTION, CONTENT_LENGTH, COOKIE, EXPECT, HOST,
    PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, SET_COOKIE, TE, TRAILER, TRANSFER_ENCODING, UPGRADE,
};
use http::{HeaderMap, HeaderName, HeaderValue};
use smallvec::SmallVec;

use crate::config::{Kind, UpstreamSettings};

const API_KEY: HeaderName = HeaderName::from_static("x-api-key");
const AZURE_KEY: HeaderName = HeaderName::from_static("api-key");
const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
const PRIORITY: HeaderName = HeaderName::from_static("x-priority");

/// Hop-by-hop headers (RFC 9110, 7.6.1), which are never forwarded.
const HOP_BY_HOP: [HeaderName; 7] = [
    CONNECTION,
    KEEP_ALIVE,
    PROXY_AUTHENTICATE,
    TE,
    TRAILER,
    TRANSFER_ENCODING,
    UPGRADE,
];

/// Client headers that are meant for the gateway. `Accept-Encoding` is replaced, because usage is
/// read from the response and therefore must not be compressed.
const GATEWAY_HEADERS: [HeaderName; 10] = [
    AUTHORIZATION,
    PROXY_AUTHORIZATION,
    COOKIE,
    API_KEY,
    AZURE_KEY,
    PRIORITY,
    HOST,
    CONTENT_LENGTH,
    EXPECT,
    ACCEPT_ENCODING,
];

/// Headers that an upstream gets with every request: its credentials and the configured ones.
pub(crate) fn upstream_headers(settings: &UpstreamSettings) -> HeaderMap {
    let mut headers = HeaderMap::new();
    let key = settings.api_key.as_ref();
    let credential = key.and_then(|key| match settings.kind {
        Kind::Anthropic => Some((API_KEY, key.reveal().to_owned())),
        Kind::Openai => Some((AUTHORIZATION, format!("Bearer {}", key.reveal()))),
        Kind::Echo => None,
    });
    if let Some((name, value)) = credential
        && let Ok(mut value) = HeaderValue::try_from(value)
    {
        value.set_sensitive(true);
        headers.insert(name, value);
    }
    for (name, value) in &settings.headers {
        let value = value.reveal().parse::<HeaderValue>();
        if let (Ok(name), Ok(mut value)) = (name.parse::<HeaderName>(), value) {
            value.set_sensitive(true);
            headers.insert(name, value);
        }
    }
    headers
}

/// Headers of a client's request, as the upstream gets them.
pub(crate) fn forwarded(mut headers: HeaderMap, own: &HeaderMap) -> HeaderMap {
    remove_headers(&mut headers, |name| GATEWAY_HEADERS.contains(name));
    headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    // Headers of the operator override those of the client.
    for (name, value) in own {
        headers.insert(name, value.clone());
    }
    headers
}

/// Removes headers of an upstream's response that a client must not get. A cookie of the upstream
/// would be shared between clients.
pub(crate) fn clean_response_headers(headers: &mut HeaderMap) {
    remove_headers(headers, |name| *name == SET_COOKIE);
}

/// Replaces the values by copies. A value that was received shares the whole buffer that it was
/// read into and would keep it alive.
pub(crate) fn detach(headers: &mut HeaderMap) {
    for value in headers.values_mut() {
        if let Ok(mut copy) = HeaderValue::from_bytes(value.as_bytes()) {
            copy.set_sensitive(value.is_sensitive());
            *value = copy;
        }
    }
}

/// Removes hop-by-hop headers and those that `ours` selects. Messages have few headers, so one pass
/// over them costs less than one lookup per known header.
fn remove_headers(headers: &mut HeaderMap, ours: impl Fn(&HeaderName) -> bool) {
    let hops = headers
        .keys()
        .filter(|name| HOP_BY_HOP.contains(name) || ours(name));
    let mut names: SmallVec<[HeaderName; 8]> = hops.cloned().collect();
    if names.contains(&CONNECTION) {
        // `Connection` may name further hop-by-hop headers.
        let lists = headers.get_all(CONNECTION).iter();
        let lists = lists.filter_map(|value| value.to_str().ok());
        names.extend(
            lists
                .flat_map(|value| value.split(','))
                .filter_map(|name| name.trim().parse().ok()),
        );
    }
    for name in &names {
        headers.remove(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_stay_and_the_unknown_goes_through() {
        let mut client = HeaderMap::new();
        for (name, value) in [
            ("authorization", "Bearer mine"),
            ("x-api-key", "mine"),
            ("cookie", "mine"),
            ("connection", "close, x-hop"),
            ("x-hop", "1"),
            ("x-unknown", "kept"),
            ("anthropic-version", "2099-01-01"),
        ] {
            client.insert(
                HeaderName::from_static(name),
                HeaderValue::from_static(value),
            );
        }
        let settings = UpstreamSettings {
            api_key: Some("theirs".into()),
            ..UpstreamSettings::default()
        };
        let sent = forwarded(client, &upstream_headers(&settings));
        assert_eq!(sent["authorization"], "Bearer theirs");
        assert_eq!(sent["x-unknown"], "kept");
        assert_eq!(sent["anthropic-version"], "2099-01-01");
        for gone in ["x-api-key", "cookie", "x-hop", "connection"] {
            assert!(!sent.contains_key(gone), "{gone}");
        }
        assert!(
            !format!("{sent:?}").contains("theirs"),
            "a secret is never shown"
        );
    }
}
