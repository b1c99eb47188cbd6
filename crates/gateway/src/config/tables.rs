//! The tables of the `[gateway]` section: classes, keys, tenants, upstreams and time rules.

use std::collections::BTreeMap;
use std::time::Duration;

use headworks_service::config::Secret;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::upstream::SuspendRule;

/// An upstream with every key. Those with a default have it; the others are commented.
pub(super) const UPSTREAM_EXAMPLE: &str = r#"[[gateway.upstream]]
name = "openai"
kind = "openai"
url = "https://api.openai.com"
api_key = "env:OPENAI_API_KEY"
models = ["gpt-*"]
# The defaults:
headers = {}
weight = 1
limit = []
first_byte_timeout = "10m"
idle_timeout = "2m"
retry_on_timeout = false
retry_on = []
fault_threshold = 5
suspend_for = "5s"
# Not set by default:
# pool = "openai"
# max_concurrent = 30
# max_rps = 50.0
# max_tokens_per_sec = 5000.0
# min_rps = 1.0
# min_tokens_per_sec = 100.0
# max_context_length = 128000
# For `kind = "echo"` only; the times are 0 by default:
# latency = "100ms"
# token_time = "10ms"
# tokens = 20"#;

/// Settings of one class that differ from the defaults.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct ClassSettings {
    /// Number of the class; 0 is the most urgent.
    pub level: u8,
    /// Longest wait of its requests.
    #[serde(with = "headworks_service::config::seconds")]
    pub queue_timeout: Option<Duration>,
    /// A request that has waited this long is granted next. This applies to at most one grant in
    /// four.
    #[serde(with = "headworks_service::config::seconds")]
    pub aging: Option<Duration>,
}

/// Owner and permissions of a key. Exactly one of `hash`, `prefix` and `pattern` selects the keys.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct KeySettings {
    /// Name by which the key is listed and revoked.
    pub id: String,
    /// SHA-256 of the key, in hexadecimal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hash: Option<String>,
    /// Selects every key that begins with this text. It is a secret: everybody who knows it is
    /// admitted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prefix: Option<Secret>,
    /// Selects every key that matches this pattern, in which `*` matches any text. It is a secret.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pattern: Option<Secret>,
    /// Tenant that the key belongs to.
    pub tenant: String,
    /// Class of its requests. Default: `default_class`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub class: Option<u8>,
    /// The most urgent class that its requests may choose. Default: `class`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_class: Option<u8>,
    /// Models that it may use; `*` matches any text. Default: all models.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub models: Vec<String>,
    /// Time from which it is refused, such as "2027-01-01T00:00:00Z". Default: never.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires: Option<Timestamp>,
}

/// Share, limits and quotas of a tenant. A limit that is not set does not apply.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct TenantSettings {
    /// Name of the tenant, as in its keys.
    pub name: String,
    /// Weight of its share within a class. Default: 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weight: Option<u32>,
    /// Concurrent requests at the upstreams.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_concurrent: Option<u32>,
    /// Requests started per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_rps: Option<f64>,
    /// Tokens started per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_tokens_per_sec: Option<f64>,
    /// Token quota per calendar day.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens_per_day: Option<u64>,
    /// Token quota per calendar month.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens_per_month: Option<u64>,
}

impl TenantSettings {
    /// The fields that [`changed`](Self::changed) can change.
    pub const FIELDS: [&str; 6] = [
        "weight",
        "max_concurrent",
        "max_rps",
        "max_tokens_per_sec",
        "tokens_per_day",
        "tokens_per_month",
    ];

    /// These settings with some of them changed. A value sets a field, `null` removes it, and a
    /// field that is not named stays: a change of one limit must not lift the others.
    ///
    /// # Errors
    /// The first field that does not exist, or the error of a value.
    pub fn changed(&self, changes: &Map<String, Value>) -> Result<TenantSettings, String> {
        let unknown = |field: &&String| !Self::FIELDS.contains(&field.as_str());
        if let Some(field) = changes.keys().find(unknown) {
            let fields = Self::FIELDS.join(", ");
            return Err(format!("unknown field `{field}`: expected one of {fields}"));
        }
        let mut settings = serde_json::to_value(self).map_err(|error| error.to_string())?;
        for (field, value) in changes {
            settings[field] = value.clone();
        }
        serde_json::from_value(settings).map_err(|error| error.to_string())
    }
}

/// API that an upstream speaks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Kind {
    /// OpenAI's API or a compatible one.
    #[default]
    Openai,
    /// Anthropic's API.
    Anthropic,
    /// No upstream: the gateway answers itself, for tests and demonstrations.
    Echo,
}

/// Settings of one upstream.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct UpstreamSettings {
    /// Name in logs, metrics and statistics.
    pub name: String,
    /// API that it speaks: "openai", "anthropic" or "echo".
    pub kind: Kind,
    /// Base URL, such as `https://api.openai.com`. A path replaces `/v1`, and a query is sent with
    /// every request. The URL appears in logs and statistics: put keys into `api_key` or `headers`.
    pub url: String,
    /// API key of the upstream: "env:NAME", "file:PATH", or the key itself.
    pub api_key: Option<Secret>,
    /// Headers to send with every request: "env:NAME", "file:PATH", or the value itself. The values
    /// are secrets.
    pub headers: BTreeMap<String, Secret>,
    /// Models that it serves; `*` matches any text. Default: all models.
    pub models: Vec<String>,
    /// Capacity pool that it belongs to. Upstreams of a pool share their limits, of which the
    /// tightest holds. Default: shared by the entries of both APIs that have the same server,
    /// models and key.
    pub pool: Option<String>,
    /// Weight of its share of the requests that several upstreams can serve.
    pub weight: u32,
    /// Concurrent requests.
    pub max_concurrent: Option<u32>,
    /// Requests started per second. Also the upper bound of the learned rate.
    pub max_rps: Option<f64>,
    /// Tokens started per second. Also the upper bound of the learned rate.
    pub max_tokens_per_sec: Option<f64>,
    /// Lower bound of the learned request rate. Without it, the request rate is not learned.
    pub min_rps: Option<f64>,
    /// Lower bound of the learned token rate. Without it, the token rate is not learned.
    pub min_tokens_per_sec: Option<f64>,
    /// Largest number of tokens of one request.
    pub max_context_length: Option<u64>,
    /// Models with separate limits.
    pub limit: Vec<ModelLimits>,
    /// Longest time until the response begins.
    #[serde(with = "headworks_service::config::seconds")]
    pub first_byte_timeout: Duration,
    /// Longest pause in the middle of a response.
    #[serde(with = "headworks_service::config::seconds")]
    pub idle_timeout: Duration,
    /// Whether a request is tried at another upstream after a timeout. The response may then be
    /// generated twice.
    pub retry_on_timeout: bool,
    /// Further status codes after which a request is tried at another upstream, besides 429 and
    /// 503, such as [500, 502, 529]. The response may then be generated twice.
    pub retry_on: Vec<u16>,
    /// Number of faults in a row that suspend it; 0 for never. Failed connections count for the
    /// whole upstream, error responses for one model and over distinct requests.
    pub fault_threshold: u32,
    /// Duration of a suspension after faults, and after an overload response without `Retry-After`.
    #[serde(with = "headworks_service::config::seconds")]
    pub suspend_for: Duration,
    /// Echo only: time until the response begins.
    #[serde(with = "headworks_service::config::millis")]
    pub latency: Duration,
    /// Echo only: time per token.
    #[serde(with = "headworks_service::config::millis")]
    pub token_time: Duration,
    /// Echo only: number of tokens of the response. Default: the words of the prompt.
    pub tokens: Option<u64>,
}

impl Default for UpstreamSettings {
    fn default() -> Self {
        UpstreamSettings {
            name: String::new(),
            kind: Kind::Openai,
            url: String::new(),
            api_key: None,
            headers: BTreeMap::new(),
            models: Vec::new(),
            pool: None,
            weight: 1,
            max_concurrent: None,
            max_rps: None,
            max_tokens_per_sec: None,
            min_rps: None,
            min_tokens_per_sec: None,
            max_context_length: None,
            limit: Vec::new(),
            first_byte_timeout: Duration::from_secs(600),
            idle_timeout: Duration::from_secs(120),
            retry_on_timeout: false,
            retry_on: Vec::new(),
            fault_threshold: 5,
            suspend_for: Duration::from_secs(5),
            latency: Duration::ZERO,
            token_time: Duration::ZERO,
            tokens: None,
        }
    }
}

/// Separate limits for some models of an upstream. Requests for these models do not count against
/// the limits of the upstream, because providers limit each model by itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct ModelLimits {
    /// The models; `*` matches any text. The first entry that matches a model applies.
    pub models: Vec<String>,
    /// Concurrent requests for all of these models together.
    pub max_concurrent: Option<u32>,
    /// Requests started per second. Also the upper bound of the learned rate.
    pub max_rps: Option<f64>,
    /// Tokens started per second. Also the upper bound of the learned rate.
    pub max_tokens_per_sec: Option<f64>,
    /// As in [`UpstreamSettings::min_rps`].
    pub min_rps: Option<f64>,
    /// As in [`UpstreamSettings::min_tokens_per_sec`].
    pub min_tokens_per_sec: Option<f64>,
    /// Largest number of tokens of one request.
    pub max_context_length: Option<u64>,
}

impl UpstreamSettings {
    /// Splits the upstream into scheduler targets: one for each entry of `limit`, named
    /// `upstream/models`, and one for all other models.
    pub(crate) fn scheduler_targets(&self) -> impl Iterator<Item = UpstreamSettings> {
        let apart = self.limit.iter().map(|limit| UpstreamSettings {
            name: format!("{}/{}", self.name, limit.models.join(",")),
            max_concurrent: limit.max_concurrent,
            max_rps: limit.max_rps,
            max_tokens_per_sec: limit.max_tokens_per_sec,
            min_rps: limit.min_rps,
            min_tokens_per_sec: limit.min_tokens_per_sec,
            max_context_length: limit.max_context_length,
            ..self.clone()
        });
        apart.chain([self.clone()])
    }

    /// When faults suspend it, and for how long.
    pub(crate) fn suspend_rule(&self) -> SuspendRule {
        SuspendRule {
            threshold: self.fault_threshold,
            suspend_for: self.suspend_for,
        }
    }

    /// The upstream that is used if none is configured.
    #[must_use]
    pub fn echo() -> Self {
        UpstreamSettings {
            name: "echo".to_owned(),
            kind: Kind::Echo,
            models: vec!["echo".to_owned()],
            ..UpstreamSettings::default()
        }
    }
}

/// A time rule: settings that differ at certain times.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct RuleSettings {
    /// Name in logs and statistics.
    pub name: String,
    /// Days on which it begins: "mon" to "sun". Default: every day.
    pub days: Vec<String>,
    /// Time at which it begins, such as "22:00". Default: midnight.
    pub from: String,
    /// Time at which it ends, on the next day unless it is after `from`. Default: midnight.
    pub to: String,
    /// Time zone of `days`, `from` and `to`. Default: `time_zone`.
    pub zone: String,
    /// Replaces `scheduler_weights`.
    pub weights: Vec<u32>,
    /// Replaces `scheduler_max_concurrent`.
    pub max_concurrent: Option<u32>,
    /// Replaces `scheduler_max_rps`.
    pub max_rps: Option<f64>,
    /// Replaces `scheduler_max_tokens_per_sec`.
    pub max_tokens_per_sec: Option<f64>,
    /// Settings of single tenants that are replaced while the rule is in force.
    pub tenant: Vec<TenantRule>,
}

/// Settings of a tenant that a time rule replaces.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct TenantRule {
    /// Name of the tenant.
    pub name: String,
    /// Replaces its `weight`.
    pub weight: Option<u32>,
    /// Replaces its `max_concurrent`.
    pub max_concurrent: Option<u32>,
    /// Replaces its `max_rps`.
    pub max_rps: Option<f64>,
    /// Replaces its `max_tokens_per_sec`.
    pub max_tokens_per_sec: Option<f64>,
}

#[cfg(test)]
mod tests {
    use headworks_service::config::{Schema, Sources};

    use super::*;
    use crate::GatewayConfig;

    fn load(text: &str) -> UpstreamSettings {
        let schema = Schema::new().with::<GatewayConfig>();
        let loaded = schema.load(&Sources::new().text("example.toml", text.to_owned()));
        let loaded = loaded.unwrap_or_else(|problems| panic!("{problems}"));
        loaded.section::<GatewayConfig>().upstream[0].clone()
    }

    #[test]
    fn the_example_of_an_upstream_has_every_key_with_its_default() {
        let keys = serde_json::to_value(UpstreamSettings::default()).unwrap();
        for key in keys.as_object().unwrap().keys() {
            let is_shown = |line: &str| {
                line.trim_start_matches("# ")
                    .starts_with(&format!("{key} = "))
            };
            assert!(UPSTREAM_EXAMPLE.lines().any(is_shown), "{key} is missing");
        }
        let example = UPSTREAM_EXAMPLE.replace("env:OPENAI_API_KEY", "a key");
        let defaults = UpstreamSettings {
            name: "openai".into(),
            url: "https://api.openai.com".into(),
            api_key: Some("a key".into()),
            models: vec!["gpt-*".into()],
            ..UpstreamSettings::default()
        };
        assert_eq!(load(&example), defaults);
        // The commented keys can be used as they are.
        let mut all = String::new();
        for line in example.lines() {
            let is_key = line.starts_with("# ") && line.contains(" = ") && !line.ends_with(':');
            all += if is_key { &line[2..] } else { line };
            all += "\n";
        }
        let all = load(&all);
        assert_eq!((all.max_concurrent, all.tokens), (Some(30), Some(20)));
    }
}
