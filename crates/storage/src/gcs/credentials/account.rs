//! Service accounts with a key, and users with a refresh token.

use super::{Context, fail};
use crate::cloud::token::{TokenResponse, fetch_response, fetch_token, parse_token};
use crate::cloud::{SegmentedBytes, percent};
use crate::error::Result;
use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use bytes::Bytes;
use http::{HeaderMap, Method, Request, StatusCode};
use jiff::Timestamp;
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject;
use serde::Deserialize;

const TOKEN_URL: &str = "https://oauth2.googleapis.com/token";

/// The file of a service account or a user.
#[derive(Deserialize)]
pub(super) struct Account {
    client_email: Option<String>,
    private_key: Option<String>,
    private_key_id: Option<String>,
    token_uri: Option<String>,
    client_id: Option<String>,
    client_secret: Option<String>,
    refresh_token: Option<String>,
    project_id: Option<String>,
}

impl Account {
    pub(super) fn project(&self) -> Option<&str> {
        self.project_id.as_deref()
    }

    fn address(&self) -> &str {
        self.token_uri.as_deref().unwrap_or(TOKEN_URL)
    }

    /// Fetches a token for a service account, whose key signs the request.
    pub(super) async fn by_key(&self, scope: &str, context: &Context) -> Result<TokenResponse> {
        let signed = context.clock.now();
        let (mut status, headers, mut body) = self.post_assertion(scope, context, signed).await?;
        // An assertion of another hour is refused like one with a wrong key.
        let is_refused = error_code(&body) == "invalid_grant";
        if is_refused && context.clock.correct_since(signed, &headers) {
            let signed = context.clock.now();
            (status, _, body) = self.post_assertion(scope, context, signed).await?;
        }
        parse_token(self.address(), status, &body)
    }

    async fn post_assertion(
        &self,
        scope: &str,
        context: &Context,
        signed: Timestamp,
    ) -> Result<(StatusCode, HeaderMap, Bytes)> {
        let grant = "urn:ietf:params:oauth:grant-type:jwt-bearer".to_owned();
        let assertion = self.assertion(self.address(), scope, signed.as_second())?;
        let fields = [("grant_type", grant), ("assertion", assertion)];
        let request = form_request(self.address(), &fields);
        fetch_response(&context.clients.proxied, self.address(), request).await
    }

    /// Fetches a token for a user.
    pub(super) async fn by_refresh_token(&self, context: &Context) -> Result<TokenResponse> {
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        let fields = [
            ("grant_type", "refresh_token".to_owned()),
            ("client_id", text(&self.client_id)),
            ("client_secret", text(&self.client_secret)),
            ("refresh_token", text(&self.refresh_token)),
        ];
        post_form(context, self.address(), &fields).await
    }

    /// Returns a JWT that identifies the account, signed with its key.
    fn assertion(&self, audience: &str, scope: &str, now: i64) -> Result<String> {
        let email = self.client_email.as_deref().unwrap_or_default();
        let key = self.private_key.as_deref().unwrap_or_default();
        let fail = |message: &str| fail("use the key of", email, message);
        let header = serde_json::json!({"alg": "RS256", "typ": "JWT", "kid": self.private_key_id});
        let claims = serde_json::json!({
            "iss": email, "scope": scope, "aud": audience, "iat": now, "exp": now + 3600,
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

/// Requests a token with a form.
pub(super) async fn post_form(
    context: &Context,
    address: &str,
    fields: &[(&str, String)],
) -> Result<TokenResponse> {
    let request = form_request(address, fields);
    fetch_token(&context.clients.proxied, address, request).await
}

fn form_request(address: &str, fields: &[(&str, String)]) -> http::Result<Request<SegmentedBytes>> {
    Request::builder()
        .method(Method::POST)
        .uri(address)
        .header("content-type", "application/x-www-form-urlencoded")
        .body(percent::form(fields).into())
}

/// Returns the code of an error response.
fn error_code(body: &[u8]) -> String {
    let json = serde_json::from_slice::<serde_json::Value>(body).ok();
    let code = json.as_ref().and_then(|json| json.get("error")?.as_str());
    code.unwrap_or_default().to_owned()
}
