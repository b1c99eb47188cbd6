//! Keys: their sources, revocation, and a gateway without keys.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use headworks_gateway::config::KeySettings;
use headworks_gateway::{Gateway, GatewayConfig, KeyFile};
use headworks_service::config::{Schema, Sources};
use headworks_service::outbound::{Outbound, OutboundConfig};
use headworks_service::shutdown::Shutdown;

use crate::support::{CHAT, Running, Upstream, chat};

/// A key file that is removed with its test.
struct TemporaryKeys(PathBuf);

impl TemporaryKeys {
    /// Creates a file with one key, and returns that key.
    fn with_one_key() -> (TemporaryKeys, String) {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let (process, n) = (std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(format!("headworks-keys-{process}-{n}.toml"));
        let mut settings = KeySettings::default();
        (settings.id, settings.tenant) = ("first".into(), "search".into());
        let mut file = KeyFile::default();
        let key = file.add(settings).unwrap();
        file.write(&path).unwrap();
        (TemporaryKeys(path), key)
    }

    fn revoke(&self, id: &str) {
        let mut file = KeyFile::read(&self.0, 10).unwrap();
        file.revoke(id).unwrap();
        file.write(&self.0).unwrap();
    }
}

impl Drop for TemporaryKeys {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Loads a `[gateway]` section as it is.
fn load(toml: &str) -> Result<Arc<GatewayConfig>, String> {
    let text = format!("[gateway]\nlisten = '127.0.0.1:0'\n{toml}");
    let schema = Schema::new().with::<GatewayConfig>();
    match schema.load(&Sources::new().text("test.toml", text)) {
        Ok(config) => Ok(config.section::<GatewayConfig>()),
        Err(problems) => Err(problems.to_string()),
    }
}

fn start(config: &Arc<GatewayConfig>) -> Result<Running, String> {
    let shutdown = Shutdown::new();
    let mut outbound = OutboundConfig::default();
    outbound.proxy_from_environment = false;
    let outbound = Outbound::new(&outbound).unwrap();
    match Gateway::start(config, outbound, &shutdown) {
        Ok(gateway) => Ok(Running { gateway, shutdown }),
        Err(error) => Err(error.to_string()),
    }
}

fn keys_file(path: &Path) -> String {
    format!("keys_file = '{}'\n", path.display())
}

/// Status of a request with `key`, and of one without.
async fn statuses(running: &Running, key: &str) -> (u16, u16) {
    let (client, body) = (running.client(), chat(5, false));
    let headers = [("x-api-key", key), ("x-priority", "critical")];
    let with_key = client.post(CHAT, &headers, &body).await.status;
    let without = client.post(CHAT, &headers[1..], &body).await.status;
    (with_key, without)
}

#[tokio::test]
async fn revoking_the_last_key_takes_effect() {
    let upstream = Upstream::answering(Duration::ZERO, 7).await;
    for open in ["", "open = true\n"] {
        let (keys, key) = TemporaryKeys::with_one_key();
        let upstream = upstream.toml("one", "");
        let config = load(&format!("{open}{}{upstream}", keys_file(&keys.0))).unwrap();
        let running = start(&config).unwrap();
        assert_eq!(statuses(&running, &key).await, (200, 401), "{open}");
        keys.revoke("first");
        running.gateway.apply(config).unwrap();
        assert_eq!(statuses(&running, &key).await, (401, 401), "{open}");
    }
    assert_eq!(upstream.count(), 2, "nothing else reached the upstream");
}

#[tokio::test]
async fn removing_the_last_key_from_the_configuration_takes_effect() {
    let upstream = Upstream::answering(Duration::ZERO, 7).await;
    let one = "[[gateway.key]]\nprefix = 'sk-'\ntenant = 'search'\n";
    for open in ["", "open = true\n"] {
        let with_keys = |keys: &str| load(&format!("{open}{keys}{}", upstream.toml("one", "")));
        let running = start(&with_keys(one).unwrap()).unwrap();
        assert_eq!(statuses(&running, "sk-1").await, (200, 401), "{open}");
        running.gateway.apply(with_keys("").unwrap()).unwrap();
        assert_eq!(statuses(&running, "sk-1").await, (401, 401), "{open}");
    }
}

#[tokio::test]
async fn without_keys_nothing_is_answered_unless_the_gateway_is_open() {
    let upstream = Upstream::answering(Duration::ZERO, 7).await;
    let running = start(&load(&upstream.toml("one", "")).unwrap()).unwrap();
    assert_eq!(statuses(&running, "anything").await, (401, 401));
    assert_eq!(running.client().get("/v1/models", &[]).await.status, 401);
    let open = load(&format!("open = true\n{}", upstream.toml("one", ""))).unwrap();
    running.gateway.apply(open).unwrap();
    assert_eq!(statuses(&running, "anything").await, (200, 200));
}

#[tokio::test]
async fn a_missing_keys_file_is_refused_at_start_and_at_reload() {
    let upstream = Upstream::answering(Duration::ZERO, 7).await;
    let (keys, key) = TemporaryKeys::with_one_key();
    let toml = format!("{}{}", keys_file(&keys.0), upstream.toml("one", ""));
    let running = start(&load(&toml).unwrap()).unwrap();
    std::fs::remove_file(&keys.0).unwrap();
    let unset = load(&upstream.toml("one", "")).unwrap();
    for config in [load(&toml).unwrap(), unset] {
        let refused = running.gateway.apply(config).unwrap_err().to_string();
        assert!(refused.contains("does not exist"), "{refused}");
        assert_eq!(statuses(&running, &key).await, (200, 401));
    }
    let refused = start(&load(&toml).unwrap()).err().unwrap();
    assert!(refused.contains("does not exist"), "{refused}");
}

#[tokio::test]
async fn an_open_gateway_listens_on_loopback_only() {
    let text = "[gateway]\nlisten = '0.0.0.0:0'\nopen = true\n";
    let schema = Schema::new().with::<GatewayConfig>();
    let problems = schema.load(&Sources::new().text("test.toml", text));
    let problems = problems.err().unwrap().to_string();
    assert!(problems.contains("`gateway.open`"), "{problems}");

    let mut exposed = load("open = true").unwrap().as_ref().clone();
    exposed.listen = "0.0.0.0:0".parse().unwrap();
    let refused = start(&Arc::new(exposed.clone())).err().unwrap();
    assert!(refused.contains("loopback"), "{refused}");

    let running = start(&load("").unwrap()).unwrap();
    let refused = running.gateway.apply(Arc::new(exposed)).unwrap_err();
    assert!(refused.to_string().contains("loopback"), "{refused}");

    // The address in use counts, not the one in the new configuration.
    let mut closed = load("").unwrap().as_ref().clone();
    closed.listen = "0.0.0.0:0".parse().unwrap();
    let running = start(&Arc::new(closed)).unwrap();
    let refused = running.gateway.apply(load("open = true").unwrap());
    assert!(refused.unwrap_err().to_string().contains("loopback"));
}
