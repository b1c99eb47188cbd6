//! The `[tracker]` section: the keys, flags and environment names of the system that this replaces,
//! and our own.

use headworks_service::config::Objection;
use headworks_service::proxies::{ClientHeader, Network};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::time::Duration;

use crate::forwarders::Forwarder;
use crate::listen::Listen;

headworks_service::section! {
    /// A tracker that answers clients from memory and asks every other tracker for them.
    pub struct TrackerConfig = "tracker", check = objections;

    /// Where announces over HTTP are taken: an address, or `:6969` for every address of this
    /// machine; empty for none.
    listen: Listen = Listen::loopback(6969), example("\":6969\""), file(&["listen"]), env(&["LISTEN"]), flag(&["-l"]), restart();
    /// Where announces over UDP are taken, written alike.
    udp_listen: Listen = Listen::loopback(6969), example("\":6969\""), file(&["udp_listen"]), env(&["UDP_LISTEN"]), flag(&["-u"]), restart();
    /// Threads that answer; 0 for one a core.
    workers: usize = 0, restart();
    /// Connections that may be open at once, on all threads together.
    max_connections: usize = 20_000, restart();
    /// When a client should come back.
    #[serde(with = "headworks_service::config::seconds")]
    announce_interval: Duration = Duration::from_secs(1800), file(&["announce_interval"]), env(&["ANNOUNCE_INTERVAL"]);
    /// When the first client of a torrent should come back, while other trackers are being asked
    /// for peers.
    #[serde(with = "headworks_service::config::seconds")]
    first_interval: Duration = Duration::from_secs(90);
    /// Peers in an answer if the client does not say how many it wants, and the most that it gets.
    max_peers: u32 = 50;
    /// How long a peer that was not heard of is kept. A plain number is minutes.
    #[serde(with = "headworks_service::config::minutes")]
    age: Duration = Duration::from_secs(180 * 60), file(&["age"]), env(&["AGE"]), flag(&["-a"]);
    /// What the totals of a swarm count: `ip` counts an address once, `peer` every peer.
    count_by: CountBy = CountBy::Ip, restart();
    /// Whether a scrape that names no torrent is answered with all of them.
    full_scrape: bool = false;
    /// Whether a client may name its own address with `ip=`. Left off, nobody can make others
    /// connect to a stranger.
    allow_ip_parameter: bool = false;
    /// Whether the client's address is in X-Real-IP, set by a trusted proxy.
    x_real_ip: bool = false, file(&["x_real_ip"]), env(&["X_REAL_IP"]), flag(&["-x"]);
    /// Proxies whose word about the client's address counts. With `x_real_ip` and none named: those
    /// on this machine.
    trusted_proxies: Vec<Network> = Vec::new(), example("[\"127.0.0.1\", \"10.0.0.0/8\"]");
    /// The header in which they name it.
    client_header: ClientHeader = ClientHeader::XForwardedFor;
    /// A file with the only torrents that are served, a hash in hexadecimal digits a line.
    allow_hashes_file: Option<PathBuf> = None, example("\"allowed.txt\"");
    /// A file with torrents that are not served, written alike.
    deny_hashes_file: Option<PathBuf> = None, example("\"denied.txt\"");
    /// The only clients that are served, if any are named.
    allow_clients: Vec<Network> = Vec::new(), example("[\"10.0.0.0/8\", \"fd00::/8\"]");
    /// Clients that are not served.
    deny_clients: Vec<Network> = Vec::new(), example("[\"192.0.2.0/24\"]");
    /// A file that keeps swarms and what forwarders said over a restart.
    snapshot_file: Option<PathBuf> = None, example("\"/var/lib/headworks/tracker.snapshot\""), restart();
    /// How often it is written, beside at the end.
    #[serde(with = "headworks_service::config::seconds")]
    snapshot_interval: Duration = Duration::from_secs(300), restart();
    /// Sent to clients as `tracker id`; they send it back.
    tracker_id: String = String::new(), file(&["tracker_id"]), env(&["TRACKER_ID"]);

    /// Trackers that are asked too.
    forwarders: Vec<Forwarder> = Vec::new(), example("[[tracker.forwarders]]\nuri = \"udp://tracker.example:1337/announce\""), file(&["forwarders"]);
    /// A YAML file with more of them: a list of `uri`, and optionally `name`, `ip` and `host`.
    forwarders_file: Option<PathBuf> = None, example("\"forwarders.yml\""), file(&["forwarders_file", "forwards"]), env(&["FORWARDERS"]), flag(&["-f"]);
    /// Which of them an announce goes to when not all can be asked: `shuffle` draws lots, `yield`
    /// prefers those that lately named most new peers soonest, and tries others now and then.
    forwarder_selection: Selection = Selection::Shuffle;
    /// Only ask: forwarders hear of no event and of no client's own name and totals, only what the
    /// protocol needs.
    ask_only: bool = false;
    /// A file with torrents that no forwarder hears of: a hash in hexadecimal digits a line.
    never_forward_file: Option<PathBuf> = None, example("\"private.txt\"");
    /// Forwarders that an announce is passed on to, at most.
    max_forwarders_per_announce: usize = 100, file(&["max_forwarders_per_announce"]), env(&["MAX_FORWARDERS_PER_ANNOUNCE"]);
    /// Peers from forwarders that are kept for a torrent, at most.
    max_cached_peers: usize = 500;
    /// Forwards that may wait.
    forwarder_queue_size: usize = 10_000, file(&["forwarder_queue_size"]), env(&["FORWARDER_QUEUE_SIZE"]), flag(&["-Q"]);
    /// Forwards that run at once, always.
    forwarder_workers: usize = 10, file(&["forwarder_workers"]), env(&["FORWARDER_WORKERS"]), flag(&["-w"]);
    /// Forwards that run at once when many wait.
    max_forwarder_workers: usize = 20, file(&["max_forwarder_workers"]), env(&["MAX_FORWARDER_WORKERS"]), flag(&["-W"]);
    /// Forwards to one forwarder that run at once.
    forwarder_concurrency: u32 = 4;
    /// How full the queue is, in percent, when workers are added.
    queue_scale_threshold_pct: u8 = 60, file(&["queue_scale_threshold_pct"]), env(&["QUEUE_SCALE_THRESHOLD"]), flag(&["--queue-scale-threshold"]);
    /// How full it is when an announce goes to fewer forwarders.
    queue_throttle_threshold: u8 = 60, file(&["queue_throttle_threshold"]), env(&["QUEUE_THROTTLE_THRESHOLD"]), flag(&["--queue-throttle-threshold"]);
    /// To how many then; 0 turns it off.
    queue_throttle_top_n: usize = 20, file(&["queue_throttle_top_n"]), env(&["QUEUE_THROTTLE_TOP"]), flag(&["--queue-throttle-top"]);
    /// How full it is when new torrents are held to a rate; 0 turns it off.
    queue_rate_limit_threshold: u8 = 80, file(&["queue_rate_limit_threshold"]), env(&["QUEUE_RATE_LIMIT_THRESHOLD"]), flag(&["--queue-rate-limit-threshold"]);
    /// New torrents in a second then.
    rate_limit_initial_per_sec: f64 = 100.0, file(&["rate_limit_initial_per_sec"]), env(&["RATE_LIMIT_INITIAL_PER_SEC"]), flag(&["--rate-limit-initial-ps"]);
    /// And how many of them at once.
    rate_limit_initial_burst: u32 = 200, file(&["rate_limit_initial_burst"]), env(&["RATE_LIMIT_INITIAL_BURST"]), flag(&["--rate-limit-initial-burst"]);
    /// When a client that was held back should come again.
    #[serde(with = "headworks_service::config::seconds")]
    retry_period: Duration = Duration::from_secs(300), file(&["retry_period"]), env(&["RETRY_PERIOD"]);
    /// What a client is told that is held back: `refuse` fails its announce, `serve` answers with
    /// what there is.
    overload: Overload = Overload::Refuse;
    /// How long a forwarder is left alone that has too much to do.
    #[serde(with = "headworks_service::config::seconds")]
    forwarder_suspend_seconds: Duration = Duration::from_secs(300), file(&["forwarder_suspend_seconds"]), env(&["FORWARDER_SUSPEND_SECONDS"]), flag(&["--forwarder-suspend"]);
    /// How long a forwarder may take to answer.
    #[serde(with = "headworks_service::config::seconds")]
    forward_timeout: Duration = Duration::from_secs(30), file(&["forward_timeout"]), env(&["FORWARD_TIMEOUT"]), flag(&["-t"]);
    /// How often a forwarder is tried that does not answer, in all.
    forwarder_retry_attempts: u32 = 5, file(&["forwarder_retry_attempts"]), env(&["FORWARDER_RETRY_ATTEMPTS"]);
    /// The first pause between two attempts, in milliseconds; it doubles.
    forwarder_retry_base_ms: u64 = 500, file(&["forwarder_retry_base_ms"]), env(&["FORWARDER_RETRY_BASE_MS"]);
    /// Failures in a row that suspend a forwarder; 0 for never.
    forwarder_fail_threshold: u32 = 10, file(&["forwarder_fail_threshold"]), env(&["FORWARDER_FAIL_THRESHOLD"]);
    /// How soon a forwarder that was given up is looked at again; the pause doubles up to an hour.
    #[serde(with = "headworks_service::config::seconds")]
    forwarder_probe_seconds: Duration = Duration::from_secs(300);
}

/// What the totals of a swarm count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum CountBy {
    /// An address once.
    Ip,
    /// Every peer.
    Peer,
}

/// Which forwarders an announce goes to when not all can be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Selection {
    /// Any.
    Shuffle,
    /// Those that were worth most lately.
    Yield,
}

/// What a client is told that is held back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Overload {
    /// Its announce fails, with words and a time.
    Refuse,
    /// It gets what there is, and a short interval.
    Serve,
}

fn objections(config: &TrackerConfig) -> Vec<Objection> {
    let mut objections = Vec::new();
    let mut object = |wrong: bool, key, text: &str| {
        if wrong {
            objections.push(Objection::new(key, text));
        }
    };
    object(
        config.max_forwarder_workers < config.forwarder_workers,
        "max_forwarder_workers",
        "must not be below `forwarder_workers`",
    );
    let rate = config.rate_limit_initial_per_sec;
    object(
        !rate.is_finite() || rate < 0.0,
        "rate_limit_initial_per_sec",
        "a positive number, or 0",
    );
    object(
        config.forwarder_workers == 0,
        "forwarder_workers",
        "at least one is needed",
    );
    object(
        config.forwarder_queue_size == 0,
        "forwarder_queue_size",
        "at least one is needed",
    );
    object(
        config.forwarder_concurrency == 0,
        "forwarder_concurrency",
        "at least one is needed",
    );
    object(
        !(1..=2000).contains(&config.max_peers),
        "max_peers",
        "must be 1 to 2000",
    );
    object(
        config.announce_interval < Duration::from_secs(10),
        "announce_interval",
        "at least ten seconds: clients would do nothing else",
    );
    object(
        config.snapshot_interval.is_zero(),
        "snapshot_interval",
        "must be more than nothing",
    );
    for forwarder in &config.forwarders {
        if let Err(problem) = forwarder.check() {
            object(true, "forwarders", &problem);
        }
    }
    objections
}
