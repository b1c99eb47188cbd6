//! The `[gateway]` section: the scheduler's keys, and those of the gateway around it.

mod check;
mod policy;
mod tables;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

pub(crate) use check::{check_key, check_rates, check_tenant, is_loopback};
pub use policy::PolicyName;
pub use tables::{
    ClassSettings, KeySettings, Kind, ModelLimits, RuleSettings, TenantRule, TenantSettings,
    UpstreamSettings,
};

headworks_service::section! {
    /// LLM gateway: shares scarce model capacity between tenants by fixed rules.
    pub struct GatewayConfig = "gateway", check = check::check;

    /// Listen address. Port 0 takes any free port.
    listen: SocketAddr = SocketAddr::from((Ipv4Addr::LOCALHOST, 8080)), restart();

    /// Whether requests are scheduled. If not, every request passes at once.
    scheduler_enabled: bool = true, file(&["scheduler_enabled"]);
    /// Policy that selects the next request: "hybrid" (class 0 first, the others by weight),
    /// "strict", "wfq" or "fifo".
    scheduler_policy: PolicyName = PolicyName::Hybrid, file(&["scheduler_policy"]);
    /// Number of classes; class 0 is the most urgent. A smaller number than before needs a restart.
    scheduler_priority_levels: u8 = 10, file(&["scheduler_priority_levels"]);
    /// Weights of the classes, most urgent first. Default: halving, 256, 128, … 2, 1, 1 for ten
    /// classes.
    scheduler_weights: Vec<u32> = Vec::new(), file(&["scheduler_weights"]), example("[256, 128, 64]");
    /// Queue length of each class. Further requests are rejected at once.
    scheduler_max_queue_depth: usize = 1000, file(&["scheduler_max_queue_depth"]);
    /// Concurrent requests at all upstreams together.
    scheduler_max_concurrent: u32 = 50, file(&["scheduler_max_concurrent"]);
    /// Requests started per second at all upstreams together; 0 for no limit.
    scheduler_max_rps: f64 = 100.0, file(&["scheduler_max_rps"]);
    /// Tokens started per second at all upstreams together; 0 for no limit.
    scheduler_max_tokens_per_sec: f64 = 10_000.0, file(&["scheduler_max_tokens_per_sec"]);
    /// Requests that may start at once after a pause. Default: one second of the rate.
    scheduler_rps_burst: Option<u64> = None, example("200");
    /// Tokens that may start at once after a pause. Default: one second of the rate.
    scheduler_tokens_burst: Option<u64> = None, example("20000");
    /// Largest number of tokens of one request, prompt and response. Larger ones are rejected for
    /// good. 0 for no limit.
    scheduler_max_context_length: u64 = 0, file(&["scheduler_max_context_length"]);
    /// Longest wait of a request, unless its class sets another one.
    #[serde(with = "headworks_service::config::seconds")]
    scheduler_queue_timeout: Duration = Duration::from_secs(30), file(&["scheduler_queue_timeout"]);
    /// Class of a request whose key sets none. Default: 5, or the least urgent if there are fewer.
    default_class: Option<u8> = None, example("5");
    /// Classes with other settings: level, queue_timeout, aging (a request that waited longer goes
    /// next).
    class: Vec<ClassSettings> = Vec::new(),
        example("[[gateway.class]]\nlevel = 9\nqueue_timeout = \"5m\"\naging = \"60s\"");

    /// Expected tokens of a response until the lengths of earlier ones are known. A request
    /// reserves what its tenant's responses of that model needed (p90), at most its `max_tokens`.
    default_output_tokens: u64 = 512;
    /// Whether a queued stream receives comments about its progress. Errors after the first one are
    /// reported in the stream too.
    queue_progress: bool = false;
    /// Interval of these comments.
    #[serde(with = "headworks_service::config::seconds")]
    queue_progress_interval: Duration = Duration::from_secs(5);

    /// Largest request body.
    #[serde(with = "headworks_service::config::bytes")]
    max_body: u64 = 32 << 20;
    /// Memory of all request bodies that are uploaded, queued or at their upstreams. A tenant may
    /// have as much of it as it leaves free, so half if it is alone; further requests are rejected.
    #[serde(with = "headworks_service::config::bytes")]
    max_body_memory: u64 = 1 << 30;
    /// Open connections of all clients together. For a further one, the oldest is closed that has
    /// sent no request with a valid key, or that is more than half of all for its tenant; then the
    /// one that has been idle longest. The limit of open files may allow fewer, because some are
    /// kept for upstreams.
    max_connections: usize = 50_000, restart();
    /// Open connections of one client address; further ones are closed. Default: half of all.
    max_connections_per_address: Option<usize> = None, example("1000"), restart();
    /// Longest time for a client to send its body.
    #[serde(with = "headworks_service::config::seconds")]
    body_timeout: Duration = Duration::from_secs(60);
    /// Longest time for a client to leave a response unread before it loses the upstream's slot.
    #[serde(with = "headworks_service::config::seconds")]
    client_timeout: Duration = Duration::from_secs(30);
    /// Longest time that an unused connection to an upstream is kept. Many servers close theirs
    /// after 5 s, and a request that crosses with the close fails.
    #[serde(with = "headworks_service::config::seconds")]
    upstream_idle_timeout: Duration = Duration::from_secs(4), restart();
    /// Longest duration of a response, from the grant to the last byte.
    #[serde(with = "headworks_service::config::seconds")]
    request_timeout: Duration = Duration::from_secs(600);

    /// Whether requests are served without a key if neither `key` nor `keys_file` is set. Only for
    /// a gateway that listens on loopback. Otherwise, a gateway without keys answers every request
    /// with 401.
    open: bool = false;
    /// Key file that `headworks gateway key add` writes. It must exist. Default:
    /// `headworks-keys.toml` beside the configuration file, if that exists.
    keys_file: Option<PathBuf> = None, example("\"headworks-keys.toml\"");
    /// Keys by hash, prefix or pattern, with their owners and permissions.
    key: Vec<KeySettings> = Vec::new(),
        example("[[gateway.key]]\nprefix = \"sk-search-\"\ntenant = \"search\"\nclass = 3\nmax_class = 1\nmodels = [\"gpt-*\"]");
    /// Tenants: their shares within a class, their limits and their quotas.
    tenant: Vec<TenantSettings> = Vec::new(),
        example("[[gateway.tenant]]\nname = \"search\"\nweight = 2\nmax_concurrent = 10\ntokens_per_day = 5000000");

    /// Upstreams. Without any, the built-in `echo` responds.
    upstream: Vec<UpstreamSettings> = Vec::new(),
        example(tables::UPSTREAM_EXAMPLE);

    /// Time rules: settings that differ at certain times.
    rule: Vec<RuleSettings> = Vec::new(),
        example("[[gateway.rule]]\nname = \"night\"\nfrom = \"22:00\"\nto = \"06:00\"\nzone = \"Europe/Berlin\"\nmax_concurrent = 100");
    /// Time zone in which the days and months of quotas begin.
    time_zone: String = "UTC".to_owned();

    /// SQLite file with usage by tenant and day. Without it, usage is lost when the program ends.
    usage_file: Option<PathBuf> = None, example("\"usage.db\""), restart();
    /// File to which every arrival is written (seconds, class, tenant, tokens), for `headworks sim
    /// --trace`.
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
    pub fn effective_default_class(&self) -> u8 {
        let last = self.scheduler_priority_levels.saturating_sub(1);
        self.default_class.unwrap_or(5).min(last)
    }
}
