//! The operator's view: access lists, reloads, modes, statistics and the panel.

use crate::support::{
    Behaviour, Forwarder, Running, TIMEOUT, address, announce, config, http_uri, listed, udp_uri,
    until,
};
use headworks_service::config::{Schema, Sources};
use headworks_service::panel::{Args, Panel, PanelError};
use headworks_tracker::TrackerConfig;
use headworks_tracker_wire::response::AnnounceResponse;
use headworks_tracker_wire::udp::{self, Response};
use headworks_tracker_wire::{Event, InfoHash};
use serde_json::json;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// A temporary file.
struct File(PathBuf);

impl File {
    fn new(name: &str, text: &str) -> File {
        let name = format!("headworks-tracker-{}-{name}", std::process::id());
        let file = File(std::env::temp_dir().join(name));
        file.write(text);
        file
    }

    fn write(&self, text: &str) {
        std::fs::write(&self.0, text).unwrap();
    }

    fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn hash(number: u32) -> InfoHash {
    announce(number, 1, Event::None).info_hash
}

async fn failure(running: &Running, number: u32) -> Option<String> {
    match running.announce(&announce(number, 1, Event::None)).await {
        AnnounceResponse::Failure { reason, .. } => Some(reason),
        _ => None,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn access_lists_apply_and_are_reloaded() {
    let denied = File::new("denied", &format!("{} # not this one\n", hash(1)));
    let settings = format!("deny_hashes_file = '{}'\n", denied.path());
    let running = Running::start(&settings);
    let message = "this torrent is not served here";
    assert_eq!(failure(&running, 1).await.as_deref(), Some(message));
    assert_eq!(failure(&running, 2).await, None);
    let client = crate::support::Client::at("127.0.0.1:0", running.udp());
    let mut packet = Vec::new();
    let denied_announce = announce(1, 1, Event::None);
    udp::write_announce(client.connect(), 5, &denied_announce, b"", &mut packet);
    let answer = client.exchange(&packet).unwrap();
    let Some(Response::Error { transaction, text }) = udp::parse_response(&answer) else {
        panic!("{answer:?}")
    };
    assert_eq!((transaction, text), (5, message.as_bytes()));

    denied.write(&format!("{}\n", hash(2)));
    running.tracker.apply(&config(&settings)).unwrap();
    assert_eq!(failure(&running, 1).await, None);
    assert_eq!(failure(&running, 2).await.as_deref(), Some(message));
    let scrape = running
        .get(&format!("/scrape?info_hash={}", escaped(hash(2))))
        .await;
    let counts = headworks_tracker_wire::scrape::parse(&scrape).unwrap();
    assert_eq!(counts[0].1.incomplete, 0, "a denied torrent has no totals");

    // An invalid list changes nothing.
    denied.write("nonsense\n");
    let error = running.tracker.apply(&config(&settings)).unwrap_err();
    assert!(error.to_string().contains("line 1"), "{error}");
    assert_eq!(failure(&running, 2).await.as_deref(), Some(message));

    running
        .tracker
        .apply(&config("deny_clients = ['127.0.0.0/8']\n"))
        .unwrap();
    let message = "this client is not served here";
    assert_eq!(failure(&running, 3).await.as_deref(), Some(message));
    running
        .tracker
        .apply(&config("allow_clients = ['127.0.0.1', '::1']\n"))
        .unwrap();
    assert_eq!(failure(&running, 3).await, None);
    running.stop().await;
}

#[test]
fn an_empty_list_of_allowed_clients_is_rejected() {
    let load = |settings: &str| {
        let text = format!("[tracker]\n{settings}");
        let sources = Sources::new().text("headworks.toml", text);
        let schema = Schema::shared().with::<TrackerConfig>();
        schema
            .load(&sources)
            .map(drop)
            .map_err(|problems| problems.to_string())
    };
    let error = load("allow_clients = []").unwrap_err();
    assert!(error.contains("no client would be served"), "{error}");
    assert!(error.contains("delete it to do so"), "{error}");
    // Nothing is allowed or trusted by these.
    load("deny_clients = []\ntrusted_proxies = []\nforwarder_lists = []").unwrap();
}

fn escaped(hash: InfoHash) -> String {
    let mut text = String::new();
    headworks_tracker_wire::percent_encode(&hash.0, &mut text);
    text
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reload_adds_and_removes_forwarders() {
    let (old, new) = (
        Forwarder::http(Behaviour::Peers(vec![address("1.2.3.1:1")])).await,
        Forwarder::http(Behaviour::Peers(vec![address("1.2.3.2:2")])).await,
    );
    let running = Running::start("");
    running.announce(&announce(1, 1, Event::Started)).await;
    running
        .tracker
        .apply(&config(&listed([http_uri(&old)])))
        .unwrap();
    running.announce(&announce(1, 1, Event::None)).await;
    until("the first is asked", || old.received().len() == 1).await;
    running
        .tracker
        .apply(&config(&listed([http_uri(&new)])))
        .unwrap();
    assert_eq!(running.tracker.forwarders(), 1);
    running.announce(&announce(1, 1, Event::None)).await;
    until("the new one is asked", || new.received().len() == 1).await;
    running.announce(&announce(2, 2, Event::Started)).await;
    until("the new one is asked for another torrent", || {
        new.received().len() == 2
    })
    .await;
    assert_eq!(old.received().len(), 1, "the other is no longer listed");
    let stats = running.stats().await;
    assert!(!stats.contains(&old.address.to_string()), "{stats}");
    // Listed again, with its old id.
    let both = listed([http_uri(&old), http_uri(&new)]);
    running.tracker.apply(&config(&both)).unwrap();
    running.announce(&announce(3, 3, Event::Started)).await;
    until("it is asked again", || old.received().len() == 2).await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reload_enables_a_forwarder_that_declined() {
    let forwarder = Forwarder::http(Behaviour::Body(
        b"d14:failure reason2:no8:retry in5:nevere".to_vec(),
    ))
    .await;
    let settings = listed([http_uri(&forwarder)]);
    let running = Running::start(&settings);
    for (number, client) in [(1, "127.0.0.1"), (2, "127.0.0.2"), (3, "127.0.0.2")] {
        let client = client.parse().unwrap();
        (running.announce_from(client, &announce(number, 1, Event::Started), "", "")).await;
    }
    running.shows("/stats", ": disabled, 3 requests").await;
    running.tracker.apply(&config(&settings)).unwrap();
    running.shows("/stats", ": active, 3 requests").await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn private_torrents_are_not_forwarded() {
    let private = File::new("private", &hash(1).to_string());
    let forwarder = Forwarder::http(Behaviour::Peers(vec![])).await;
    let settings = format!(
        "never_forward_file = '{}'\n{}",
        private.path(),
        listed([http_uri(&forwarder)])
    );
    let running = Running::start(&settings);
    for event in [Event::Started, Event::Completed, Event::Stopped] {
        running.announce(&announce(1, 1, event)).await;
    }
    running.announce(&announce(2, 2, Event::Started)).await;
    until("the other is forwarded", || {
        !forwarder.received().is_empty()
    })
    .await;
    assert!(
        forwarder
            .received()
            .iter()
            .all(|received| received.hash == hash(2))
    );
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ask_only_reveals_nothing_about_a_client() {
    let peers = Behaviour::Peers(vec![address("1.2.3.1:1")]);
    let (http, udp) = (
        Forwarder::http(peers.clone()).await,
        Forwarder::udp(peers).await,
    );
    let settings = format!(
        "ask_only = true\n{}",
        listed([http_uri(&http), udp_uri(&udp)])
    );
    let running = Running::start(&settings);
    let mut started = announce(1, 1, Event::Started);
    (started.uploaded, started.downloaded) = (77, 78);
    running.announce(&started).await;
    until("both are asked", || {
        http.received().len() == 1 && udp.received().len() == 1
    })
    .await;
    for received in [http.received()[0], udp.received()[0]] {
        assert_eq!(received.event, Event::None);
        assert_ne!(received.peer, started.peer_id);
    }
    let line = http.requests.lock().unwrap()[0].clone();
    assert!(line.contains("uploaded=0&downloaded=0&left=1"), "{line}");
    assert!(!line.contains("key="), "{line}");
    running.announce(&announce(1, 1, Event::Completed)).await;
    running.announce(&announce(1, 1, Event::Stopped)).await;
    // Anything queued before would be sent before the second torrent.
    running.announce(&announce(2, 2, Event::Started)).await;
    until("the second is asked for", || {
        http.received().len() == 2 && udp.received().len() == 2
    })
    .await;
    assert_eq!(http.events(), [Event::None, Event::None]);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn yield_prefers_forwarders_with_a_high_score() {
    let poor = Forwarder::http(Behaviour::Peers(vec![])).await;
    let rich = Forwarder::http(Behaviour::Peers(
        (1..40).map(|n| address(&format!("1.2.3.{n}:1"))).collect(),
    ))
    .await;
    let settings = format!(
        "forwarder_selection = 'yield'\nmax_forwarders_per_announce = 1\n{}",
        listed([http_uri(&poor), http_uri(&rich)])
    );
    let running = Running::start(&settings);
    running.prove(&[&poor, &rich]).await;
    let name = rich.address.to_string();
    let unique = format!("headworks_tracker_forwarder_unique_peers_total{{name=\"{name}\"}}");
    let before = running.metric(&unique).await;
    for number in 0..200 {
        let asked = || poor.received().len() + rich.received().len();
        running.announce(&announce(number, 1, Event::Started)).await;
        until("one is asked", || asked() > number as usize).await;
    }
    let (few, many) = (poor.received().len(), rich.received().len());
    assert!(few > 1, "others are explored");
    assert!(many > 4 * few, "{many} against {few}");
    let end = Instant::now() + TIMEOUT;
    while running.metric(&unique).await - before != 39.0 * rich.received().len() as f64 {
        assert!(Instant::now() < end, "every reported peer counts once");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tracker_id_is_sent_back() {
    let body = b"d8:intervali900e5:peers0:10:tracker id3:a&be".to_vec();
    let forwarder = Forwarder::http(Behaviour::Body(body)).await;
    let running = Running::start(&listed([http_uri(&forwarder)]));
    running.announce(&announce(1, 1, Event::Started)).await;
    running.shows("/stats", "1 answers").await;
    running.announce(&announce(2, 2, Event::Started)).await;
    until("it is asked again", || forwarder.received().len() == 2).await;
    let requests = forwarder.requests.lock().unwrap().clone();
    assert!(!requests[0].contains("trackerid"), "{}", requests[0]);
    assert!(requests[1].contains("&trackerid=a%26b"), "{}", requests[1]);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_addresses_need_the_token() {
    let running = Running::start("");
    running.announce(&announce(1, 1, Event::Started)).await;
    assert!(!running.stats().await.contains("127.0.0.1"));
    let token = "a token for this test";
    running.tracker.show_clients_to(&token.into()).unwrap();
    assert!(!running.stats().await.contains("127.0.0.1"));
    let wrong = running.get("/stats?token=another").await;
    assert!(!String::from_utf8(wrong).unwrap().contains("client"));
    let right = running.get("/stats?token=a+token+for+this+test").await;
    assert!(
        !String::from_utf8(right).unwrap().contains("client"),
        "a token in the query is not decoded"
    );
    let text = running.with_token("/stats", token).await;
    assert!(
        text.contains("client 127.0.0.1:10001: leecher of "),
        "{text}"
    );
    let text = running.with_token("/stats.json", token).await;
    let read: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(read["clients"][0]["address"], "127.0.0.1:10001");
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_predecessors_fields_stand_beside_ours() {
    let settings = "forwarder_queue_size = 77\nforwarder_workers = 3\nmax_forwarder_workers = 9";
    let running = Running::start(settings);
    let text = running.get("/stats?format=json").await;
    let stats: serde_json::Value = serde_json::from_slice(&text).unwrap();
    for (flat, ours, value) in [
        ("queue_depth", "depth", json!(0)),
        ("queue_capacity", "capacity", json!(77)),
        ("queue_fill_pct", "fill_pct", json!(0.0)),
        ("queue_dropped_full", "dropped_full", json!(0)),
        ("queue_rate_limited", "rate_limited", json!(0)),
        (
            "queue_throttled_forwarders",
            "throttled_forwarders",
            json!(0),
        ),
        ("forwarder_workers", "active_workers", json!(3)),
        ("active_workers", "active_workers", json!(3)),
        ("max_workers", "max_workers", json!(9)),
        ("dropped_full", "dropped_full", json!(0)),
        ("rate_limited", "rate_limited", json!(0)),
        ("throttled_forwarders", "throttled_forwarders", json!(0)),
    ] {
        assert_eq!(stats[flat], value, "{flat} in {stats}");
        assert_eq!(stats["queue"][ours], value, "{ours} in {stats}");
    }
    running.stop().await;
}

fn args(value: &serde_json::Value) -> Args {
    value.as_object().unwrap().clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_panel_shows_explains_and_acts() {
    let forwarder = Forwarder::http(Behaviour::Peers(vec![address("1.2.3.1:1")])).await;
    let quiet = Forwarder::http(Behaviour::Peers(vec![])).await;
    let running = Running::start(&listed([http_uri(&forwarder), http_uri(&quiet)]));
    let (panel, quiet) = (running.tracker.panel(), quiet.address.to_string());
    let suspend = args(&json!({"forwarder": quiet, "seconds": 500}));
    let checked = panel.actions().iter().all(|action| {
        let args = if action.name == "suspend" {
            &suspend
        } else {
            &args(&json!({"forwarder": "x"}))
        };
        action.check(args).is_ok()
    });
    assert!(checked);
    panel.act("suspend", &suspend).await.unwrap();
    running
        .shows("/stats", &format!("{quiet}: suspended"))
        .await;
    running.announce(&announce(1, 1, Event::Started)).await;
    running.shows("/stats", "1 answers").await;

    let torrent = hash(1).to_string();
    let explanation = explained(&*panel, &torrent, "peer 1.2.3.1:1").await;
    assert_eq!(explanation.subject, torrent);
    assert!(
        explanation
            .summary
            .starts_with("1 local peers, 1 from forwarders")
    );
    let value = |name: &str| {
        let fact = explanation.facts.iter().find(|fact| fact.name == name);
        fact.unwrap_or_else(|| panic!("no {name} in {explanation:?}"))
            .value
            .clone()
    };
    let by = format!("first reported by {}", forwarder.address);
    assert!(value("peer 1.2.3.1:1").starts_with(&by));
    assert!(value("peer 127.0.0.1:10001").contains(&format!("announced to {}", forwarder.address)));
    let asked = value(&format!("forwarder {}", forwarder.address));
    assert!(asked.contains("1 new peers; due in 9"), "{asked}");
    let skipped = value(&format!("forwarder {quiet}"));
    assert!(
        skipped.starts_with("never asked; skipped: suspended for"),
        "{skipped}"
    );
    let unknown = panel.explain(&"ff".repeat(20)).await;
    assert!(matches!(unknown, Err(PanelError::Unknown { .. })));

    let enable = args(&json!({"forwarder": quiet}));
    panel.act("enable", &enable).await.unwrap();
    running.shows("/stats", &format!("{quiet}: active")).await;
    let unknown = args(&json!({"forwarder": "unknown"}));
    assert!(panel.act("enable", &unknown).await.is_err());
    let shown = serde_json::to_string(&panel.snapshot()).unwrap();
    for text in [torrent.as_str(), &quiet, "queued, of capacity"] {
        assert!(shown.contains(text), "{text} in {shown}");
    }
    running.stop().await;
}

/// Waits until an explanation has a fact, and returns it.
async fn explained(
    panel: &dyn Panel,
    torrent: &str,
    fact: &str,
) -> headworks_service::panel::Explanation {
    let end = Instant::now() + TIMEOUT;
    loop {
        let explanation = panel.explain(torrent).await.unwrap();
        if explanation.facts.iter().any(|one| one.name == fact) {
            return explanation;
        }
        assert!(Instant::now() < end, "{explanation:?}");
        tokio::task::yield_now().await;
    }
}

/// Two trackers could share a port without an error, and each client would find half of the peers.
#[tokio::test(flavor = "multi_thread")]
async fn a_second_tracker_on_the_same_port_is_rejected() {
    let first = Running::start("");
    for taken in [first.http(), first.udp()] {
        let second = Running::try_listening(&taken.to_string(), "");
        let refused = second.err().expect("an error").to_string();
        assert!(refused.contains(&taken.to_string()), "{refused}");
    }
    first.stop().await;
}
