//! Impersonation: a token of one account is exchanged for one of a service account.

use super::{Context, CredentialsFile};
use crate::cloud::bearer;
use crate::cloud::token::{TokenResponse, fetch_token};
use crate::error::Result;
use http::Request;
use serde::Deserialize;

/// The scope of a token that may be exchanged for others.
pub(super) const EXCHANGE_SCOPE: &str = "https://www.googleapis.com/auth/cloud-platform";

/// The file of an impersonated service account.
#[derive(Deserialize)]
pub(super) struct ImpersonatedAccount {
    service_account_impersonation_url: String,
    source_credentials: Box<CredentialsFile>,
    #[serde(default)]
    delegates: Vec<String>,
}

impl ImpersonatedAccount {
    pub(super) async fn fetch(&self, scope: &str, context: &Context) -> Result<TokenResponse> {
        let source = self
            .source_credentials
            .fetch(EXCHANGE_SCOPE, context)
            .await?;
        let address = &self.service_account_impersonation_url;
        exchange(address, &source, (scope, &self.delegates, 3600), context).await
    }
}

/// Exchanges a token. The request has a scope, accounts to go by, and a life in seconds.
pub(super) async fn exchange(
    address: &str,
    source: &TokenResponse,
    (scope, delegates, life): (&str, &[String], u32),
    context: &Context,
) -> Result<TokenResponse> {
    let body = serde_json::json!({
        "scope": [scope], "delegates": delegates, "lifetime": format!("{life}s"),
    });
    let request = Request::post(address)
        .header("content-type", "application/json")
        .header(
            "authorization",
            bearer("the response", &source.access_token)?,
        )
        .body(body.to_string().into());
    fetch_token(&context.clients.proxied, address, request).await
}
