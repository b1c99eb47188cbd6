//! A client for the admin listener of a running instance.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use headworks_service::admin::AdminConfig;
use headworks_service::outbound::{Outbound, OutboundConfig};
use headworks_service::panel::{Explanation, PanelList};
use http::header::AUTHORIZATION;
use http::{Request, StatusCode, Uri};
use http_body_util::{BodyExt, Empty, Limited};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::applications::schema;
use crate::arguments::Common;
use crate::overrides;
use crate::report::UsageError;

const TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum size of a response.
const MAX_RESPONSE: usize = 64 << 20;

/// A running instance, identified by its admin listener.
pub(super) struct Instance {
    outbound: Outbound,
    base: String,
    token: String,
}

impl Instance {
    /// Resolves `address`, or the instance that the configuration and the environment name.
    pub(super) fn find(address: Option<&str>, common: &Common) -> Result<Instance> {
        let (base, token) = match address {
            Some(address) => split(address)?,
            None => (None, None),
        };
        let (base, token) = match (base, token) {
            (Some(base), Some(token)) => (base, token),
            (base, token) => configured(base, token, common)?,
        };
        // The instance usually runs on this machine, which no proxy reaches.
        let mut config = OutboundConfig::default();
        config.proxy_from_environment = false;
        Ok(Instance {
            outbound: Outbound::new(&config)?,
            base,
            token,
        })
    }

    /// Fetches all panels.
    pub(super) async fn panels(&self) -> Result<PanelList> {
        self.read("/admin/panels").await
    }

    /// Fetches the explanation of `subject` from an application.
    pub(super) async fn explain(&self, application: &str, subject: &str) -> Result<Explanation> {
        let path = format!("/admin/panels/{application}/explain/{subject}");
        self.read(&path).await
    }

    async fn read<T: DeserializeOwned>(&self, path: &str) -> Result<T> {
        let asked = tokio::time::timeout(TIMEOUT, self.fetch(path)).await;
        let asked = asked.with_context(|| format!("{} did not respond in time", self.base))?;
        Ok(serde_json::from_slice(&asked?)?)
    }

    async fn fetch(&self, path: &str) -> Result<Vec<u8>> {
        let request = Request::get(format!("{}{path}", self.base))
            .header(AUTHORIZATION, format!("Bearer {}", self.token))
            .body(Empty::new())?;
        let lost = || {
            format!(
                "cannot connect to {}: is `headworks up` running?",
                self.base
            )
        };
        let answer = self.outbound.send(request).await.with_context(lost)?;
        let status = answer.status();
        if status == StatusCode::UNAUTHORIZED {
            bail!("invalid token: use the address that `headworks up` printed last");
        }
        let body = Limited::new(answer.into_body(), MAX_RESPONSE)
            .collect()
            .await;
        let body = body.map_err(|cause| anyhow::anyhow!("the response was cut off: {cause}"))?;
        let body = body.to_bytes().to_vec();
        if !status.is_success() {
            let problem: Value = serde_json::from_slice(&body).unwrap_or_default();
            match problem["error"].as_str() {
                Some(words) => bail!("{} answered: {words}", self.base),
                None => bail!("{}{path} answered {status}", self.base),
            }
        }
        Ok(body)
    }
}

/// Splits an address into its base and the token in its query.
fn split(address: &str) -> Result<(Option<String>, Option<String>)> {
    let wrong = || {
        UsageError(format!(
            "`{address}` is not an address such as http://127.0.0.1:7070"
        ))
    };
    let uri: Uri = address.parse().map_err(|_| wrong())?;
    let (Some(scheme), Some(host)) = (uri.scheme_str(), uri.authority()) else {
        return Err(wrong().into());
    };
    let pairs = uri.query().unwrap_or_default().split('&');
    let token = pairs.filter_map(|pair| pair.strip_prefix("token=")).next();
    Ok((Some(format!("{scheme}://{host}")), token.map(str::to_owned)))
}

/// Fills in what the address lacks, from the configuration and `HEADWORKS_TOKEN`.
fn configured(
    base: Option<String>,
    token: Option<String>,
    common: &Common,
) -> Result<(String, String)> {
    let sources = overrides::sources(common)?;
    let config = schema().load(&sources)?.section::<AdminConfig>();
    let named = std::env::var("HEADWORKS_TOKEN").ok();
    let token = token
        .or(named.filter(|token| !token.is_empty()))
        .or(config.token.as_ref().map(|token| token.reveal().to_owned()));
    let Some(token) = token else {
        let text = "no token given: use the address that `headworks up` printed, or set $HEADWORKS_TOKEN or `admin.token`";
        return Err(UsageError(text.to_owned()).into());
    };
    Ok((
        base.unwrap_or_else(|| format!("http://{}", config.listen)),
        token,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_as_up_prints_it_is_taken_apart() {
        let (base, token) = split("http://127.0.0.1:7070/?token=abc").unwrap();
        assert_eq!(base.as_deref(), Some("http://127.0.0.1:7070"));
        assert_eq!(token.as_deref(), Some("abc"));
        assert_eq!(split("http://[::1]:70").unwrap().1, None);
        assert!(split("nonsense").is_err());
    }
}
