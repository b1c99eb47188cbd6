//! Test support: a gateway, a scripted upstream that counts, and clients.

mod authority;
mod client;
mod upstream;

use std::sync::Arc;
use std::time::{Duration, Instant};

use headworks_gateway::{Gateway, GatewayConfig};
use headworks_service::config::{Schema, Sources};
use headworks_service::outbound::{Outbound, OutboundConfig};
use headworks_service::shutdown::Shutdown;

pub(crate) use authority::Authority;
pub(crate) use client::{Answer, Client, raw_request};
pub(crate) use upstream::{Reaction, ReceivedRequest, Upstream};

/// Timeout for every wait. It is long enough for the slowest machine; no passing test waits this
/// long.
pub(crate) const PATIENCE: Duration = Duration::from_secs(300);

/// A running gateway.
pub(crate) struct Running {
    pub(crate) gateway: Gateway,
    pub(crate) shutdown: Shutdown,
}

/// Loads a `[gateway]` section in TOML, on any free port, and open if `toml` has no keys.
pub(crate) fn config(toml: &str) -> Arc<GatewayConfig> {
    let text = format!("[gateway]\nlisten = '127.0.0.1:0'\nopen = true\n{toml}");
    let sources = Sources::new().text("test.toml", text);
    let schema = Schema::new().with::<GatewayConfig>();
    let loaded = schema
        .load(&sources)
        .unwrap_or_else(|problems| panic!("{problems}"));
    loaded.section::<GatewayConfig>()
}

impl Running {
    pub(crate) fn start(toml: &str) -> Running {
        Running::connecting_within(OutboundConfig::default().connect_timeout, toml)
    }

    /// Starts a gateway with this connect timeout.
    pub(crate) fn connecting_within(time: Duration, toml: &str) -> Running {
        let mut outbound = OutboundConfig::default();
        outbound.connect_timeout = time;
        Running::with_outbound(outbound, toml)
    }

    /// Starts a gateway that trusts this authority.
    pub(crate) fn trusting(authority: &Authority, toml: &str) -> Running {
        let mut outbound = OutboundConfig::default();
        outbound.ca_file = Some(authority.file.clone());
        Running::with_outbound(outbound, toml)
    }

    fn with_outbound(mut outbound: OutboundConfig, toml: &str) -> Running {
        let shutdown = Shutdown::new();
        outbound.proxy_from_environment = false;
        let outbound = Outbound::new(&outbound).unwrap();
        let gateway = Gateway::start(&config(toml), outbound, &shutdown).unwrap();
        Running { gateway, shutdown }
    }

    /// Starts a gateway in front of one upstream that speaks OpenAI's API and serves every model.
    pub(crate) fn before(upstream: &Upstream, toml: &str) -> Running {
        Running::start(&format!("{toml}\n{}", upstream.toml("one", "")))
    }

    pub(crate) fn client(&self) -> Client {
        Client::new(self.gateway.address())
    }

    /// Waits until no request runs and none is queued.
    pub(crate) async fn is_idle(&self) {
        until("every slot is free", || {
            self.gateway.running_and_waiting() == (0, 0)
        })
        .await;
    }
}

/// Waits for a condition and returns how long that took.
pub(crate) async fn until(what: &str, condition: impl Fn() -> bool) -> Duration {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < PATIENCE, "never: {what}");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    start.elapsed()
}

/// A chat request.
pub(crate) fn chat(max_tokens: u64, stream: bool) -> String {
    serde_json::json!({
        "model": "m", "stream": stream, "max_tokens": max_tokens,
        "messages": [{ "role": "user", "content": "hello" }],
    })
    .to_string()
}

pub(crate) const CHAT: &str = "/v1/chat/completions";
