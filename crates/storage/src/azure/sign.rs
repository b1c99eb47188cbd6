//! The shared key signature: a pure function of the request and the key.

use crate::cloud::{Call, percent};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use http::{HeaderMap, HeaderValue};
use sha2::Sha256;
use std::collections::BTreeMap;
use std::fmt::Write;

/// The headers that are signed in this order after the content length.
const SIGNED: [&str; 8] = [
    "content-md5",
    "content-type",
    "date",
    "if-modified-since",
    "if-match",
    "if-none-match",
    "if-unmodified-since",
    "range",
];

/// Returns the headers with the signature. `x-ms-date` must be present.
pub(super) fn sign(account: &str, key: &[u8], call: &Call, mut headers: HeaderMap) -> HeaderMap {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC accepts keys of any length");
    mac.update(string_to_sign(account, call, &headers).as_bytes());
    let signature = BASE64_STANDARD.encode(mac.finalize().into_bytes());
    if let Ok(mut value) = HeaderValue::from_str(&format!("SharedKey {account}:{signature}")) {
        value.set_sensitive(true);
        headers.insert(http::header::AUTHORIZATION, value);
    }
    headers
}

fn string_to_sign(account: &str, call: &Call, headers: &HeaderMap) -> String {
    let value = |name: &str| {
        let value = headers.get(name).map(HeaderValue::as_bytes);
        String::from_utf8_lossy(value.unwrap_or_default()).into_owned()
    };
    let length = match call.body.len() {
        0 => String::new(),
        length => length.to_string(),
    };
    let mut text = format!(
        "{}\n{}\n{}\n{length}\n",
        call.method,
        value("content-encoding"),
        value("content-language"),
    );
    for name in SIGNED {
        let _ = writeln!(text, "{}", value(name));
    }
    let names = headers.keys().map(http::HeaderName::as_str);
    let mut names: Vec<&str> = names.filter(|name| name.starts_with("x-ms-")).collect();
    names.sort_unstable();
    for name in names {
        let _ = writeln!(text, "{name}:{}", value(name).trim());
    }
    text.push_str(&resource(account, call));
    text
}

fn resource(account: &str, call: &Call) -> String {
    let mut parameters: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for (name, value) in &call.query {
        let values = parameters.entry(name.to_ascii_lowercase()).or_default();
        values.push(value);
        values.sort_unstable();
    }
    let path = if call.target.is_empty() {
        percent::encode_path(b"/")
    } else {
        call.target.clone()
    };
    let mut text = format!("/{account}{path}");
    for (name, values) in parameters {
        let _ = write!(text, "\n{name}:{}", values.join(","));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cloud::SegmentedBytes;
    use http::Method;

    fn call(method: Method, target: &str) -> Call {
        let origin = "https://myaccount.blob.core.windows.net";
        Call::new(("test", "sign", b""), method, origin, target.to_owned())
    }

    /// The example from the specification of the signature.
    #[test]
    fn the_string_to_sign_of_a_read() {
        let call = call(Method::GET, "/mycontainer")
            .query("timeout", "20")
            .query("restype", "container")
            .query("comp", "metadata")
            .header("x-ms-version", "2015-02-21")
            .header("x-ms-date", "Fri, 26 Jun 2015 23:39:12 GMT");
        let expected = "GET\n\n\n\n\n\n\n\n\n\n\n\nx-ms-date:Fri, 26 Jun 2015 23:39:12 GMT\nx-ms-version:2015-02-21\n/myaccount/mycontainer\ncomp:metadata\nrestype:container\ntimeout:20";
        assert_eq!(string_to_sign("myaccount", &call, &call.headers), expected);
    }

    #[test]
    fn the_string_to_sign_of_a_write() {
        let call = call(Method::PUT, "/c/a%20b")
            .query("comp", "block")
            .header("content-md5", "md5==")
            .header("if-none-match", "*")
            .header("x-ms-meta-b", " two ")
            .header("x-ms-meta-a", "one")
            .body(SegmentedBytes::from("12345".to_owned()));
        let expected = "PUT\n\n\n5\nmd5==\n\n\n\n\n*\n\n\nx-ms-meta-a:one\nx-ms-meta-b:two\n/me/c/a%20b\ncomp:block";
        assert_eq!(string_to_sign("me", &call, &call.headers), expected);
        let signed = sign("me", b"key", &call, call.headers.clone());
        let header = signed["authorization"].to_str().unwrap();
        assert!(header.starts_with("SharedKey me:"), "{header}");
        assert!(
            !format!("{signed:?}").contains(header),
            "the signature is redacted"
        );
    }
}
