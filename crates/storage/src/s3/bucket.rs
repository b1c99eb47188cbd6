//! A bucket at an endpoint: how calls to it are addressed, signed and understood.

use super::credentials::{Credentials, dns_suffix};
use super::redirect::{Redirect, redirect};
use super::sign::{Signer, sha256};
use crate::BoxFuture;
use crate::backend::Requests;
use crate::cloud::clock::Clock;
use crate::cloud::object_store::ObjectStore;
use crate::cloud::url::Url;
use crate::cloud::{
    Call, Clients, Endpoint, Environment, FullResponse, Protocol, Recovery, Rejection,
    SegmentedBytes, header_text, kind_of_status, percent, xml,
};
use crate::error::{Error, ErrorKind, Result};
use headworks_outbound::Settings;
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Maximum number of concurrent calls, independent of the workers.
pub(super) const MAX_CONCURRENT: usize = 128;
/// Maximum number of parts in memory, over all uploads.
const MAX_BUFFERED_PARTS: usize = 16;
/// Memory for files that are sent in one request, over all uploads, in units of `PERMIT_BYTES`.
const SMALL_FILE_PERMITS: usize = (128 << 20) / PERMIT_BYTES;
const PERMIT_BYTES: usize = 64 << 10;

/// The errors of keys that were valid once.
const EXPIRED: [&str; 4] = [
    "ExpiredToken",
    "ExpiredTokenException",
    "InvalidToken",
    "TokenRefreshRequired",
];

const SETTINGS: [&str; 11] = [
    "at_once",
    "requests",
    "below",
    "page",
    "endpoint",
    "region",
    "profile",
    "path_style",
    "anonymous",
    "checksums",
    "conditional",
];

/// A bucket, or a prefix in it.
pub(crate) struct Bucket {
    pub(super) endpoint: Endpoint,
    credentials: Credentials,
    pub(super) name: String,
    /// The profile and the anonymity that the location requests.
    identity: (Option<String>, bool),
    region: String,
    origin: String,
    /// The server that the service has named instead.
    redirect: OnceLock<Redirect>,
    clock: Clock,
    /// The part of the path before every key.
    base: String,
    pub(super) prefix: Vec<u8>,
    /// Whether checksums are sent and requested.
    pub(super) checksums: bool,
    /// Whether the service supports conditional writes, as far as known.
    pub(super) conditional: AtomicBool,
    pub(super) part_memory: Arc<Semaphore>,
    small_file_memory: Arc<Semaphore>,
    /// Whether folders are listed with everything below them; `None` if that is probed.
    pub(super) list_below: Option<bool>,
    /// Keys per page, if set; otherwise the service decides.
    pub(super) page: Option<String>,
}

impl Bucket {
    pub(super) fn open(location: &[u8], environment: &Environment) -> Result<Bucket> {
        let url = Url::parse(location)?;
        url.allow_only(&SETTINGS)?;
        let fail = |message: String| Error::new(ErrorKind::Other, "open", location, message);
        let mut config = Settings::default();
        config.ca_file = environment("AWS_CA_BUNDLE").map(PathBuf::from);
        let clients = Clients::new(config).map_err(|e| fail(e.to_string()))?;
        let outbound = clients.proxied.clone();
        let anonymous = url.flag("anonymous")?.unwrap_or(false);
        let (credentials, defaults) =
            Credentials::find(environment, url.get("profile"), anonymous, clients)?;
        let region = url.get("region").map(str::to_owned).or(defaults.region);
        let region = region.unwrap_or_else(|| "us-east-1".to_owned());
        let custom = url.get("endpoint").map(str::to_owned).or(defaults.endpoint);
        let name = url.host.clone();
        // The certificate for `*.s3…` does not cover a bucket with a dot.
        let path_style = custom.is_some() || name.contains('.');
        let path_style = url.flag("path_style")?.unwrap_or(path_style);
        // Known to be cheap at Amazon only: some services scan the whole bucket for it.
        let at_amazon = custom.is_none().then_some(true);
        let list_below = url.flag("below")?.or(at_amazon);
        let endpoint = custom.unwrap_or_else(|| {
            let suffix = dns_suffix(&region);
            format!("https://s3.{region}.{suffix}")
        });
        let Some((scheme, host)) = endpoint.trim_end_matches('/').split_once("://") else {
            let message =
                format!("the endpoint `{endpoint}` has no scheme; write http:// or https://");
            return Err(fail(message));
        };
        if host.contains(['/', '@']) {
            let message = "the endpoint is not a scheme and a host, as in https://s3.example.org";
            return Err(fail(message.to_owned()));
        }
        let (host, base) = match path_style {
            true => (
                host.to_owned(),
                format!("/{}", percent::encode(name.as_bytes())),
            ),
            false => (format!("{name}.{host}"), String::new()),
        };
        Ok(Bucket {
            endpoint: Endpoint::new(outbound, url.limits(MAX_CONCURRENT)?),
            credentials,
            identity: (url.get("profile").map(str::to_owned), anonymous),
            region,
            origin: format!("{scheme}://{host}"),
            redirect: OnceLock::new(),
            clock: Clock::default(),
            base,
            prefix: url.prefix.clone(),
            name,
            checksums: url.flag("checksums")?.unwrap_or(true),
            conditional: AtomicBool::new(url.flag("conditional")?.unwrap_or(true)),
            part_memory: Arc::new(Semaphore::new(MAX_BUFFERED_PARTS)),
            small_file_memory: Arc::new(Semaphore::new(SMALL_FILE_PERMITS)),
            list_below,
            page: url.get("page").map(str::to_owned),
        })
    }

    /// Returns the region that calls are signed for.
    fn region(&self) -> &str {
        let redirect = self.redirect.get();
        let region = redirect.and_then(|redirect| redirect.region.as_deref());
        region.unwrap_or(&self.region)
    }

    /// Returns what the user should know about the storage.
    pub(super) fn notices(&self) -> Vec<String> {
        self.clock.notice().into_iter().collect()
    }

    /// Reserves memory for a file that is sent in one request.
    pub(super) async fn reserve_memory(&self, size: u64) -> OwnedSemaphorePermit {
        let pieces = size
            .div_ceil(PERMIT_BYTES as u64)
            .clamp(1, SMALL_FILE_PERMITS as u64) as u32;
        let room = self
            .small_file_memory
            .clone()
            .acquire_many_owned(pieces)
            .await;
        room.expect("the semaphore is never closed")
    }

    /// Returns whether the service can copy from the other bucket to this one.
    pub(super) fn can_copy_from(&self, other: &Bucket) -> bool {
        let end = |bucket: &Bucket| bucket.origin.replace(&format!("{}.", bucket.name), "");
        end(self) == end(other) && self.region == other.region && self.identity == other.identity
    }

    /// Returns the source of a server-side copy.
    pub(super) fn copy_source(&self, key: &[u8]) -> String {
        let bucket = percent::encode(self.name.as_bytes());
        format!("/{bucket}/{}", percent::encode_path(key))
    }

    pub(super) fn longest_name(&self) -> usize {
        1024_usize.saturating_sub(self.prefix.len()).max(1)
    }

    pub(super) fn requests(&self) -> Requests {
        self.endpoint.requests()
    }

    /// Returns a call to the bucket itself.
    pub(super) fn call(
        &self,
        kind: &'static str,
        operation: &'static str,
        path: &[u8],
        method: Method,
    ) -> Call {
        let target = format!("{}/", self.base);
        let redirect = self.redirect.get();
        let origin = redirect.map_or(&self.origin, |redirect| &redirect.origin);
        Call::new((kind, operation, path), method, origin, target)
    }

    /// Returns a call to a key.
    pub(super) fn object_call(
        &self,
        kind: &'static str,
        operation: &'static str,
        key: &[u8],
        method: Method,
    ) -> Result<Call> {
        let mut call = self.call(kind, operation, key, method);
        let shown = key.strip_prefix(self.prefix.as_slice()).unwrap_or(key);
        call.path = shown.to_vec();
        // An empty key addresses the bucket, which must never be deleted by accident.
        if key.is_empty() {
            return Err(call.failure(ErrorKind::BadName, "the key is empty"));
        }
        if std::str::from_utf8(key).is_err() {
            return Err(call.failure(ErrorKind::BadName, "the name is not UTF-8, as keys must be"));
        }
        if key.len() > 1024 {
            return Err(call.failure(ErrorKind::BadName, "the key is longer than 1024 bytes"));
        }
        call.target = format!("{}/{}", self.base, percent::encode_path(key));
        Ok(call)
    }

    pub(super) async fn fetch(&self, call: &Call) -> Result<FullResponse> {
        self.endpoint.fetch(self, call).await
    }

    /// Sends a call to which S3 may answer 200 with an error in the body, and returns that error.
    pub(super) async fn fetch_checked(&self, call: &Call) -> Result<FullResponse> {
        let response = self.fetch(call).await?;
        match xml::find(&response.body, "Code") {
            None => Ok(response),
            Some(_) => {
                let status = StatusCode::INTERNAL_SERVER_ERROR;
                let (kind, message) = self.classify(status, &response.headers, &response.body);
                Err(call.failure(kind, message))
            }
        }
    }

    /// Creates the bucket, unless it exists.
    pub(super) async fn make(&self) -> Result<()> {
        match self.check().await {
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            checked => return checked,
        }
        let mut call = self.call(
            "make bucket",
            "make the bucket",
            self.name.as_bytes(),
            Method::PUT,
        );
        if self.region != "us-east-1" {
            let region = xml::escape(&self.region);
            let body = format!(
                "<CreateBucketConfiguration><LocationConstraint>{region}</LocationConstraint></CreateBucketConfiguration>"
            );
            call = call.body(SegmentedBytes::from(body));
        }
        match self.fetch(&call).await {
            Err(error) if error.kind() == ErrorKind::Exists => Ok(()),
            made => made.map(drop),
        }
    }
}

impl Protocol for Bucket {
    fn sign<'a>(&'a self, call: &'a Call) -> BoxFuture<'a, Result<HeaderMap>> {
        Box::pin(async move {
            let mut headers = call.headers.clone();
            let mut set = |name: &'static str, value: &str| {
                if let Ok(value) = HeaderValue::from_str(value) {
                    headers.insert(name, value);
                }
            };
            let host = call.origin.split_once("://").map(|(_, host)| host);
            set("host", host.unwrap_or_default());
            let Some(keys) = self.credentials.keys().await? else {
                return Ok(headers);
            };
            let now = self.clock.now().strftime("%Y%m%dT%H%M%SZ");
            set("x-amz-date", &now.to_string());
            if !call.headers.contains_key("x-amz-content-sha256") {
                set("x-amz-content-sha256", &hex::encode(sha256(&call.body)));
            }
            if let Some(token) = &keys.token {
                set("x-amz-security-token", token);
            }
            let signer = Signer {
                id: &keys.id,
                secret: &keys.secret,
                region: self.region(),
                service: "s3",
            };
            Ok(signer.sign(call, headers))
        })
    }

    fn recover(&self, call: &Call, signed: &HeaderMap, rejection: &Rejection<'_>) -> Recovery {
        if rejection.status == StatusCode::TEMPORARY_REDIRECT {
            return match redirect(&call.origin, rejection.headers) {
                Some(found) => {
                    Recovery::RepeatAt(self.redirect.get_or_init(|| found).origin.clone())
                }
                None => Recovery::Impossible,
            };
        }
        let token = header_text(signed, "x-amz-security-token");
        let code = xml::find(rejection.body, "Code");
        let skewed = match &code {
            Some(code) => code == "RequestTimeTooSkewed",
            None => call.method == Method::HEAD && rejection.status == StatusCode::FORBIDDEN,
        };
        if skewed && self.clock.correct(signed, rejection.headers) {
            return Recovery::Repeat;
        }
        let expired = match &code {
            Some(code) => EXPIRED.contains(&code.as_str()),
            // The response to HEAD has no body, so that the reason remains unknown.
            None => call.method == Method::HEAD && rejection.status == StatusCode::BAD_REQUEST,
        };
        let is_rejected = expired || rejection.status == StatusCode::UNAUTHORIZED;
        match token.filter(|_| is_rejected) {
            Some(token) => self.credentials.reject(Some(token)),
            None => Recovery::Impossible,
        }
    }

    fn classify(
        &self,
        status: StatusCode,
        headers: &HeaderMap,
        body: &[u8],
    ) -> (ErrorKind, String) {
        let code = xml::find(body, "Code").unwrap_or_default();
        let detail = xml::find(body, "Message").unwrap_or_default();
        let mut message = format!("{status} {code} {detail}").trim().to_owned();
        let kind = match code.as_str() {
            "NoSuchKey" | "NoSuchBucket" | "NoSuchUpload" => ErrorKind::NotFound,
            code if EXPIRED.contains(&code) => {
                message.push_str(": log in again, or set the new keys");
                ErrorKind::Denied
            }
            "BucketAlreadyOwnedByYou" | "BucketAlreadyExists" => ErrorKind::Exists,
            "SlowDown"
            | "Throttling"
            | "ThrottlingException"
            | "RequestLimitExceeded"
            | "TooManyRequests" => match kind_of_status(status, headers) {
                ErrorKind::Overload(after) => ErrorKind::Overload(after),
                _ => ErrorKind::Overload(None),
            },
            // The data was damaged in transit.
            "BadDigest"
            | "InvalidDigest"
            | "XAmzContentSHA256Mismatch"
            | "IncompleteBody"
            | "XAmzContentChecksumMismatch"
            | "RequestTimeout"
            | "InternalError"
            | "OperationAborted"
            | "ConditionalRequestConflict" => ErrorKind::Temporary,
            "KeyTooLongError" => ErrorKind::BadName,
            "QuotaExceeded" | "EntityTooLarge" => ErrorKind::NoSpace,
            "NotImplemented" => ErrorKind::Unsupported,
            "RequestTimeTooSkewed" => {
                message.push_str(&format!(": {}", self.clock.advice(headers)));
                ErrorKind::Denied
            }
            _ => kind_of_status(status, headers),
        };
        if status == StatusCode::TEMPORARY_REDIRECT {
            let to = header_text(headers, "location").unwrap_or("nowhere");
            message = format!(
                "{message}: redirected to {to}, which is not followed; name the right endpoint with ?endpoint=…"
            );
        }
        let elsewhere =
            header_text(headers, "x-amz-bucket-region").filter(|region| *region != self.region());
        if let Some(region) = elsewhere
            && kind != ErrorKind::NotFound
        {
            message = format!("{message}: the bucket is in another region; add ?region={region}");
        }
        (kind, message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn open(location: &str) -> Bucket {
        Bucket::open(
            location.as_bytes(),
            &(Arc::new(|_: &str| None) as Environment),
        )
        .unwrap()
    }

    #[test]
    fn a_bucket_is_in_the_path_or_in_the_host() {
        let address = |location: &str| {
            let call = open(location)
                .object_call("get", "read", b"p/k y", Method::GET)
                .unwrap();
            format!("{}{}", call.origin, call.target)
        };
        let at_amazon = "https://b.s3.eu-north-1.amazonaws.com/p/k%20y";
        assert_eq!(address("s3://b/p?anonymous&region=eu-north-1"), at_amazon);
        let elsewhere = "s3://b/p?anonymous&endpoint=http://h:9000";
        assert_eq!(address(elsewhere), "http://h:9000/b/p/k%20y");
        let in_the_host = format!("{elsewhere}&path_style=false");
        assert_eq!(address(&in_the_host), "http://b.h:9000/p/k%20y");
        // A certificate for `*.s3…` covers one label only.
        for (location, expected) in [
            (
                "s3://a.b/p?anonymous&region=eu-north-1",
                "https://s3.eu-north-1.amazonaws.com/a.b/p/k%20y",
            ),
            (
                "s3://b/p?anonymous&region=cn-north-1",
                "https://b.s3.cn-north-1.amazonaws.com.cn/p/k%20y",
            ),
            (
                "s3://a.b/p?anonymous&region=cn-northwest-1",
                "https://s3.cn-northwest-1.amazonaws.com.cn/a.b/p/k%20y",
            ),
            (
                "s3://b/p?anonymous&region=us-gov-west-1",
                "https://b.s3.us-gov-west-1.amazonaws.com/p/k%20y",
            ),
            (
                "s3://a.b/p?anonymous&endpoint=http://h:9000&path_style=false",
                "http://a.b.h:9000/p/k%20y",
            ),
        ] {
            assert_eq!(address(location), expected);
        }
    }

    #[test]
    fn overloads_are_distinguished_from_other_errors() {
        let bucket = open("s3://b?anonymous");
        let kind = |status: u16, code: &str, after: Option<&str>| {
            let body = format!("<Error><Code>{code}</Code><Message>m</Message></Error>");
            let mut headers = HeaderMap::new();
            if let Some(after) = after {
                headers.insert("retry-after", HeaderValue::from_str(after).unwrap());
            }
            let status = StatusCode::from_u16(status).unwrap();
            bucket.classify(status, &headers, body.as_bytes()).0
        };
        let overload = ErrorKind::Overload(None);
        assert_eq!(kind(503, "SlowDown", None), overload);
        assert_eq!(kind(400, "SlowDown", None), overload);
        assert_eq!(kind(429, "", None), overload);
        assert_eq!(kind(503, "", None), overload);
        let named = ErrorKind::Overload(Some(Duration::from_secs(7)));
        assert_eq!(kind(503, "SlowDown", Some("7")), named);
        assert_eq!(kind(500, "InternalError", None), ErrorKind::Temporary);
        assert_eq!(kind(403, "AccessDenied", None), ErrorKind::Denied);
    }
}
