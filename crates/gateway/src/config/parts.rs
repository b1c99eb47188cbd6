//! The lists of the section: classes, keys, tenants, upstreams, time rules.

use std::collections::BTreeMap;
use std::time::Duration;

use headworks_service::config::Secret;
use serde::{Deserialize, Serialize};

/// A class that differs from the others.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct ClassSettings {
    /// Which: 0 is the most urgent.
    pub level: u8,
    /// How long its requests may wait.
    #[serde(with = "headworks_service::config::seconds")]
    pub queue_timeout: Option<Duration>,
    /// A request that waited so long goes next, at most one grant in four.
    #[serde(with = "headworks_service::config::seconds")]
    pub aging: Option<Duration>,
}

/// Whose a key is, and what it may do. Exactly one of `hash`, `prefix` and `pattern` says which
/// keys are meant.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct KeySettings {
    /// A name to list and revoke it by.
    pub id: String,
    /// SHA-256 of the key, in hex.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hash: Option<String>,
    /// Every key that begins with this. Never shown: it admits everybody who knows it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prefix: Option<Secret>,
    /// Every key that looks like this, where `*` stands for anything. Never shown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pattern: Option<Secret>,
    /// Whose it is.
    pub tenant: String,
    /// The class of its requests; without one, `default_class`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub class: Option<u8>,
    /// The most urgent class that it may ask for; without one, its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_class: Option<u8>,
    /// The models it may use, where `*` stands for anything; without any, all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub models: Vec<String>,
}

/// A tenant's share, limits and quotas. What is not given is not limited.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct TenantSettings {
    /// As keys name it.
    pub name: String,
    /// Its share inside a class; without one, 1.
    pub weight: Option<u32>,
    /// Requests at the upstreams at once.
    pub max_concurrent: Option<u32>,
    /// Requests started in a second.
    pub max_rps: Option<f64>,
    /// Tokens started in a second.
    pub max_tokens_per_sec: Option<f64>,
    /// Tokens in a calendar day.
    pub tokens_per_day: Option<u64>,
    /// Tokens in a calendar month.
    pub tokens_per_month: Option<u64>,
}

/// What an upstream speaks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Kind {
    /// OpenAI's API, or one that is compatible with it.
    #[default]
    Openai,
    /// Anthropic's API.
    Anthropic,
    /// None: the gateway itself answers, to try things with.
    Echo,
}

/// One upstream.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct UpstreamSettings {
    /// Its name in logs, metrics and statistics.
    pub name: String,
    /// What it speaks: "openai", "anthropic" or "echo".
    pub kind: Kind,
    /// Its address, such as `https://api.openai.com`; a path replaces `/v1`, and a query is sent
    /// with every request. It is shown: put keys into `api_key` or `headers`.
    pub url: String,
    /// The key to use there: "env:NAME", "file:PATH", or the key itself.
    pub api_key: Option<Secret>,
    /// Headers to send with every request: "env:NAME", "file:PATH", or the value itself. Values are
    /// never shown.
    pub headers: BTreeMap<String, Secret>,
    /// The models it serves, where `*` stands for anything; without any, all.
    pub models: Vec<String>,
    /// Its share of the requests that others could serve as well.
    pub weight: u32,
    /// Requests it may have at once.
    pub max_concurrent: Option<u32>,
    /// Requests started there in a second; the most that is learned.
    pub max_rps: Option<f64>,
    /// Tokens started there in a second; the most that is learned.
    pub max_tokens_per_sec: Option<f64>,
    /// The least that its own answers may bring `max_rps` down to; without it, nothing is learned.
    pub min_rps: Option<f64>,
    /// The least that its own answers may bring `max_tokens_per_sec` down to; without it, nothing
    /// is learned.
    pub min_tokens_per_sec: Option<f64>,
    /// Tokens of one request.
    pub max_context_length: Option<u64>,
    /// Models that have limits of their own, apart from the upstream's.
    pub limit: Vec<ModelLimits>,
    /// How long it may take to begin an answer.
    #[serde(with = "headworks_service::config::seconds")]
    pub first_byte_timeout: Duration,
    /// How long it may be silent in the middle of an answer.
    #[serde(with = "headworks_service::config::seconds")]
    pub idle_timeout: Duration,
    /// Whether a request that got no answer in time is tried elsewhere: it may then be generated
    /// twice.
    pub retry_on_timeout: bool,
    /// Answers after which a request is tried elsewhere, beside 429 and 503, such as [500, 502,
    /// 529]: it may then be generated twice.
    pub retry_on: Vec<u16>,
    /// How many faults in a row suspend it; 0 for never.
    pub fault_threshold: u32,
    /// How long faults suspend it, and an overload for which it names no time.
    #[serde(with = "headworks_service::config::seconds")]
    pub suspend_for: Duration,
    /// Echo only: how long it takes to begin.
    #[serde(with = "headworks_service::config::millis")]
    pub latency: Duration,
    /// Echo only: how long each token takes.
    #[serde(with = "headworks_service::config::millis")]
    pub token_time: Duration,
    /// Echo only: how many tokens it answers with; without, the words of the question.
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

/// Limits of some models of an upstream, which then do not count against those of the upstream:
/// providers limit each model by itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct ModelLimits {
    /// Which, where `*` stands for anything. The first that matches counts.
    pub models: Vec<String>,
    /// Requests they may have at once, together.
    pub max_concurrent: Option<u32>,
    /// Requests started in a second; the most that is learned.
    pub max_rps: Option<f64>,
    /// Tokens started in a second; the most that is learned.
    pub max_tokens_per_sec: Option<f64>,
    /// As for the upstream.
    pub min_rps: Option<f64>,
    /// As for the upstream.
    pub min_tokens_per_sec: Option<f64>,
    /// Tokens of one request.
    pub max_context_length: Option<u64>,
}

impl UpstreamSettings {
    /// This upstream as the scheduler knows it: one for each list of models with limits of their
    /// own, called `upstream/model`, and one for all others.
    pub(crate) fn parts(&self) -> impl Iterator<Item = UpstreamSettings> {
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

    /// The one that is there when none is configured.
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

/// What differs at certain times.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct RuleSettings {
    /// Its name in logs and statistics.
    pub name: String,
    /// The days on which it begins: "mon" … "sun"; without any, every day.
    pub days: Vec<String>,
    /// When it begins: "22:00"; without, at midnight.
    pub from: String,
    /// When it ends, on the next day if that is not after `from`; without, at midnight.
    pub to: String,
    /// The time zone that is meant; without one, `time_zone`.
    pub zone: String,
    /// Instead of `scheduler_weights`.
    pub weights: Vec<u32>,
    /// Instead of `scheduler_max_concurrent`.
    pub max_concurrent: Option<u32>,
    /// Instead of `scheduler_max_rps`.
    pub max_rps: Option<f64>,
    /// Instead of `scheduler_max_tokens_per_sec`.
    pub max_tokens_per_sec: Option<f64>,
    /// Tenants that differ.
    pub tenant: Vec<TenantRule>,
}

/// What a rule changes for a tenant.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct TenantRule {
    /// Which.
    pub name: String,
    /// Instead of its `weight`.
    pub weight: Option<u32>,
    /// Instead of its `max_concurrent`.
    pub max_concurrent: Option<u32>,
    /// Instead of its `max_rps`.
    pub max_rps: Option<f64>,
    /// Instead of its `max_tokens_per_sec`.
    pub max_tokens_per_sec: Option<f64>,
}
