//! What operators can do: lists, reloads, modes, and seeing what goes on.

use crate::support::{
    Forwarder, Manner, PATIENCE, Running, address, announce, config, http_uri, listed, udp_uri,
    until,
};
use headworks_service::panel::{Args, Panel, PanelError};
use headworks_tracker_wire::response::AnnounceResponse;
use headworks_tracker_wire::udp::{self, Response};
use headworks_tracker_wire::{Event, InfoHash};
use serde_json::json;
use std::path::PathBuf;
use std::time::Instant;

/// A file that ends with its test.
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
async fn lists_say_who_is_served_and_are_read_again() {
    let denied = File::new("denied", &format!("{} # not this one\n", hash(1)));
    let settings = format!("deny_hashes_file = '{}'\n", denied.path());
    let running = Running::start(&settings);
    let words = "this torrent is not served here";
    assert_eq!(failure(&running, 1).await.as_deref(), Some(words));
    assert_eq!(failure(&running, 2).await, None);
    let client = crate::support::Client::at("127.0.0.1:0", running.udp());
    let mut packet = Vec::new();
    let told = announce(1, 1, Event::None);
    udp::write_announce(client.connect(), 5, &told, b"", &mut packet);
    let answer = client.exchange(&packet).unwrap();
    let Some(Response::Error { transaction, text }) = udp::parse_response(&answer) else {
        panic!("{answer:?}")
    };
    assert_eq!((transaction, text), (5, words.as_bytes()));

    denied.write(&format!("{}\n", hash(2)));
    running.tracker.apply(&config(&settings)).unwrap();
    assert_eq!(failure(&running, 1).await, None);
    assert_eq!(failure(&running, 2).await.as_deref(), Some(words));
    let scrape = running
        .get(&format!("/scrape?info_hash={}", escaped(hash(2))))
        .await;
    let counts = headworks_tracker_wire::scrape::parse(&scrape).unwrap();
    assert_eq!(counts[0].1.incomplete, 0, "its peers are not shown, either");

    // A list that cannot be used changes nothing.
    denied.write("nonsense\n");
    let error = running.tracker.apply(&config(&settings)).unwrap_err();
    assert!(error.to_string().contains("line 1"), "{error}");
    assert_eq!(failure(&running, 2).await.as_deref(), Some(words));

    running
        .tracker
        .apply(&config("deny_clients = ['127.0.0.0/8']\n"))
        .unwrap();
    let words = "this client is not served here";
    assert_eq!(failure(&running, 3).await.as_deref(), Some(words));
    running
        .tracker
        .apply(&config("allow_clients = ['127.0.0.1', '::1']\n"))
        .unwrap();
    assert_eq!(failure(&running, 3).await, None);
    running.stop().await;
}

fn escaped(hash: InfoHash) -> String {
    let mut text = String::new();
    headworks_tracker_wire::percent_encode(&hash.0, &mut text);
    text
}

#[tokio::test(flavor = "multi_thread")]
async fn forwarders_come_and_go_with_a_reload() {
    let (old, new) = (
        Forwarder::http(Manner::Peers(vec![address("192.0.2.1:1")])).await,
        Forwarder::http(Manner::Peers(vec![address("192.0.2.2:2")])).await,
    );
    let running = Running::start("");
    running.announce(&announce(1, 1, Event::Started)).await;
    running
        .tracker
        .apply(&config(&listed([http_uri(&old)])))
        .unwrap();
    running.announce(&announce(1, 1, Event::None)).await;
    until("the first is asked", || old.heard().len() == 1).await;
    running
        .tracker
        .apply(&config(&listed([http_uri(&new)])))
        .unwrap();
    assert_eq!(running.tracker.forwarders(), 1);
    running.announce(&announce(1, 1, Event::None)).await;
    until("the new one is asked", || new.heard().len() == 1).await;
    running.announce(&announce(2, 2, Event::Started)).await;
    until("and for others", || new.heard().len() == 2).await;
    assert_eq!(old.heard().len(), 1, "the other is no longer listed");
    let stats = running.stats().await;
    assert!(!stats.contains(&old.address.to_string()), "{stats}");
    // Back in its place, and asked again.
    let both = listed([http_uri(&old), http_uri(&new)]);
    running.tracker.apply(&config(&both)).unwrap();
    running.announce(&announce(3, 3, Event::Started)).await;
    until("it is asked again", || old.heard().len() == 2).await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn never_is_until_the_reload() {
    let forwarder = Forwarder::http(Manner::Body(
        b"d14:failure reason2:no8:retry in5:nevere".to_vec(),
    ))
    .await;
    let settings = listed([http_uri(&forwarder)]);
    let running = Running::start(&settings);
    running.announce(&announce(1, 1, Event::Started)).await;
    running.shows("/stats", ": disabled, 1 requests").await;
    running.tracker.apply(&config(&settings)).unwrap();
    running.shows("/stats", ": active, 1 requests").await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn private_torrents_stay_here() {
    let private = File::new("private", &hash(1).to_string());
    let forwarder = Forwarder::http(Manner::Peers(vec![])).await;
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
    until("the other is passed on", || !forwarder.heard().is_empty()).await;
    assert!(forwarder.heard().iter().all(|heard| heard.hash == hash(2)));
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ask_only_tells_nothing_of_a_client() {
    let peers = Manner::Peers(vec![address("192.0.2.1:1")]);
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
        http.heard().len() == 1 && udp.heard().len() == 1
    })
    .await;
    for heard in [http.heard()[0], udp.heard()[0]] {
        assert_eq!(heard.event, Event::None);
        assert_ne!(heard.peer, started.peer_id);
    }
    let line = http.lines.lock().unwrap()[0].clone();
    assert!(line.contains("uploaded=0&downloaded=0&left=1"), "{line}");
    assert!(!line.contains("key="), "{line}");
    running.announce(&announce(1, 1, Event::Completed)).await;
    running.announce(&announce(1, 1, Event::Stopped)).await;
    // A second torrent is asked for after whatever might have been queued before it.
    running.announce(&announce(2, 2, Event::Started)).await;
    until("the second is asked for", || {
        http.heard().len() == 2 && udp.heard().len() == 2
    })
    .await;
    assert_eq!(http.events(), [Event::None, Event::None]);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn those_that_are_worth_most_are_preferred() {
    let barren = Forwarder::http(Manner::Peers(vec![])).await;
    let rich = Forwarder::http(Manner::Peers(
        (1..40)
            .map(|n| address(&format!("192.0.2.{n}:1")))
            .collect(),
    ))
    .await;
    let settings = format!(
        "forwarder_selection = 'yield'\nmax_forwarders_per_announce = 1\n{}",
        listed([http_uri(&barren), http_uri(&rich)])
    );
    let running = Running::start(&settings);
    for number in 0..200 {
        let asked = || barren.heard().len() + rich.heard().len();
        running.announce(&announce(number, 1, Event::Started)).await;
        until("one is asked", || asked() == number as usize + 1).await;
    }
    let (few, many) = (barren.heard().len(), rich.heard().len());
    assert!(few > 1, "others are tried now and then");
    assert!(many > 4 * few, "{many} against {few}");
    let name = rich.address.to_string();
    running
        .shows(
            "/stats",
            &format!("forwarder {name}: active, {many} requests"),
        )
        .await;
    let unique = format!("headworks_tracker_forwarder_unique_peers_total{{name=\"{name}\"}}");
    running
        .shows("/metrics", &format!("{unique} {}\n", 39 * many))
        .await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tracker_id_is_sent_back() {
    let body = b"d8:intervali900e5:peers0:10:tracker id3:a&be".to_vec();
    let forwarder = Forwarder::http(Manner::Body(body)).await;
    let running = Running::start(&listed([http_uri(&forwarder)]));
    running.announce(&announce(1, 1, Event::Started)).await;
    running.shows("/stats", "1 answers").await;
    running.announce(&announce(2, 2, Event::Started)).await;
    until("it is asked again", || forwarder.heard().len() == 2).await;
    let lines = forwarder.lines.lock().unwrap().clone();
    assert!(!lines[0].contains("trackerid"), "{}", lines[0]);
    assert!(lines[1].contains("&trackerid=a%26b"), "{}", lines[1]);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_addresses_are_for_whoever_has_the_token() {
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
        "it is taken as it is written"
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

fn args(value: &serde_json::Value) -> Args {
    value.as_object().unwrap().clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_panel_shows_explains_and_acts() {
    let forwarder = Forwarder::http(Manner::Peers(vec![address("192.0.2.1:1")])).await;
    let quiet = Forwarder::http(Manner::Peers(vec![])).await;
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
    let told = explained(&*panel, &torrent, "peer 192.0.2.1:1").await;
    assert_eq!(told.subject, torrent);
    assert!(told.summary.starts_with("1 local peers, 1 from forwarders"));
    let value = |name: &str| {
        let fact = told.facts.iter().find(|fact| fact.name == name);
        fact.unwrap_or_else(|| panic!("no {name} in {told:?}"))
            .value
            .clone()
    };
    let by = format!("first named by {}", forwarder.address);
    assert!(value("peer 192.0.2.1:1").starts_with(&by));
    assert!(value("peer 127.0.0.1:10001").contains(&format!("told to {}", forwarder.address)));
    let asked = value(&format!("forwarder {}", forwarder.address));
    assert!(asked.contains("1 new peers; due in 1"), "{asked}");
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
    let nobody = args(&json!({"forwarder": "nobody"}));
    assert!(panel.act("enable", &nobody).await.is_err());
    let shown = serde_json::to_string(&panel.snapshot()).unwrap();
    for text in [torrent.as_str(), &quiet, "waiting, until full"] {
        assert!(shown.contains(text), "{text} in {shown}");
    }
    running.stop().await;
}

/// The explanation, once it has the fact.
async fn explained(
    panel: &dyn Panel,
    torrent: &str,
    fact: &str,
) -> headworks_service::panel::Explanation {
    let end = Instant::now() + PATIENCE;
    loop {
        let told = panel.explain(torrent).await.unwrap();
        if told.facts.iter().any(|one| one.name == fact) {
            return told;
        }
        assert!(Instant::now() < end, "{told:?}");
        tokio::task::yield_now().await;
    }
}

/// Sockets that share a port are shared by two trackers without a word, and each client would find
/// half the peers.
#[tokio::test(flavor = "multi_thread")]
async fn a_second_tracker_on_a_taken_port_is_refused() {
    let first = Running::start("");
    for taken in [first.http(), first.udp()] {
        let second = Running::try_listening(&taken.to_string(), "");
        let refused = second.err().expect("it is refused").to_string();
        assert!(refused.contains(&taken.to_string()), "{refused}");
    }
    first.stop().await;
}
