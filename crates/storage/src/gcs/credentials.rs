//! Credentials for Google: a token from the environment, a file with a service account or a user,
//! or the machine's account.
//!
//! Tokens are kept in memory only and refreshed before they expire. Their debug output is redacted.

use crate::cloud::{Environment, SegmentedBytes, bearer, metadata_service, percent};
use crate::error::{Error, ErrorKind, Result};
use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use headworks_outbound::Outbound;
use http::{HeaderValue, Method, Request};
use parking_lot::Mutex;
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject;
use serde::Deserialize;
use std::path::PathBuf;

const SCOPE: &str = "https://www.googleapis.com/auth/devstorage.full_control";
const TOKEN_URL: &str = "https://oauth2.googleapis.com/token";
/// Tokens are refreshed when they are valid for less than this, in seconds.
const REFRESH_MARGIN: i64 = 300;

/// The source of tokens.
enum Source {
    Anonymous,
    Fixed(HeaderValue),
    File(Box<Account>),
    Machine(String),
}

/// A credentials file, as Google issues it.
#[derive(Deserialize)]
struct Account {
    #[serde(rename = "type")]
    kind: String,
    client_email: Option<String>,
    private_key: Option<String>,
    private_key_id: Option<String>,
    token_uri: Option<String>,
    client_id: Option<String>,
    client_secret: Option<String>,
    refresh_token: Option<String>,
    project_id: Option<String>,
}

/// An access token from a token service.
#[derive(Deserialize)]
struct AccessToken {
    access_token: String,
    expires_in: Option<i64>,
}

/// The source of tokens, and the current token with its expiry.
pub(super) struct Credentials {
    source: Source,
    outbound: Outbound,
    current: Mutex<Option<(HeaderValue, i64)>>,
    fetching: tokio::sync::Mutex<()>,
}

impl Credentials {
    /// Finds the source of tokens; makes no call. `direct` bypasses proxies, `proxied` uses them.
    pub(super) fn find(
        environment: &Environment,
        anonymous: bool,
        direct: Outbound,
        proxied: Outbound,
    ) -> Result<Credentials> {
        let source = match anonymous {
            true => Source::Anonymous,
            false => source(environment)?,
        };
        let outbound = if let Source::Machine(_) = source {
            direct
        } else {
            proxied
        };
        Ok(Credentials {
            source,
            outbound,
            current: Mutex::default(),
            fetching: tokio::sync::Mutex::default(),
        })
    }

    /// Returns the project of the account, if the file has one.
    pub(super) fn project(&self) -> Option<&str> {
        match &self.source {
            Source::File(account) => account.project_id.as_deref(),
            _ => None,
        }
    }

    /// Returns the authorization header; `None` for anonymous access.
    pub(super) async fn token(&self) -> Result<Option<HeaderValue>> {
        match &self.source {
            Source::Anonymous => return Ok(None),
            Source::Fixed(token) => return Ok(Some(token.clone())),
            _ => {}
        }
        if let Some(token) = self.current_token() {
            return Ok(Some(token));
        }
        let _one_at_a_time = self.fetching.lock().await;
        if let Some(token) = self.current_token() {
            return Ok(Some(token));
        }
        let fetched = match &self.source {
            Source::Machine(base) => fetch_machine_token(&self.outbound, base).await?,
            Source::File(account) => account.fetch(&self.outbound).await?,
            Source::Anonymous | Source::Fixed(_) => return Ok(None),
        };
        let until = now() + fetched.expires_in.unwrap_or(3600);
        let token = bearer("the response", &fetched.access_token)?;
        *self.current.lock() = Some((token.clone(), until));
        Ok(Some(token))
    }

    fn current_token(&self) -> Option<HeaderValue> {
        let current = self.current.lock();
        let (token, until) = current.as_ref()?;
        (until - REFRESH_MARGIN > now()).then(|| token.clone())
    }

    /// Discards the current token after a rejection. Returns whether a new one can be fetched.
    pub(super) fn invalidate(&self) -> bool {
        matches!(self.source, Source::File(_) | Source::Machine(_))
            && self.current.lock().take().is_some()
    }
}

fn now() -> i64 {
    jiff::Timestamp::now().as_second()
}

fn source(get: &Environment) -> Result<Source> {
    for name in ["GOOGLE_OAUTH_ACCESS_TOKEN", "CLOUDSDK_AUTH_ACCESS_TOKEN"] {
        if let Some(token) = get(name) {
            return Ok(Source::Fixed(bearer(name, &token)?));
        }
    }
    if let Some(path) = get("GOOGLE_APPLICATION_CREDENTIALS") {
        return file(&PathBuf::from(path));
    }
    let home = get("HOME").map(PathBuf::from).unwrap_or_default();
    let usual = home.join(".config/gcloud/application_default_credentials.json");
    if usual.is_file() {
        return file(&usual);
    }
    let host = get("GCE_METADATA_HOST").unwrap_or_else(|| "metadata.google.internal".to_owned());
    Ok(Source::Machine(format!("http://{host}")))
}

fn file(path: &std::path::Path) -> Result<Source> {
    let displayed = path.display().to_string();
    let text = std::fs::read(path);
    let text = text.map_err(|error| fail("read the credentials", &displayed, error.to_string()))?;
    // The parser's error would repeat the content.
    let account: Account = serde_json::from_slice(&text).map_err(|_| {
        let message = "the file does not contain Google credentials";
        fail("read the credentials", &displayed, message)
    })?;
    match account.kind.as_str() {
        "service_account" | "authorized_user" => Ok(Source::File(account.into())),
        kind => {
            let message = format!(
                "credentials of the kind `{kind}` are not supported; set GOOGLE_OAUTH_ACCESS_TOKEN to what `gcloud auth print-access-token` prints"
            );
            Err(fail("use the credentials", &displayed, message))
        }
    }
}

impl Account {
    async fn fetch(&self, outbound: &Outbound) -> Result<AccessToken> {
        let address = self.token_uri.as_deref().unwrap_or(TOKEN_URL);
        let fields = match self.kind.as_str() {
            "service_account" => vec![
                ("grant_type", "urn:ietf:params:oauth:grant-type:jwt-bearer"),
                ("assertion", &*self.assertion(address, now())?),
            ]
            .into_iter()
            .map(|(name, value)| (name, value.to_owned()))
            .collect(),
            _ => vec![
                ("grant_type", "refresh_token".to_owned()),
                ("client_id", self.client_id.clone().unwrap_or_default()),
                (
                    "client_secret",
                    self.client_secret.clone().unwrap_or_default(),
                ),
                (
                    "refresh_token",
                    self.refresh_token.clone().unwrap_or_default(),
                ),
            ],
        };
        let encode = |(name, value): &(&str, String)| {
            format!("{name}={}", percent::encode(value.as_bytes()))
        };
        let body: Vec<String> = fields.iter().map(encode).collect();
        let request = Request::builder()
            .method(Method::POST)
            .uri(address)
            .header("content-type", "application/x-www-form-urlencoded")
            .body(SegmentedBytes::from(body.join("&")));
        fetch_token(outbound, address, request).await
    }

    /// Returns a JWT that identifies the account, signed with its key.
    fn assertion(&self, audience: &str, now: i64) -> Result<String> {
        let email = self.client_email.as_deref().unwrap_or_default();
        let key = self.private_key.as_deref().unwrap_or_default();
        let fail = |message: &str| fail("use the key of", email, message);
        let header = serde_json::json!({"alg": "RS256", "typ": "JWT", "kid": self.private_key_id});
        let claims = serde_json::json!({
            "iss": email, "scope": SCOPE, "aud": audience, "iat": now, "exp": now + 3600,
        });
        let encode = |text: String| BASE64_URL_SAFE_NO_PAD.encode(text);
        let claim_text = format!(
            "{}.{}",
            encode(header.to_string()),
            encode(claims.to_string())
        );
        let key = PrivateKeyDer::from_pem_slice(key.as_bytes());
        let key = key.map_err(|_| fail("the key is not a PEM private key"))?;
        let key = rustls::crypto::ring::sign::any_supported_type(&key);
        let key = key.map_err(|_| fail("the key has an unsupported type"))?;
        let signer = key.choose_scheme(&[rustls::SignatureScheme::RSA_PKCS1_SHA256]);
        let signer = signer.ok_or_else(|| fail("the key is not an RSA key"))?;
        let signature = signer.sign(claim_text.as_bytes());
        let signature = signature.map_err(|_| fail("signing failed"))?;
        Ok(format!(
            "{claim_text}.{}",
            BASE64_URL_SAFE_NO_PAD.encode(signature)
        ))
    }
}

async fn fetch_machine_token(outbound: &Outbound, base: &str) -> Result<AccessToken> {
    let path = "/computeMetadata/v1/instance/service-accounts/default/token";
    let address = format!("{base}{path}");
    let request = Request::builder()
        .uri(&address)
        .header("metadata-flavor", "Google")
        .body(SegmentedBytes::default());
    // Outside of Google Cloud nothing responds, and that is not what the user needs to know.
    fetch_token(outbound, &address, request).await.map_err(|error| {
        let message = format!(
            "found none in the environment, a file or this machine's account ({}); set GOOGLE_APPLICATION_CREDENTIALS or GOOGLE_OAUTH_ACCESS_TOKEN, or add ?anonymous to the URL of a public bucket",
            error.cause()
        );
        fail("find credentials for", "gs", message)
    })
}

async fn fetch_token(
    outbound: &Outbound,
    address: &str,
    request: http::Result<Request<SegmentedBytes>>,
) -> Result<AccessToken> {
    let refused = |message: String| fail("fetch a token from", address, message);
    let request = request.map_err(|error| refused(error.to_string()))?;
    let (status, body) = metadata_service::fetch(outbound, request)
        .await
        .map_err(refused)?;
    if !status.is_success() {
        #[derive(Default, Deserialize)]
        struct ErrorDetail {
            #[serde(default)]
            error_description: String,
        }
        let detail: ErrorDetail = serde_json::from_slice(&body).unwrap_or_default();
        let message = format!("the response is {status} {}", detail.error_description);
        return Err(refused(message));
    }
    serde_json::from_slice(&body).map_err(|_| refused("the response contains no token".to_owned()))
}

fn fail(operation: &'static str, on: &str, message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Denied, operation, on.as_bytes(), message)
}
