//! Temporary redirects: a new bucket is served by another host until every name server knows it.

use crate::cloud::header_text;
use http::HeaderMap;
use std::net::IpAddr;

/// The server that a service has named.
#[derive(Debug)]
pub(super) struct Redirect {
    pub(super) origin: String,
    /// The region to sign for, if the service names it.
    pub(super) region: Option<String>,
}

/// Returns the server that a response redirects to. `None` if signatures must not be sent there:
/// it belongs to somebody else, or the connection would not be encrypted any more.
pub(super) fn redirect(origin: &str, headers: &HeaderMap) -> Option<Redirect> {
    let (scheme, host) = origin.split_once("://")?;
    let (new_scheme, rest) = header_text(headers, "location")?.split_once("://")?;
    let new_host = rest.split(['/', '?', '#']).next()?;
    let is_safe = new_scheme == scheme || (scheme, new_scheme) == ("http", "https");
    let is_plain = !new_host.is_empty() && !new_host.contains('@');
    if !is_safe || !is_plain || !is_same_owner(host, new_host) {
        return None;
    }
    let region = header_text(headers, "x-amz-bucket-region");
    Some(Redirect {
        origin: format!("{new_scheme}://{new_host}"),
        region: region.map(str::to_owned),
    })
}

/// Whether two hosts belong to the same service: they are the same apart from the port, one is
/// below the other, or both are Amazon's. Other hosts of one domain may have different owners, as
/// those below `co.uk` do.
fn is_same_owner(one: &str, other: &str) -> bool {
    let name = |host: &str| {
        host.rsplit_once(':')
            .map_or(host, |(name, _)| name)
            .to_lowercase()
    };
    let (one, other) = (name(one), name(other));
    if one == other {
        return true;
    }
    let is_address = |host: &str| host.starts_with('[') || host.parse::<IpAddr>().is_ok();
    if is_address(&one) || is_address(&other) {
        return false;
    }
    // A host of a single label, such as a top-level domain, has hosts of everybody below it.
    let is_below = |host: &str, parent: &str| {
        let rest = host.strip_suffix(parent);
        parent.contains('.') && rest.is_some_and(|rest| rest.ends_with('.'))
    };
    let amazon = ["amazonaws.com", "amazonaws.com.cn"];
    let both_below = |domain: &&str| is_below(&one, domain) && is_below(&other, domain);
    is_below(&one, &other) || is_below(&other, &one) || amazon.iter().any(both_below)
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    fn to(origin: &str, location: &'static str) -> Option<String> {
        let mut headers = HeaderMap::new();
        headers.insert("location", HeaderValue::from_static(location));
        redirect(origin, &headers).map(|redirect| redirect.origin)
    }

    #[test]
    fn a_redirect_is_followed_within_a_service_only() {
        let amazon = "https://b.s3.amazonaws.com";
        let found = to(amazon, "https://b.s3-us-west-2.amazonaws.com/key?x=1");
        assert_eq!(
            found.as_deref(),
            Some("https://b.s3-us-west-2.amazonaws.com")
        );
        assert_eq!(to(amazon, "http://b.s3-us-west-2.amazonaws.com/key"), None);
        assert_eq!(to(amazon, "https://evil.example.com/key"), None);
        assert_eq!(to(amazon, "https://u@b.amazonaws.com/key"), None);
        assert_eq!(to("https://a.com.cn", "https://b.com.cn/k"), None);
        assert_eq!(to("https://s3.a.co.uk", "https://s3.b.co.uk/k"), None);
        let below = to("https://s3.a.co.uk", "https://b.s3.a.co.uk/k");
        assert_eq!(below.as_deref(), Some("https://b.s3.a.co.uk"));
        let local = to("http://127.0.0.1:1", "http://127.0.0.1:2/k");
        assert_eq!(local.as_deref(), Some("http://127.0.0.1:2"));
        assert_eq!(to("http://127.0.0.1:1", "http://10.0.0.1/k"), None);
    }
}
