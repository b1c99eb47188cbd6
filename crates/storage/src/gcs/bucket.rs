//! A bucket at Google: how calls to it are addressed, signed and understood.

use super::credentials::Credentials;
use crate::cloud::object_store::ObjectStore;
use crate::cloud::url::Url;
use crate::cloud::{
    Call, Clients, Endpoint, Environment, FullResponse, Protocol, Recovery, Rejection,
    SegmentedBytes, kind_of_status, percent,
};
use crate::error::{Error, ErrorKind, Result};
use crate::{BoxFuture, Precondition};
use headworks_outbound::Settings;
use http::{HeaderMap, Method, StatusCode};
use serde::Deserialize;
use std::sync::Arc;
use tokio::sync::Semaphore;

/// Maximum number of concurrent calls, independent of the workers.
const MAX_CONCURRENT: usize = 64;
/// Maximum number of chunks of large files in memory, over all uploads.
const MAX_BUFFERED: usize = 16;
/// Maximum number of bytes in the name of an object.
const MAX_NAME: usize = 1024;

const SETTINGS: [&str; 6] = [
    "at_once",
    "requests",
    "endpoint",
    "anonymous",
    "project",
    "page",
];

/// A bucket, or a prefix in it.
pub(crate) struct Bucket {
    pub(super) endpoint: Endpoint,
    credentials: Credentials,
    pub(super) name: String,
    /// Scheme and host.
    origin: String,
    anonymous: bool,
    project: Option<String>,
    pub(super) prefix: Vec<u8>,
    pub(super) part_memory: Arc<Semaphore>,
    /// Names per page, if set; otherwise the service decides.
    pub(super) page: Option<String>,
}

impl Bucket {
    pub(super) fn open(location: &[u8], environment: &Environment) -> Result<Bucket> {
        let url = Url::parse(location)?;
        url.allow_only(&SETTINGS)?;
        let fail = |message: String| Error::new(ErrorKind::Other, "open", location, message);
        let clients = Clients::new(Settings::default()).map_err(|e| fail(e.to_string()))?;
        let outbound = clients.proxied.clone();
        let emulator =
            environment("STORAGE_EMULATOR_HOST").map(|host| match host.contains("://") {
                true => host,
                false => format!("http://{host}"),
            });
        let anonymous = url.flag("anonymous")?.unwrap_or(emulator.is_some());
        let credentials = Credentials::find(environment, anonymous, clients)?;
        let endpoint = url.get("endpoint").map(str::to_owned).or(emulator);
        let endpoint = endpoint.unwrap_or_else(|| "https://storage.googleapis.com".to_owned());
        let origin = endpoint.trim_end_matches('/').to_owned();
        let host = origin.split_once("://").map_or("", |(_, host)| host);
        if host.is_empty() || host.contains(['/', '@', '?']) {
            let message = "the endpoint is not a scheme and a host, as in http://127.0.0.1:9023";
            return Err(fail(message.to_owned()));
        }
        let project = url.get("project").map(str::to_owned);
        Ok(Bucket {
            endpoint: Endpoint::new(outbound, url.limits(MAX_CONCURRENT)?),
            project: project.or_else(|| environment("GOOGLE_CLOUD_PROJECT")),
            credentials,
            name: url.host.clone(),
            origin,
            anonymous,
            prefix: url.prefix.clone(),
            part_memory: Arc::new(Semaphore::new(MAX_BUFFERED)),
            page: url.get("page").map(str::to_owned),
        })
    }

    /// Returns what the user should know about the storage.
    pub(super) fn notices(&self) -> Vec<String> {
        self.credentials.notice().into_iter().collect()
    }

    /// Returns whether the service can copy from the other bucket to this one.
    pub(super) fn can_copy_from(&self, other: &Bucket) -> bool {
        (&self.origin, self.anonymous) == (&other.origin, other.anonymous)
    }

    pub(super) fn longest_name(&self) -> usize {
        MAX_NAME.saturating_sub(self.prefix.len()).max(1)
    }

    /// Returns the path of the bucket below that of the API.
    fn base(&self) -> String {
        format!("/b/{}", percent::encode(self.name.as_bytes()))
    }

    /// Returns the path of a copy's target.
    pub(super) fn copy_target(&self, key: &[u8]) -> String {
        format!("{}/o/{}", self.base(), percent::encode(key))
    }

    /// Returns a call to the bucket itself, or to `below` in it.
    pub(super) fn call(
        &self,
        labels: (&'static str, &'static str, &[u8]),
        method: Method,
        below: &str,
    ) -> Call {
        let target = format!("/storage/v1{}{below}", self.base());
        Call::new(labels, method, &self.origin, target)
    }

    /// Returns a call to an object.
    pub(super) fn object_call(
        &self,
        kind: &'static str,
        operation: &'static str,
        key: &[u8],
        method: Method,
    ) -> Result<Call> {
        let shown = key.strip_prefix(self.prefix.as_slice()).unwrap_or(key);
        let below = format!("/o/{}", percent::encode(key));
        let call = self.call((kind, operation, shown), method, &below);
        let message = match key {
            b"" => "the name is empty",
            b"." | b".." => "the name is reserved",
            _ if std::str::from_utf8(key).is_err() => {
                "the name is not UTF-8, as object names must be"
            }
            _ if key.len() > MAX_NAME => "the name is longer than 1024 bytes",
            _ => match name_problem(key) {
                Some(message) => message,
                None => return Ok(call),
            },
        };
        Err(call.failure(ErrorKind::BadName, message))
    }

    /// Returns a call that uploads an object.
    pub(super) fn upload_call(&self, kind: &'static str, key: &[u8], way: &str) -> Result<Call> {
        let mut call = self.object_call(kind, "write", key, Method::POST)?;
        call.target = format!("/upload/storage/v1{}/o", self.base());
        Ok(call.query("uploadType", way))
    }

    pub(super) async fn fetch(&self, call: &Call) -> Result<FullResponse> {
        self.endpoint.fetch(self, call).await
    }

    /// Creates the bucket, unless it exists.
    pub(super) async fn make(&self) -> Result<()> {
        match self.check().await {
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            checked => return checked,
        }
        let labels = ("make bucket", "make the bucket", self.name.as_bytes());
        let mut call = Call::new(
            labels,
            Method::POST,
            &self.origin,
            "/storage/v1/b".to_owned(),
        );
        let project = self.project.as_deref().or(self.credentials.project());
        if let Some(project) = project {
            call = call.query("project", project);
        } else if !self.anonymous {
            let message = "creating a bucket needs a project; set GOOGLE_CLOUD_PROJECT, or create the bucket first";
            return Err(call.failure(ErrorKind::NotFound, message));
        }
        let body = serde_json::json!({"name": self.name}).to_string();
        let call = call.header("content-type", "application/json");
        match self.fetch(&call.body(SegmentedBytes::from(body))).await {
            Err(error) if error.kind() == ErrorKind::Exists => Ok(()),
            made => made.map(drop),
        }
    }
}

/// Returns why a name cannot be represented, if so.
pub(super) fn name_problem(name: &[u8]) -> Option<&'static str> {
    let line = name.iter().any(|byte| matches!(byte, b'\r' | b'\n'));
    line.then_some("the name contains a line break")
}

/// Makes a write conditional.
pub(super) fn with_precondition(call: Call, precondition: &Precondition) -> Call {
    match precondition {
        Precondition::Any | Precondition::Unchanged(_) => call,
        Precondition::Absent => call.query("ifGenerationMatch", "0"),
        Precondition::Version(version) => {
            call.query("ifGenerationMatch", &String::from_utf8_lossy(version))
        }
    }
}

#[derive(Default, Deserialize)]
struct ErrorBody {
    #[serde(default)]
    error: ErrorDetail,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ErrorDetail {
    message: String,
    errors: Vec<Reason>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Reason {
    reason: String,
}

impl Protocol for Bucket {
    fn sign<'a>(&'a self, call: &'a Call) -> BoxFuture<'a, Result<HeaderMap>> {
        Box::pin(async move {
            let mut headers = call.headers.clone();
            if call.method == Method::PUT || call.method == Method::POST {
                // Without a body hyper sends no length, which the service requires.
                headers.insert(http::header::CONTENT_LENGTH, call.body.len().into());
            }
            let Some(token) = self.credentials.token().await? else {
                return Ok(headers);
            };
            headers.insert(http::header::AUTHORIZATION, token);
            Ok(headers)
        })
    }

    fn recover(&self, _call: &Call, signed: &HeaderMap, rejection: &Rejection<'_>) -> Recovery {
        match rejection.status {
            StatusCode::UNAUTHORIZED => {
                let rejected = signed.get(http::header::AUTHORIZATION);
                self.credentials.reject(rejected)
            }
            _ => Recovery::Impossible,
        }
    }

    /// A resumable upload in progress is answered with 308.
    fn is_success(&self, status: StatusCode) -> bool {
        status.is_success() || status == StatusCode::PERMANENT_REDIRECT
    }

    fn classify(
        &self,
        status: StatusCode,
        headers: &HeaderMap,
        body: &[u8],
    ) -> (ErrorKind, String) {
        let refusal: ErrorBody = serde_json::from_slice(body).unwrap_or_default();
        let reason = refusal.error.errors.into_iter().next().unwrap_or_default();
        let (reason, detail) = (reason.reason, refusal.error.message);
        let message = format!("{status} {reason} {detail}").trim().to_owned();
        let kind = match (status.as_u16(), reason.as_str()) {
            (_, "rateLimitExceeded" | "userRateLimitExceeded" | "backendError")
                if status.as_u16() != 503 =>
            {
                ErrorKind::Overload(None)
            }
            (409, _) => ErrorKind::Exists,
            // The data was damaged in transit.
            (400, _) if detail.contains("doesn't match calculated") => ErrorKind::Temporary,
            _ => kind_of_status(status, headers),
        };
        (kind, message)
    }
}
