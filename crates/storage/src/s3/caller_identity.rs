//! A signed request that proves who somebody is at AWS, for services that accept that.

use super::credentials::Credentials;
use super::sign::Signer;
use crate::cloud::{Call, Clients, Environment, percent};
use crate::error::{Error, ErrorKind, Result};
use http::{HeaderMap, HeaderValue, Method};
use std::sync::Arc;

/// A request for the identity of the caller (`GetCallerIdentity`).
pub(crate) struct CallerIdentity<'a> {
    pub(crate) url: &'a str,
    pub(crate) region: &'a str,
    /// The service that the request is for. It is part of the signature.
    pub(crate) target: &'a str,
}

impl CallerIdentity<'_> {
    /// Returns the signed request as Google's token service expects it. `metadata` is the address
    /// of the machine's metadata service, if it is not the usual one.
    pub(crate) async fn sign(
        &self,
        environment: &Environment,
        metadata: Option<String>,
        clients: Clients,
    ) -> Result<String> {
        let variables = environment.clone();
        let environment: Environment = Arc::new(move |name| match name {
            "AWS_EC2_METADATA_SERVICE_ENDPOINT" => variables(name).or_else(|| metadata.clone()),
            name => variables(name),
        });
        let (credentials, _) = Credentials::find(&environment, None, false, clients)?;
        let keys = credentials
            .keys()
            .await?
            .ok_or_else(|| self.fail("there are no keys"))?;
        let parts = self.url.split_once("://");
        let (_, rest) = parts.ok_or_else(|| self.fail("the address has no scheme"))?;
        let (before, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (host, path) = before.split_once('/').unwrap_or((before, ""));
        let labels = ("identity", "sign the request for", self.url.as_bytes());
        let mut call = Call::new(labels, Method::POST, "", format!("/{path}"));
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            call = call.query(name, value);
        }
        let date = jiff::Timestamp::now()
            .strftime("%Y%m%dT%H%M%SZ")
            .to_string();
        let mut headers = HeaderMap::new();
        let mut set = |name: &'static str, value: &str| {
            let value = HeaderValue::from_str(value);
            let value = value.map_err(|_| self.fail("a header has invalid characters"))?;
            headers.insert(name, value);
            Ok::<(), Error>(())
        };
        set("host", host)?;
        set("x-amz-date", &date)?;
        set("x-goog-cloud-target-resource", self.target)?;
        if let Some(token) = &keys.token {
            set("x-amz-security-token", token)?;
        }
        let signer = Signer {
            id: &keys.id,
            secret: &keys.secret,
            region: self.region,
            service: "sts",
        };
        let signed = signer.sign(&call, headers);
        let header = |(name, value): (&http::HeaderName, &HeaderValue)| {
            let value = String::from_utf8_lossy(value.as_bytes()).into_owned();
            serde_json::json!({"key": name.as_str(), "value": value})
        };
        let headers: Vec<_> = signed.iter().map(header).collect();
        let request = serde_json::json!({"url": self.url, "method": "POST", "headers": headers});
        Ok(percent::encode(request.to_string().as_bytes()))
    }

    fn fail(&self, message: &str) -> Error {
        let on = self.url.as_bytes();
        Error::new(ErrorKind::Denied, "sign the request for", on, message)
    }
}
