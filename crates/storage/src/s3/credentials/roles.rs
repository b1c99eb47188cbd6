//! Temporary keys: for a web identity, of a container, of a machine.

use super::{AccessKeys, fail, no_credentials, seconds};
use crate::cloud::{SegmentedBytes, metadata_service, percent, xml};
use crate::error::Result;
use headworks_outbound::Outbound;
use http::{Method, Request};
use serde::Deserialize;

async fn fetch(
    outbound: &Outbound,
    method: Method,
    address: &str,
    headers: &[(&str, &str)],
) -> Result<Vec<u8>> {
    let refused = |message: String| fail("fetch credentials from", without_query(address), message);
    let mut request = Request::builder().method(method).uri(address);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request
        .body(SegmentedBytes::default())
        .map_err(|e| refused(e.to_string()))?;
    let (status, body) = metadata_service::fetch(outbound, request)
        .await
        .map_err(refused)?;
    match status.is_success() {
        true => Ok(body.to_vec()),
        false => {
            let reason = xml::find(&body, "Message").unwrap_or_default();
            Err(refused(format!("the response is {status} {reason}")))
        }
    }
}

/// Returns the address without its query, which contains a token.
fn without_query(address: &str) -> &str {
    address.split('?').next().unwrap_or_default()
}

/// The response of a container's or a machine's credential service.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct RoleCredentials {
    access_key_id: String,
    secret_access_key: String,
    token: Option<String>,
    expiration: Option<String>,
}

fn parse_role_credentials(from: &str, json: &[u8]) -> Result<AccessKeys> {
    // The parser's error would repeat the content.
    let lent: RoleCredentials = serde_json::from_slice(json).map_err(|_| {
        fail(
            "fetch credentials from",
            from,
            "the response contains no keys",
        )
    })?;
    Ok(AccessKeys {
        id: lent.access_key_id,
        secret: lent.secret_access_key,
        token: lent.token,
        expires: lent.expiration.as_deref().and_then(seconds),
    })
}

/// A token in a file, which a service exchanges for the keys of a role.
#[derive(Clone, Debug)]
pub(super) struct WebIdentity {
    file: String,
    role: String,
    session: String,
    service: String,
}

impl WebIdentity {
    pub(super) fn new(
        file: String,
        role: String,
        session: Option<String>,
        service: String,
    ) -> Self {
        WebIdentity {
            file,
            role,
            session: session.unwrap_or_else(|| "headworks".to_owned()),
            service,
        }
    }

    #[cfg(test)]
    pub(super) fn service(&self) -> &str {
        &self.service
    }

    pub(super) async fn fetch(&self, outbound: &Outbound) -> Result<AccessKeys> {
        // Read every time: its owner replaces it before it expires.
        let token = std::fs::read_to_string(&self.file)
            .map_err(|error| fail("read the web identity", &self.file, error.to_string()))?;
        let encode = |text: &str| percent::encode(text.as_bytes());
        let address = format!(
            "{}/?Action=AssumeRoleWithWebIdentity&Version=2011-06-15&RoleArn={}&RoleSessionName={}&WebIdentityToken={}",
            self.service.trim_end_matches('/'),
            encode(&self.role),
            encode(&self.session),
            encode(token.trim()),
        );
        let answer = fetch(outbound, Method::POST, &address, &[]).await?;
        let find = |name: &str| xml::find(&answer, name);
        let (Some(id), Some(secret)) = (find("AccessKeyId"), find("SecretAccessKey")) else {
            let message = "the response contains no keys";
            return Err(fail("fetch credentials from", &self.service, message));
        };
        Ok(AccessKeys {
            id,
            secret,
            token: find("SessionToken"),
            expires: find("Expiration").as_deref().and_then(seconds),
        })
    }
}

/// The credential service of a container.
#[derive(Clone)]
pub(super) struct Container {
    address: String,
    authorization: Option<String>,
    authorization_file: Option<String>,
}

impl std::fmt::Debug for Container {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Container({})", self.address)
    }
}

impl Container {
    pub(super) fn find(get: &dyn Fn(&str) -> Option<String>) -> Option<Container> {
        let relative = get("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI");
        let address = relative
            .map(|path| format!("http://169.254.170.2{path}"))
            .or_else(|| get("AWS_CONTAINER_CREDENTIALS_FULL_URI"))?;
        Some(Container {
            address,
            authorization: get("AWS_CONTAINER_AUTHORIZATION_TOKEN"),
            authorization_file: get("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"),
        })
    }

    pub(super) async fn fetch(&self, outbound: &Outbound) -> Result<AccessKeys> {
        let from_file = self.authorization_file.as_ref();
        let from_file = from_file.and_then(|file| std::fs::read_to_string(file).ok());
        let authorization = from_file.or_else(|| self.authorization.clone());
        let authorization = authorization.as_deref().map(str::trim);
        let headers: Vec<_> = authorization
            .map(|value| ("authorization", value))
            .into_iter()
            .collect();
        let json = fetch(outbound, Method::GET, &self.address, &headers).await?;
        parse_role_credentials(&self.address, &json)
    }
}

/// Returns a token for the second version of the metadata service at the origin of `url`, if it
/// issues any.
pub(crate) async fn metadata_token(outbound: &Outbound, url: &str) -> Option<String> {
    let (scheme, rest) = url.split_once("://")?;
    let host = rest.split('/').next()?;
    let address = format!("{scheme}://{host}/latest/api/token");
    let life = [("x-aws-ec2-metadata-token-ttl-seconds", "21600")];
    let token = fetch(outbound, Method::PUT, &address, &life).await.ok()?;
    Some(String::from_utf8_lossy(&token).trim().to_owned())
}

/// Fetches the keys of the machine's role from its metadata service: version 2, or version 1 if it
/// issues no token.
pub(super) async fn instance(outbound: &Outbound, base: &str) -> Result<AccessKeys> {
    let base = base.trim_end_matches('/');
    let token = metadata_token(outbound, base).await;
    let token = token
        .as_deref()
        .map(|token| ("x-aws-ec2-metadata-token", token));
    let headers: Vec<_> = token.into_iter().collect();
    let roles = format!("{base}/latest/meta-data/iam/security-credentials/");
    // Outside of EC2 nothing responds, and that is not what the user needs to know.
    let Ok(role) = fetch(outbound, Method::GET, &roles, &headers).await else {
        return Err(no_credentials());
    };
    let role = String::from_utf8_lossy(&role).into_owned();
    let Some(role) = role.lines().next().filter(|role| !role.is_empty()) else {
        return Err(no_credentials());
    };
    let address = format!("{roles}{role}");
    let json = fetch(outbound, Method::GET, &address, &headers).await?;
    parse_role_credentials(&address, &json)
}
