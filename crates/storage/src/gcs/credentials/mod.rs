//! Credentials for Google: a token from the environment, a file with an account of any kind, or the
//! machine's account.
//!
//! Tokens are kept in memory only and refreshed before they expire. Their debug output is redacted.

mod account;
mod external;
mod impersonation;

use crate::cloud::clock::Clock;
use crate::cloud::renewing::{Renewing, now};
use crate::cloud::token::{TokenResponse, fetch_token};
use crate::cloud::{Clients, Environment, Recovery, SegmentedBytes, bearer};
use crate::error::{Error, ErrorKind, Result};
use account::Account;
use external::ExternalAccount;
use headworks_outbound::Outbound;
use http::{HeaderValue, Request};
use impersonation::ImpersonatedAccount;
use serde::Deserialize;
use std::path::PathBuf;

const SCOPE: &str = "https://www.googleapis.com/auth/devstorage.full_control";

/// The source of tokens.
enum Source {
    Anonymous,
    Fixed(HeaderValue),
    File(Box<CredentialsFile>),
    Machine(String),
}

/// A credentials file, as Google issues it.
#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum CredentialsFile {
    ServiceAccount(Account),
    AuthorizedUser(Account),
    ExternalAccount(ExternalAccount),
    ImpersonatedServiceAccount(ImpersonatedAccount),
}

impl CredentialsFile {
    /// Fetches a token for this scope.
    async fn fetch(&self, scope: &str, context: &Context) -> Result<TokenResponse> {
        match self {
            CredentialsFile::ServiceAccount(account) => account.by_key(scope, context).await,
            CredentialsFile::AuthorizedUser(account) => account.by_refresh_token(context).await,
            CredentialsFile::ExternalAccount(account) => account.fetch(scope, context).await,
            CredentialsFile::ImpersonatedServiceAccount(account) => {
                Box::pin(account.fetch(scope, context)).await
            }
        }
    }
}

/// The clients, the environment and the clock that sources of tokens use.
struct Context {
    clients: Clients,
    environment: Environment,
    clock: Clock,
}

/// The source of tokens, and the current token.
pub(super) struct Credentials {
    source: Source,
    context: Context,
    current: Renewing<HeaderValue>,
}

impl Credentials {
    /// Finds the source of tokens; makes no call.
    pub(super) fn find(
        environment: &Environment,
        anonymous: bool,
        clients: Clients,
    ) -> Result<Credentials> {
        let source = match anonymous {
            true => Source::Anonymous,
            false => source(environment)?,
        };
        let environment = environment.clone();
        Ok(Credentials {
            source,
            context: Context {
                clients,
                environment,
                clock: Clock::default(),
            },
            current: Renewing::default(),
        })
    }

    /// Returns the project of the account, if the file has one.
    pub(super) fn project(&self) -> Option<&str> {
        match &self.source {
            Source::File(file) => match &**file {
                CredentialsFile::ServiceAccount(account)
                | CredentialsFile::AuthorizedUser(account) => account.project(),
                _ => None,
            },
            _ => None,
        }
    }

    /// Returns a notice if the clock had to be corrected.
    pub(super) fn notice(&self) -> Option<String> {
        self.context.clock.notice()
    }

    /// Returns the authorization header; `None` for anonymous access.
    pub(super) async fn token(&self) -> Result<Option<HeaderValue>> {
        match &self.source {
            Source::Anonymous => Ok(None),
            Source::Fixed(token) => Ok(Some(token.clone())),
            _ => {
                let current = self.current.get(|| self.fetch()).await?;
                Ok(Some((*current).clone()))
            }
        }
    }

    async fn fetch(&self) -> Result<(HeaderValue, Option<i64>)> {
        let context = &self.context;
        let fetched = match &self.source {
            Source::Machine(base) => fetch_machine_token(&context.clients.direct, base).await?,
            Source::File(file) => file.fetch(SCOPE, context).await?,
            Source::Anonymous | Source::Fixed(_) => {
                return Err(fail(
                    "fetch a token for",
                    "gs",
                    "there is no source of tokens",
                ));
            }
        };
        let token = bearer("the response", &fetched.access_token)?;
        Ok((token, Some(fetched.expires(now()))))
    }

    /// Discards a rejected token. Returns when there may be another one.
    pub(super) fn reject(&self, rejected: Option<&HeaderValue>) -> Recovery {
        match self.source {
            Source::File(_) | Source::Machine(_) => {
                self.current.reject(|token| Some(token) == rejected)
            }
            _ => Recovery::Impossible,
        }
    }
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
    let parsed = serde_json::from_slice(&text).map(|file| Source::File(Box::new(file)));
    parsed.map_err(|_| {
        let json = serde_json::from_slice::<serde_json::Value>(&text).ok();
        let kind = json.as_ref().and_then(|json| json.get("type")?.as_str());
        let message = match kind {
            Some(kind) => format!(
                "credentials of the kind `{kind}` are not supported, or incomplete; set GOOGLE_OAUTH_ACCESS_TOKEN to what `gcloud auth print-access-token` prints"
            ),
            None => "the file does not contain Google credentials".to_owned(),
        };
        fail("use the credentials", &displayed, message)
    })
}

async fn fetch_machine_token(outbound: &Outbound, base: &str) -> Result<TokenResponse> {
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

fn fail(operation: &'static str, on: &str, message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Denied, operation, on.as_bytes(), message)
}

#[cfg(test)]
mod tests;
