//! Workload identity federation: a token of another identity provider, or a request that AWS would
//! accept, is exchanged for one of Google.

use super::account::post_form;
use super::impersonation::{EXCHANGE_SCOPE, exchange};
use super::{Context, fail};
use crate::cloud::token::TokenResponse;
use crate::cloud::{SegmentedBytes, metadata_service};
use crate::error::Result;
use crate::s3::CallerIdentity;
use http::Request;
use serde::Deserialize;
use std::collections::BTreeMap;

/// The file of an external account.
#[derive(Deserialize)]
pub(super) struct ExternalAccount {
    audience: String,
    subject_token_type: String,
    token_url: String,
    credential_source: CredentialSource,
    service_account_impersonation_url: Option<String>,
    #[serde(default)]
    service_account_impersonation: Impersonation,
    workforce_pool_user_project: Option<String>,
}

#[derive(Default, Deserialize)]
struct Impersonation {
    token_lifetime_seconds: Option<u32>,
}

/// The source of the other provider's token.
#[derive(Deserialize)]
#[serde(untagged)]
enum CredentialSource {
    File {
        file: String,
        #[serde(default)]
        format: Format,
    },
    Aws {
        environment_id: String,
        region_url: Option<String>,
        url: Option<String>,
        regional_cred_verification_url: String,
    },
    Url {
        url: String,
        #[serde(default)]
        headers: BTreeMap<String, String>,
        #[serde(default)]
        format: Format,
    },
}

/// The form of the token: plain text, or a field of JSON.
#[derive(Default, Deserialize)]
struct Format {
    #[serde(rename = "type", default)]
    kind: String,
    #[serde(default)]
    subject_token_field_name: String,
}

impl Format {
    fn token(&self, from: &str, text: &[u8]) -> Result<String> {
        let refused = |message| fail("read the token", from, message);
        if self.kind != "json" {
            let text = std::str::from_utf8(text).map_err(|_| refused("the token is not text"))?;
            return Ok(text.trim().to_owned());
        }
        let json = serde_json::from_slice::<serde_json::Value>(text).ok();
        let token = json
            .as_ref()
            .and_then(|json| json.get(&self.subject_token_field_name)?.as_str());
        let token = token.ok_or_else(|| refused("there is no token in its JSON"))?;
        Ok(token.to_owned())
    }
}

impl ExternalAccount {
    pub(super) async fn fetch(&self, scope: &str, context: &Context) -> Result<TokenResponse> {
        let impersonation = self.service_account_impersonation_url.as_deref();
        let first_scope = if impersonation.is_some() {
            EXCHANGE_SCOPE
        } else {
            scope
        };
        let kind = |name: &str| format!("urn:ietf:params:oauth:{name}");
        let mut fields = vec![
            ("grant_type", kind("grant-type:token-exchange")),
            ("requested_token_type", kind("token-type:access_token")),
            ("audience", self.audience.clone()),
            ("scope", first_scope.to_owned()),
            ("subject_token_type", self.subject_token_type.clone()),
            ("subject_token", self.subject_token(context).await?),
        ];
        if let Some(project) = &self.workforce_pool_user_project {
            let options = serde_json::json!({"userProject": project});
            fields.push(("options", options.to_string()));
        }
        let token = post_form(context, &self.token_url, &fields).await?;
        let Some(address) = impersonation else {
            return Ok(token);
        };
        let life = self.service_account_impersonation.token_lifetime_seconds;
        exchange(address, &token, (scope, &[], life.unwrap_or(3600)), context).await
    }

    async fn subject_token(&self, context: &Context) -> Result<String> {
        match &self.credential_source {
            CredentialSource::File { file, format } => {
                // Read every time: its owner replaces it before it expires.
                let text = std::fs::read(file);
                let text = text.map_err(|error| fail("read the token", file, error.to_string()))?;
                format.token(file, &text)
            }
            CredentialSource::Url {
                url,
                headers,
                format,
            } => format.token(url, &get(context, url, headers).await?),
            CredentialSource::Aws {
                environment_id,
                region_url,
                url,
                regional_cred_verification_url,
            } => {
                if environment_id != "aws1" {
                    let message = "this version of the AWS environment is not supported";
                    return Err(fail("use the credentials of", environment_id, message));
                }
                let region = region(context, region_url.as_deref()).await?;
                let identity = CallerIdentity {
                    url: &regional_cred_verification_url.replace("{region}", &region),
                    region: &region,
                    target: &self.audience,
                };
                let metadata = url.as_deref().and_then(origin);
                let clients = context.clients.clone();
                identity.sign(&context.environment, metadata, clients).await
            }
        }
    }
}

/// Returns scheme and host of an address.
fn origin(url: &str) -> Option<String> {
    let (scheme, rest) = url.split_once("://")?;
    let host = rest.split('/').next()?;
    Some(format!("{scheme}://{host}"))
}

/// Returns the region of this machine at AWS.
async fn region(context: &Context, url: Option<&str>) -> Result<String> {
    let get_variable = &context.environment;
    if let Some(region) = get_variable("AWS_REGION").or_else(|| get_variable("AWS_DEFAULT_REGION"))
    {
        return Ok(region);
    }
    let Some(url) = url else {
        let message = "set AWS_REGION";
        return Err(fail("find the region of", "this machine", message));
    };
    let mut headers = BTreeMap::new();
    if let Some(token) = crate::s3::metadata_token(&context.clients.direct, url).await {
        headers.insert("x-aws-ec2-metadata-token".to_owned(), token);
    }
    let zone = get(context, url, &headers).await?;
    let zone = String::from_utf8_lossy(&zone).trim().to_owned();
    // The service has the zone, such as `eu-north-1a`.
    let region = zone.strip_suffix(|end: char| end.is_ascii_lowercase());
    Ok(region.unwrap_or(&zone).to_owned())
}

async fn get(context: &Context, url: &str, headers: &BTreeMap<String, String>) -> Result<Vec<u8>> {
    let refused = |message: String| fail("fetch a token from", url, message);
    let mut request = Request::get(url);
    for (name, value) in headers {
        request = request.header(name, value);
    }
    let request = request.body(SegmentedBytes::default());
    let request = request.map_err(|error| refused(error.to_string()))?;
    // Metadata services speak plain HTTP and are not behind a proxy.
    let client = match url.starts_with("https://") {
        true => &context.clients.proxied,
        false => &context.clients.direct,
    };
    let response = metadata_service::fetch(client, request).await;
    let (status, body) = response.map_err(refused)?;
    match status.is_success() {
        true => Ok(body.to_vec()),
        false => Err(refused(format!("the response is {status}"))),
    }
}
