//! The `[gateway]` section: the scheduler's keys, and those of the gateway around it.

mod check;
mod parts;
mod policy;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

pub(crate) use check::{is_loopback, key_is_right, rates_are_right};
pub use parts::{
    ClassSettings, KeySettings, Kind, ModelLimits, RuleSettings, TenantRule, TenantSettings,
    UpstreamSettings,
};
pub use policy::PolicyName;

headworks_service::section! {
    /// The gateway: scarce LLM capacity, shared by rules that hold.
    pub struct GatewayConfig = "gateway", check = check::check;

    /// Where it listens. Port 0 takes any free port.
    listen: SocketAddr = SocketAddr::from((Ipv4Addr::LOCALHOST, 8080)), restart();

    /// Whether requests are scheduled. Switched off, everything passes at once.
    scheduler_enabled: bool = true, file(&["scheduler_enabled"]);
    /// How the next request is chosen: "hybrid" (class 0 first, the rest by weight), "strict",
    /// "wfq" or "fifo".
    scheduler_policy: PolicyName = PolicyName::Hybrid, file(&["scheduler_policy"]);
    /// How many classes there are; class 0 is the most urgent. Fewer than before needs a new start.
    scheduler_priority_levels: u8 = 10, file(&["scheduler_priority_levels"]);
    /// Weights of the classes, most urgent first. Without: halving, 256, 128, … 2, 1, 1 for ten.
    scheduler_weights: Vec<u32> = Vec::new(), file(&["scheduler_weights"]), example("[256, 128, 64]");
    /// How many requests may wait in each class. More are refused at once.
    scheduler_max_queue_depth: usize = 1000, file(&["scheduler_max_queue_depth"]);
    /// How many requests may be at the upstreams at once, all together.
    scheduler_max_concurrent: u32 = 50, file(&["scheduler_max_concurrent"]);
    /// How many requests may start in a second, all together; 0 for no limit.
    scheduler_max_rps: f64 = 100.0, file(&["scheduler_max_rps"]);
    /// How many tokens may start in a second, all together; 0 for no limit.
    scheduler_max_tokens_per_sec: f64 = 10_000.0, file(&["scheduler_max_tokens_per_sec"]);
    /// Requests that may start at once after a pause. Without: one second of the rate.
    scheduler_rps_burst: Option<u64> = None, example("200");
    /// Tokens that may start at once after a pause. Without: one second of the rate.
    scheduler_tokens_burst: Option<u64> = None, example("20000");
    /// Tokens of one request, prompt and answer; more is refused for good. 0 for no limit.
    scheduler_max_context_length: u64 = 0, file(&["scheduler_max_context_length"]);
    /// How long a request may wait, where its class says nothing else.
    #[serde(with = "headworks_service::config::seconds")]
    scheduler_queue_timeout: Duration = Duration::from_secs(30), file(&["scheduler_queue_timeout"]);
    /// The class of a request whose key names none. Without: 5, or the least urgent if there are
    /// fewer.
    default_class: Option<u8> = None, example("5");
    /// Classes that differ: level, queue_timeout, aging (a request that waited so long goes next).
    class: Vec<ClassSettings> = Vec::new(),
        example("[[gateway.class]]\nlevel = 9\nqueue_timeout = \"5m\"\naging = \"60s\"");

    /// Tokens that an answer is expected to have where the request sets no bound.
    default_output_tokens: u64 = 1024;
    /// Whether a streaming client that waits is told so by comments in the stream. What goes wrong
    /// after the first one is told in the stream too.
    queue_progress: bool = false;
    /// How often it is told.
    #[serde(with = "headworks_service::config::seconds")]
    queue_progress_interval: Duration = Duration::from_secs(5);

    /// The largest request body.
    #[serde(with = "headworks_service::config::bytes")]
    max_body: u64 = 32 << 20;
    /// How many connections clients may have open, all together; more wait to be accepted.
    max_connections: usize = 50_000, restart();
    /// How long a client may take to send its body.
    #[serde(with = "headworks_service::config::seconds")]
    body_timeout: Duration = Duration::from_secs(60);
    /// How long a client may leave an answer unread before it loses the upstream's slot.
    #[serde(with = "headworks_service::config::seconds")]
    client_timeout: Duration = Duration::from_secs(30);
    /// How long an answer may take as a whole, from grant to last byte.
    #[serde(with = "headworks_service::config::seconds")]
    request_timeout: Duration = Duration::from_secs(600);

    /// Whether requests are answered without a key where neither `key` nor `keys_file` is set. Only
    /// for a gateway that listens on loopback. Otherwise, a gateway without keys answers every
    /// request with 401.
    open: bool = false;
    /// The file with the keys that `headworks gateway key add` made. It must exist. Without:
    /// `headworks-keys.toml` beside the configuration file, if that exists.
    keys_file: Option<PathBuf> = None, example("\"headworks-keys.toml\"");
    /// Keys by hash, prefix or pattern: whose they are and what they may do.
    key: Vec<KeySettings> = Vec::new(),
        example("[[gateway.key]]\nprefix = \"sk-search-\"\ntenant = \"search\"\nclass = 3\nmax_class = 1\nmodels = [\"gpt-*\"]");
    /// Tenants: their share inside a class, their limits and their quotas.
    tenant: Vec<TenantSettings> = Vec::new(),
        example("[[gateway.tenant]]\nname = \"search\"\nweight = 2\nmax_concurrent = 10\ntokens_per_day = 5000000");

    /// Upstreams. Without any, `echo` answers in process.
    upstream: Vec<UpstreamSettings> = Vec::new(),
        example("[[gateway.upstream]]\nname = \"openai\"\nkind = \"openai\"\nurl = \"https://api.openai.com\"\napi_key = \"env:OPENAI_API_KEY\"\nmodels = [\"gpt-*\"]");

    /// What differs at certain times; ends by itself.
    rule: Vec<RuleSettings> = Vec::new(),
        example("[[gateway.rule]]\nname = \"night\"\nfrom = \"22:00\"\nto = \"06:00\"\nzone = \"Europe/Berlin\"\nmax_concurrent = 100");
    /// The time zone in which days and months of quotas begin.
    time_zone: String = "UTC".to_owned();

    /// The SQLite file that keeps usage by tenant and day. Without: kept until the program ends.
    usage_file: Option<PathBuf> = None, example("\"usage.db\""), restart();
    /// A file to which every arrival is written (seconds, class, tenant, tokens), for
    /// `headworks sim --trace`.
    request_log: Option<PathBuf> = None, example("\"requests.csv\""), restart();
}

impl GatewayConfig {
    /// Name of the key file that is used if `keys_file` is not set.
    pub const KEYS_FILE: &str = "headworks-keys.toml";

    /// Whether keys are configured. An empty key file counts: it admits nobody.
    pub(crate) fn has_keys(&self) -> bool {
        !self.key.is_empty() || self.keys_file.is_some()
    }

    /// Class of a request whose key names none.
    #[must_use]
    pub fn class_by_default(&self) -> u8 {
        let last = self.scheduler_priority_levels.saturating_sub(1);
        self.default_class.unwrap_or(5).min(last)
    }
}
