//! A bucket at Google: how calls to it are addressed, signed and understood.

use super::credentials::Credentials;
use crate::cloud::keys::Keys;
use crate::cloud::place::Place;
use crate::cloud::{Call, Endpoint, Environment, Pieces, Protocol, Whole, of_status, percent};
use crate::error::{Error, ErrorKind, Result};
use crate::{BoxFuture, Expect};
use headworks_service::outbound::{Outbound, OutboundConfig};
use http::{HeaderMap, Method, StatusCode};
use serde::Deserialize;
use std::sync::Arc;
use tokio::sync::Semaphore;

/// Calls at once, whatever the workers do.
const MOST: usize = 64;
/// Pieces of large files in memory at once, over all uploads.
const IN_MEMORY: usize = 16;
/// The most bytes in the name of an object.
const LONGEST: usize = 1024;

const SETTINGS: [&str; 6] = [
    "at_once",
    "requests",
    "endpoint",
    "anonymous",
    "project",
    "page",
];

/// A bucket, or what is below a prefix in it.
pub(super) struct Bucket {
    pub(super) endpoint: Endpoint,
    credentials: Credentials,
    pub(super) name: String,
    /// Scheme and host.
    origin: String,
    anonymous: bool,
    project: Option<String>,
    pub(super) prefix: Vec<u8>,
    pub(super) room: Arc<Semaphore>,
    /// Names in a page, where it is not the far side that decides.
    pub(super) page: Option<String>,
}

impl Bucket {
    pub(super) fn open(location: &[u8], environment: &Environment) -> Result<Bucket> {
        let place = Place::parse(location)?;
        place.only(&SETTINGS)?;
        let wrong = |words: String| Error::new(ErrorKind::Other, "open", location, words);
        let mut config = OutboundConfig::default();
        let outbound = Outbound::new(&config).map_err(|e| wrong(e.to_string()))?;
        config.proxy_from_environment = false;
        let near = Outbound::new(&config).map_err(|e| wrong(e.to_string()))?;
        let emulator =
            environment("STORAGE_EMULATOR_HOST").map(|host| match host.contains("://") {
                true => host,
                false => format!("http://{host}"),
            });
        let anonymous = place.flag("anonymous")?.unwrap_or(emulator.is_some());
        let credentials = Credentials::find(environment, anonymous, near, outbound.clone())?;
        let endpoint = place.get("endpoint").map(str::to_owned).or(emulator);
        let endpoint = endpoint.unwrap_or_else(|| "https://storage.googleapis.com".to_owned());
        let origin = endpoint.trim_end_matches('/').to_owned();
        let host = origin.split_once("://").map_or("", |(_, host)| host);
        if host.is_empty() || host.contains(['/', '@', '?']) {
            let words = "the endpoint must be a scheme and a host, as in http://127.0.0.1:9023";
            return Err(wrong(words.to_owned()));
        }
        let project = place.get("project").map(str::to_owned);
        Ok(Bucket {
            endpoint: Endpoint::new(outbound, place.limits(MOST)?),
            project: project.or_else(|| environment("GOOGLE_CLOUD_PROJECT")),
            credentials,
            name: place.host.clone(),
            origin,
            anonymous,
            prefix: place.prefix.clone(),
            room: Arc::new(Semaphore::new(IN_MEMORY)),
            page: place.get("page").map(str::to_owned),
        })
    }

    /// Whether the far side can copy from the other to this.
    pub(super) fn is_beside(&self, other: &Bucket) -> bool {
        (&self.origin, self.anonymous) == (&other.origin, other.anonymous)
    }

    pub(super) fn longest_name(&self) -> usize {
        LONGEST.saturating_sub(self.prefix.len()).max(1)
    }

    /// The path of the bucket, behind that of the interface.
    fn base(&self) -> String {
        format!("/b/{}", percent::encode(self.name.as_bytes()))
    }

    /// Where a copy of an object is to be.
    pub(super) fn onto(&self, key: &[u8]) -> String {
        format!("{}/o/{}", self.base(), percent::encode(key))
    }

    /// A call to the bucket itself, or with `below` to what is in it.
    pub(super) fn call(
        &self,
        what: (&'static str, &'static str, &[u8]),
        method: Method,
        below: &str,
    ) -> Call {
        let target = format!("/storage/v1{}{below}", self.base());
        Call::new(what, method, &self.origin, target)
    }

    /// A call to an object.
    pub(super) fn at(
        &self,
        kind: &'static str,
        operation: &'static str,
        key: &[u8],
        method: Method,
    ) -> Result<Call> {
        let shown = key.strip_prefix(self.prefix.as_slice()).unwrap_or(key);
        let below = format!("/o/{}", percent::encode(key));
        let call = self.call((kind, operation, shown), method, &below);
        let words = match key {
            b"" => "the name is empty",
            b"." | b".." => "no object is named so",
            _ if std::str::from_utf8(key).is_err() => "names of objects are UTF-8, and this is not",
            _ if key.len() > LONGEST => "the name is longer than 1024 bytes",
            _ => match refuses(key) {
                Some(words) => words,
                None => return Ok(call),
            },
        };
        Err(call.wrong(ErrorKind::BadName, words))
    }

    /// A call that uploads an object of that key.
    pub(super) fn upload_call(&self, kind: &'static str, key: &[u8], way: &str) -> Result<Call> {
        let mut call = self.at(kind, "write", key, Method::POST)?;
        call.target = format!("/upload/storage/v1{}/o", self.base());
        Ok(call.query("uploadType", way))
    }

    pub(super) async fn fetch(&self, call: &Call) -> Result<Whole> {
        self.endpoint.fetch(self, call).await
    }

    /// Makes the bucket, unless it is there.
    pub(super) async fn make(&self) -> Result<()> {
        match self.look().await {
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            looked => return looked,
        }
        let what = ("make bucket", "make the bucket", self.name.as_bytes());
        let mut call = Call::new(what, Method::POST, &self.origin, "/storage/v1/b".to_owned());
        let project = self.project.as_deref().or(self.credentials.project());
        if let Some(project) = project {
            call = call.query("project", project);
        } else if !self.anonymous {
            let words =
                "a bucket belongs to a project; set GOOGLE_CLOUD_PROJECT, or make it yourself";
            return Err(call.wrong(ErrorKind::NotFound, words));
        }
        let body = serde_json::json!({"name": self.name}).to_string();
        let call = call.header("content-type", "application/json");
        match self.fetch(&call.body(Pieces::from(body))).await {
            Err(error) if error.kind() == ErrorKind::Exists => Ok(()),
            made => made.map(drop),
        }
    }
}

/// Why a name cannot be had, if so.
pub(super) fn refuses(name: &[u8]) -> Option<&'static str> {
    let line = name.iter().any(|byte| matches!(byte, b'\r' | b'\n'));
    line.then_some("a name has a line break, which no name has here")
}

/// The condition of a write.
pub(super) fn expecting(call: Call, expect: &Expect) -> Call {
    match expect {
        Expect::Anything | Expect::Listed(_) => call,
        Expect::Nothing => call.query("ifGenerationMatch", "0"),
        Expect::Version(version) => {
            call.query("ifGenerationMatch", &String::from_utf8_lossy(version))
        }
    }
}

#[derive(Default, Deserialize)]
struct Refusal {
    #[serde(default)]
    error: Said,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Said {
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
                // Without one, what has no body has no length, which the far side asks for.
                headers.insert(http::header::CONTENT_LENGTH, call.body.len().into());
            }
            let Some(token) = self.credentials.token().await? else {
                return Ok(headers);
            };
            headers.insert(http::header::AUTHORIZATION, token);
            Ok(headers)
        })
    }

    /// An upload that goes on is answered with 308.
    fn is_good(&self, status: StatusCode) -> bool {
        status.is_success() || status == StatusCode::PERMANENT_REDIRECT
    }

    fn judge(&self, status: StatusCode, headers: &HeaderMap, body: &[u8]) -> (ErrorKind, String) {
        let refusal: Refusal = serde_json::from_slice(body).unwrap_or_default();
        let reason = refusal.error.errors.into_iter().next().unwrap_or_default();
        let (reason, said) = (reason.reason, refusal.error.message);
        let words = format!("{status} {reason} {said}").trim().to_owned();
        let kind = match (status.as_u16(), reason.as_str()) {
            (401, _) if self.credentials.is_renewed() => ErrorKind::Temporary,
            (_, "rateLimitExceeded" | "userRateLimitExceeded" | "backendError")
                if status.as_u16() != 503 =>
            {
                ErrorKind::Overload(None)
            }
            (409, _) => ErrorKind::Exists,
            // What was sent did not arrive as it was.
            (400, _) if said.contains("doesn't match calculated") => ErrorKind::Temporary,
            _ => of_status(status, headers),
        };
        (kind, words)
    }
}
