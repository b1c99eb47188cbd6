//! Signature version 4: a pure function of the request, the keys and the time.

use crate::cloud::Call;
use hmac::{Hmac, KeyInit, Mac};
use http::{HeaderMap, HeaderValue};
use sha2::{Digest, Sha256};
use std::fmt::Write;

/// The keys and the scope of a signature.
pub(super) struct Signer<'a> {
    pub(super) id: &'a str,
    pub(super) secret: &'a str,
    pub(super) region: &'a str,
    pub(super) service: &'a str,
}

pub(super) fn sha256(pieces: &crate::cloud::SegmentedBytes) -> [u8; 32] {
    let mut hasher = Sha256::new();
    for piece in pieces.iter() {
        hasher.update(piece);
    }
    hasher.finalize().into()
}

fn hmac(key: &[u8], text: &str) -> [u8; 32] {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC accepts keys of any length");
    mac.update(text.as_bytes());
    mac.finalize().into_bytes().into()
}

impl Signer<'_> {
    /// Returns the headers with the signature. `host` and `x-amz-date` must be present, and for S3
    /// `x-amz-content-sha256`.
    pub(super) fn sign(&self, call: &Call, mut headers: HeaderMap) -> HeaderMap {
        let value = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        let stamp = value("x-amz-date").unwrap_or_default().to_owned();
        let payload = value("x-amz-content-sha256").map(str::to_owned);
        let payload = payload.unwrap_or_else(|| hex::encode(sha256(&call.body)));
        let (names, lines) = canonical(&headers);
        let request = format!(
            "{}\n{}\n{}\n{lines}\n{names}\n{payload}",
            call.method,
            call.target,
            call.encoded_query(),
        );
        let (date, _) = stamp.split_at_checked(8).unwrap_or((&stamp, ""));
        let scope = format!("{date}/{}/{}/aws4_request", self.region, self.service);
        let hashed = hex::encode(Sha256::digest(request.as_bytes()));
        let text = format!("AWS4-HMAC-SHA256\n{stamp}\n{scope}\n{hashed}");
        let key = hmac(format!("AWS4{}", self.secret).as_bytes(), date);
        let key = hmac(&key, self.region);
        let key = hmac(&key, self.service);
        let key = hmac(&key, "aws4_request");
        let signature = hex::encode(hmac(&key, &text));
        let authorization = format!(
            "AWS4-HMAC-SHA256 Credential={}/{scope},SignedHeaders={names},Signature={signature}",
            self.id
        );
        if let Ok(mut value) = HeaderValue::from_str(&authorization) {
            value.set_sensitive(true);
            headers.insert(http::header::AUTHORIZATION, value);
        }
        headers
    }
}

/// Returns the sorted header names, and the canonical header lines.
fn canonical(headers: &HeaderMap) -> (String, String) {
    let mut all: Vec<(&str, String)> = headers
        .iter()
        .map(|(name, value)| {
            let value = String::from_utf8_lossy(value.as_bytes());
            let message: Vec<&str> = value.split(' ').filter(|word| !word.is_empty()).collect();
            (name.as_str(), message.join(" "))
        })
        .collect();
    all.sort();
    let names: Vec<&str> = all.iter().map(|(name, _)| *name).collect();
    let lines = all.iter().fold(String::new(), |mut lines, (name, value)| {
        let _ = writeln!(lines, "{name}:{value}");
        lines
    });
    (names.join(";"), lines)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cloud::{SegmentedBytes, percent};
    use http::Method;

    /// The examples from Amazon's specification.
    fn signature(
        method: Method,
        key: &str,
        query: &[(&str, &str)],
        headers: &[(&'static str, &str)],
        body: &str,
    ) -> String {
        let origin = "https://examplebucket.s3.amazonaws.com";
        let target = format!("/{}", percent::encode_path(key.as_bytes()));
        let mut call = Call::new(("test", "sign", b""), method, origin, target);
        call.body = SegmentedBytes::from(body.to_owned());
        for (name, value) in query {
            call = call.query(name, value);
        }
        let hash = hex::encode(sha256(&call.body));
        call = call
            .header("host", "examplebucket.s3.amazonaws.com")
            .header("x-amz-date", "20130524T000000Z")
            .header("x-amz-content-sha256", &hash);
        for (name, value) in headers {
            call = call.header(name, value);
        }
        let signer = Signer {
            id: "AKIAIOSFODNN7EXAMPLE",
            secret: "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
            region: "us-east-1",
            service: "s3",
        };
        let headers = signer.sign(&call, call.headers.clone());
        let value = headers["authorization"].to_str().unwrap().to_owned();
        value.rsplit_once('=').unwrap().1.to_owned()
    }

    #[test]
    fn a_ranged_read() {
        let found = signature(Method::GET, "test.txt", &[], &[("range", "bytes=0-9")], "");
        let expected = "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41";
        assert_eq!(found, expected);
    }

    #[test]
    fn a_write_with_a_name_that_needs_encoding() {
        let headers = [
            ("date", "Fri, 24 May 2013 00:00:00 GMT"),
            ("x-amz-storage-class", "REDUCED_REDUNDANCY"),
        ];
        let found = signature(
            Method::PUT,
            "test$file.text",
            &[],
            &headers,
            "Welcome to Amazon S3.",
        );
        let expected = "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd";
        assert_eq!(found, expected);
    }

    #[test]
    fn a_query_without_a_value() {
        let found = signature(Method::GET, "", &[("lifecycle", "")], &[], "");
        let expected = "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543";
        assert_eq!(found, expected);
    }

    #[test]
    fn a_listing() {
        let query = [("prefix", "J"), ("max-keys", "2")];
        let found = signature(Method::GET, "", &query, &[], "");
        let expected = "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7";
        assert_eq!(found, expected);
    }
}
