//! Managed identities: tokens from a service of the machine, the container or the function.

use super::tokens::{RESOURCE, fail};
use crate::cloud::token::{TokenResponse, fetch_token, parse_token};
use crate::cloud::{Environment, SegmentedBytes, header_text, metadata_service, percent};
use crate::error::Result;
use headworks_outbound::Outbound;
use http::{HeaderMap, Request, StatusCode};
use std::path::{Path, PathBuf};

/// The folder with the secrets of Azure Arc on Linux.
const ARC_SECRETS: &str = "/var/opt/azcmagent/tokens";
/// The largest file with a secret of Azure Arc.
const MAX_SECRET: u64 = 4096;

/// A managed identity, and the service that has its tokens.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct ManagedIdentity {
    service: Service,
    /// The user-assigned identity; the system-assigned one without it.
    client: Option<String>,
}

#[derive(Clone, PartialEq, Eq)]
enum Service {
    /// The metadata service of a virtual machine, at this address.
    Machine(String),
    /// App Service, Functions and Container Apps: an address and the secret that it requires.
    App(String, String),
    /// Azure Arc: an address, and the folder with the secrets of its challenges.
    Arc(String, PathBuf),
}

impl ManagedIdentity {
    /// Returns the identity that the environment describes.
    pub(super) fn in_environment(get: &Environment) -> Option<ManagedIdentity> {
        let endpoint = get("IDENTITY_ENDPOINT")?;
        let service = match (get("IDENTITY_HEADER"), get("IMDS_ENDPOINT")) {
            (Some(secret), _) => Service::App(endpoint, secret),
            (None, Some(_)) => Service::Arc(endpoint, PathBuf::from(ARC_SECRETS)),
            (None, None) => return None,
        };
        let client = get("AZURE_CLIENT_ID");
        Some(ManagedIdentity { service, client })
    }

    /// Fetches a token.
    pub(super) async fn fetch(&self, outbound: &Outbound) -> Result<TokenResponse> {
        match &self.service {
            Service::Machine(base) => {
                let path = "/metadata/identity/oauth2/token";
                let address = self.address(&format!("{base}{path}"), "2018-02-01");
                let request = Request::get(&address).header("metadata", "true");
                let request = request.body(SegmentedBytes::default());
                fetch_token(outbound, &address, request).await
            }
            Service::App(endpoint, secret) => {
                let address = self.address(endpoint, "2019-08-01");
                let request = Request::get(&address).header("x-identity-header", secret);
                let request = request.body(SegmentedBytes::default());
                fetch_token(outbound, &address, request).await
            }
            Service::Arc(endpoint, folder) => {
                let address = self.address(endpoint, "2019-11-01");
                by_challenge(outbound, &address, folder).await
            }
        }
    }

    fn address(&self, endpoint: &str, version: &str) -> String {
        let resource = percent::encode(RESOURCE.as_bytes());
        let address = format!("{endpoint}?api-version={version}&resource={resource}");
        match &self.client {
            Some(client) => {
                let client = percent::encode(client.as_bytes());
                format!("{address}&client_id={client}")
            }
            None => address,
        }
    }
}

/// Returns the identity of this machine.
pub(super) fn imds(get: &Environment) -> ManagedIdentity {
    let base = get("AZURE_POD_IDENTITY_AUTHORITY_HOST");
    let base = base.unwrap_or_else(|| "http://169.254.169.254".to_owned());
    ManagedIdentity {
        service: Service::Machine(base.trim_end_matches('/').to_owned()),
        client: get("AZURE_CLIENT_ID"),
    }
}

/// Fetches a token from Azure Arc. Its first response names a file, whose content proves that this
/// process may read it.
async fn by_challenge(outbound: &Outbound, address: &str, folder: &Path) -> Result<TokenResponse> {
    let refused = |message: String| fail("fetch a token from", address, message);
    let send = async |authorization: Option<&str>| {
        let mut request = Request::get(address).header("metadata", "true");
        if let Some(authorization) = authorization {
            request = request.header("authorization", authorization);
        }
        let request = request.body(SegmentedBytes::default());
        let request = request.map_err(|error| refused(error.to_string()))?;
        let response = metadata_service::fetch_response(outbound, request).await;
        response.map_err(refused)
    };
    let (status, headers, body) = send(None).await?;
    if status != StatusCode::UNAUTHORIZED {
        return parse_token(address, status, &body);
    }
    let secret = read_secret(&headers, folder).map_err(refused)?;
    let (status, _, body) = send(Some(&format!("Basic {}", secret.trim()))).await?;
    parse_token(address, status, &body)
}

/// Reads the file that a challenge names. A program that took the place of the service must not be
/// able to have other files sent to it.
fn read_secret(challenge: &HeaderMap, folder: &Path) -> std::result::Result<String, String> {
    let challenge = header_text(challenge, "www-authenticate").unwrap_or_default();
    let path = challenge.strip_prefix("Basic realm=");
    let path = path.ok_or("the response does not name the file with its secret")?;
    let path = Path::new(path.trim_matches('"'));
    let is_key = path.extension().is_some_and(|extension| extension == "key");
    if path.parent() != Some(folder) || !is_key {
        let folder = folder.display();
        return Err(format!("the file with its secret is not a key in {folder}"));
    }
    let size = std::fs::metadata(path)
        .map_err(|error| error.to_string())?
        .len();
    if size > MAX_SECRET {
        return Err("the file with its secret is too large".to_owned());
    }
    std::fs::read_to_string(path).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cloud::test_server::{TestServer, ok, outbound};

    async fn arc(folder: PathBuf, named: PathBuf) -> (Result<TokenResponse>, TestServer) {
        let challenge = format!("www-authenticate: Basic realm={}\r\n", named.display());
        let challenge: &'static str = challenge.leak();
        let server = TestServer::start(move |request| match request.header("authorization") {
            "Basic proof" => ok(r#"{"access_token":"t","expires_in":"3599"}"#),
            _ => (401, challenge, String::new()),
        })
        .await;
        let identity = ManagedIdentity {
            service: Service::Arc(format!("{}/token", server.address), folder),
            client: None,
        };
        (identity.fetch(&outbound()).await, server)
    }

    #[tokio::test]
    async fn arc_is_shown_the_secret_that_it_names() {
        let dir = tempfile::tempdir().unwrap();
        let key = dir.path().join("x.key");
        std::fs::write(&key, "proof\n").unwrap();
        let (token, server) = arc(dir.path().to_owned(), key).await;
        assert_eq!(token.unwrap().access_token, "t");
        let received = server.received();
        assert!(received[0].line.contains("api-version=2019-11-01"));
        assert!(received.iter().all(|one| one.header("metadata") == "true"));
    }

    #[tokio::test]
    async fn arc_is_shown_no_other_file() {
        let (dir, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let write = |path: PathBuf, text: &str| {
            std::fs::write(&path, text).unwrap();
            path
        };
        for named in [
            write(other.path().join("x.key"), "proof"),
            write(dir.path().join("x.txt"), "proof"),
            write(dir.path().join("large.key"), &"proof".repeat(1000)),
            dir.path().join("..").join("x.key"),
        ] {
            let (token, server) = arc(dir.path().to_owned(), named.clone()).await;
            assert!(token.is_err(), "{named:?}");
            assert_eq!(server.received().len(), 1, "nothing is sent: {named:?}");
        }
    }
}
