//! Access tokens of Microsoft Entra: for a service principal, a workload identity, a managed
//! identity, or the account that Azure's own tool is logged in with.

use super::managed_identity::{ManagedIdentity, imds};
use crate::cloud::renewing::{Renewing, now};
use crate::cloud::token::{TokenResponse, bearer, fetch_token};
use crate::cloud::{Clients, Environment, Recovery, command, percent};
use crate::error::{Error, ErrorKind, Result};
use http::{HeaderValue, Method, Request};
use std::sync::{Arc, OnceLock};

/// The service that tokens are for, in all clouds.
pub(super) const RESOURCE: &str = "https://storage.azure.com";
/// The token service of the public cloud.
const AUTHORITY: &str = "https://login.microsoftonline.com";
/// Prints a token of the account that is logged in.
const TOOL: &str = "az account get-access-token --output json --resource https://storage.azure.com";

/// The source of tokens. Its debug output is redacted.
#[derive(Clone, PartialEq, Eq)]
enum Source {
    Principal(Application, String),
    /// The file has a token of another identity provider, which its owner replaces.
    Workload(Application, String),
    Managed(ManagedIdentity),
    /// The machine's identity, or the account that the tool is logged in with.
    Ambient(ManagedIdentity, &'static str),
}

/// An application that is registered with a tenant.
#[derive(Clone, PartialEq, Eq)]
struct Application {
    authority: String,
    tenant: String,
    client: String,
}

/// The source of tokens, and the current one.
pub(super) struct Tokens {
    source: Source,
    clients: Clients,
    current: Renewing<HeaderValue>,
    /// The source of two that had a token first. A later failure must not change the identity.
    chosen: OnceLock<Chosen>,
}

#[derive(Clone, Copy)]
enum Chosen {
    Machine,
    Tool,
}

impl PartialEq for Tokens {
    fn eq(&self, other: &Tokens) -> bool {
        self.source == other.source
    }
}

impl Eq for Tokens {}

impl Tokens {
    /// Finds the source of tokens in the order of Azure's own libraries; makes no call.
    pub(super) fn find(get: &Environment, clients: Clients) -> Arc<Tokens> {
        Arc::new(Tokens {
            source: source(get),
            clients,
            current: Renewing::default(),
            chosen: OnceLock::new(),
        })
    }

    /// Returns the authorization header.
    pub(super) async fn token(&self) -> Result<HeaderValue> {
        let current = self.current.get(|| self.fetch()).await?;
        Ok((*current).clone())
    }

    /// Discards a rejected token. Returns when there may be another one.
    pub(super) fn reject(&self, rejected: Option<&HeaderValue>) -> Recovery {
        self.current.reject(|token| Some(token) == rejected)
    }

    async fn fetch(&self) -> Result<(HeaderValue, Option<i64>)> {
        let Clients { direct, proxied } = &self.clients;
        let response = match &self.source {
            Source::Principal(application, secret) => {
                let proof = [("client_secret", secret.clone())];
                application.fetch(proxied, &proof).await?
            }
            Source::Workload(application, file) => {
                let assertion = std::fs::read_to_string(file)
                    .map_err(|error| fail("read the token", file, error.to_string()))?;
                let kind = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer".to_owned();
                let proof = [
                    ("client_assertion_type", kind),
                    ("client_assertion", assertion.trim().to_owned()),
                ];
                application.fetch(proxied, &proof).await?
            }
            Source::Managed(identity) => identity.fetch(direct).await?,
            Source::Ambient(identity, tool) => match self.chosen.get() {
                Some(Chosen::Machine) => identity.fetch(direct).await?,
                Some(Chosen::Tool) => by_tool(tool).await?,
                None => self.choose(identity, tool).await?,
            },
        };
        let expires = response.expires(now());
        let token = bearer("the response", &response.access_token)?;
        Ok((token, Some(expires)))
    }

    async fn choose(&self, identity: &ManagedIdentity, tool: &str) -> Result<TokenResponse> {
        let (found, chosen) = match identity.fetch(&self.clients.direct).await {
            Ok(found) => (found, Chosen::Machine),
            // Outside of Azure nothing responds, and that is not what the user needs to know.
            Err(machine) => match by_tool(tool).await {
                Ok(found) => (found, Chosen::Tool),
                Err(tool) => return Err(no_credentials(&machine, &tool)),
            },
        };
        let _ = self.chosen.set(chosen);
        Ok(found)
    }
}

fn source(get: &Environment) -> Source {
    let application = || {
        Some(Application {
            authority: get("AZURE_AUTHORITY_HOST").unwrap_or_else(|| AUTHORITY.to_owned()),
            tenant: get("AZURE_TENANT_ID")?,
            client: get("AZURE_CLIENT_ID")?,
        })
    };
    if let (Some(application), Some(secret)) = (application(), get("AZURE_CLIENT_SECRET")) {
        return Source::Principal(application, secret);
    }
    if let (Some(application), Some(file)) = (application(), get("AZURE_FEDERATED_TOKEN_FILE")) {
        return Source::Workload(application, file);
    }
    if let Some(identity) = ManagedIdentity::in_environment(get) {
        return Source::Managed(identity);
    }
    Source::Ambient(imds(get), TOOL)
}

impl Application {
    /// Requests a token with a proof of who is asking.
    async fn fetch(
        &self,
        outbound: &headworks_outbound::Outbound,
        proof: &[(&str, String)],
    ) -> Result<TokenResponse> {
        let authority = self.authority.trim_end_matches('/');
        let address = format!("{authority}/{}/oauth2/v2.0/token", self.tenant);
        let fields = [
            ("grant_type", "client_credentials".to_owned()),
            ("client_id", self.client.clone()),
            ("scope", format!("{RESOURCE}/.default")),
        ];
        let body = percent::form(fields.iter().chain(proof));
        let request = Request::builder()
            .method(Method::POST)
            .uri(&address)
            .header("content-type", "application/x-www-form-urlencoded")
            .body(body.into());
        fetch_token(outbound, &address, request).await
    }
}

async fn by_tool(command: &str) -> Result<TokenResponse> {
    let refused = |message: String| fail("fetch a token with", "az", message);
    let printed = command::output(command).await.map_err(refused)?;
    // The parser's error would repeat the output.
    serde_json::from_slice(&printed).map_err(|_| refused("its output has no token".to_owned()))
}

fn no_credentials(machine: &Error, tool: &Error) -> Error {
    let message = format!(
        "no credentials in the environment, no managed identity ({}) and no login with az ({}); set AZURE_STORAGE_CONNECTION_STRING, AZURE_STORAGE_KEY, AZURE_STORAGE_SAS_TOKEN or AZURE_STORAGE_TOKEN, run `az login`, or add ?anonymous to the URL of a public container",
        machine.cause(),
        tool.cause()
    );
    fail("find credentials for", "azblob", message)
}

pub(super) fn fail(operation: &'static str, on: &str, message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Denied, operation, on.as_bytes(), message)
}

#[cfg(test)]
mod tests;
