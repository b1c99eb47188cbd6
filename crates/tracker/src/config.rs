//! The `[tracker]` section, with the keys, flags and environment names of the predecessor as
//! aliases.

use crate::forwarders::Forwarder;
use crate::listen::Listen;
use headworks_service::config::ValidationError;
use headworks_service::proxies::{ClientHeader, Network};
use serde::{Deserialize, Serialize};
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

headworks_service::section! {
    /// A tracker that answers clients from memory and forwards their announces to other trackers.
    pub struct TrackerConfig = "tracker", check = validate;

    /// Listening addresses for HTTP: an address, or `:6969` for all addresses of this machine;
    /// empty to turn HTTP off.
    listen: Listen = Listen::loopback(6969), example("\":6969\""), file(&["listen"]), env(&["LISTEN"]), flag(&["-l"]), restart();
    /// Listening addresses for UDP, in the same form.
    udp_listen: Listen = Listen::loopback(6969), example("\":6969\""), file(&["udp_listen"]), env(&["UDP_LISTEN"]), flag(&["-u"]), restart();
    /// Threads per transport; 0 for one per core.
    workers: usize = 0, restart();
    /// The most open HTTP connections, over all threads.
    max_connections: usize = 20_000, restart();
    /// The most open HTTP connections per client address (of IPv6, per network of 64 bits). Trusted
    /// proxies are exempt.
    max_connections_per_address: usize = 1_000;
    /// The time between two announces of a client.
    #[serde(with = "headworks_service::config::seconds")]
    announce_interval: Duration = Duration::from_secs(1800), file(&["announce_interval"]), env(&["ANNOUNCE_INTERVAL"]);
    /// The time until the next announce while the first forwards of a torrent are pending.
    #[serde(with = "headworks_service::config::seconds")]
    first_interval: Duration = Duration::from_secs(90);
    /// The most peers in a response, and the default if the client does not ask for a number.
    max_peers: u32 = 50;
    /// The time after which a peer that does not announce is removed. A plain number is minutes.
    #[serde(with = "headworks_service::config::minutes")]
    age: Duration = Duration::from_secs(180 * 60), file(&["age"]), env(&["AGE"]), flag(&["-a"]);
    /// The most torrents stored. Announces beyond a limit are answered, but not stored.
    max_torrents: usize = 5_000_000;
    /// The most torrents stored per client address (of IPv6, per network of 64 bits).
    max_torrents_per_client: usize = 50_000;
    /// The most peers stored per client address (of IPv6, per network of 64 bits) in one torrent.
    max_peers_per_client: usize = 100;
    /// The unit of a swarm's totals: `ip` counts every IP address once, `peer` counts every peer.
    count_by: CountBy = CountBy::Ip, restart();
    /// Whether a scrape without a torrent returns all torrents.
    full_scrape: bool = false;
    /// Whether a client may set its address with `ip=`. With it, a client can direct a swarm at any
    /// address.
    allow_ip_parameter: bool = false;
    /// Whether a trusted proxy passes the client's address in `X-Real-IP`.
    x_real_ip: bool = false, file(&["x_real_ip"]), env(&["X_REAL_IP"]), flag(&["-x"]);
    /// Proxies that may report the client's address. With `x_real_ip` and an empty list: those on
    /// this machine.
    trusted_proxies: Vec<Network> = Vec::new(), example("[\"127.0.0.1\", \"10.0.0.0/8\"]");
    /// The header in which they report it.
    client_header: ClientHeader = ClientHeader::XForwardedFor;
    /// A file with the only torrents to serve, one hexadecimal info hash per line.
    allow_hashes_file: Option<PathBuf> = None, example("\"allowed.txt\"");
    /// A file with torrents not to serve, in the same format.
    deny_hashes_file: Option<PathBuf> = None, example("\"denied.txt\"");
    /// The only networks to serve; all if it is not set.
    allow_clients: Option<Vec<Network>> = None, example("[\"10.0.0.0/8\", \"fd00::/8\"]");
    /// Networks not to serve.
    deny_clients: Vec<Network> = Vec::new(), example("[\"192.0.2.0/24\"]");
    /// A file that keeps swarms and peers from forwarders across a restart.
    snapshot_file: Option<PathBuf> = None, example("\"/var/lib/headworks/tracker.snapshot\""), restart();
    /// The time between two snapshots. Another one is written at shutdown.
    #[serde(with = "headworks_service::config::seconds")]
    snapshot_interval: Duration = Duration::from_secs(300), restart();
    /// The `tracker id` sent to clients, which they send back.
    tracker_id: String = String::new(), file(&["tracker_id"]), env(&["TRACKER_ID"]);

    /// Trackers to forward announces to.
    forwarders: Vec<Forwarder> = Vec::new(), example("[[tracker.forwarders]]\nuri = \"udp://tracker.example:1337/announce\""), file(&["forwarders"]);
    /// A file or URL with more forwarders: one URI per line, or YAML or JSON with a list of `uri`,
    /// and optionally `name`, `ip` and `host`.
    forwarders_file: Option<PathBuf> = None, example("\"forwarders.yml\""), file(&["forwarders_file", "forwards"]), env(&["FORWARDERS"]), flag(&["-f"]);
    /// More such files and URLs. Lists at URLs are fetched regularly; the last good copy is used
    /// while that fails.
    forwarder_lists: Vec<String> = Vec::new(), example("[\"https://example.com/trackers.txt\", \"mine.txt\"]");
    /// The time between two fetches of a list.
    #[serde(with = "headworks_service::config::seconds")]
    forwarder_lists_refresh: Duration = Duration::from_secs(24 * 3600);
    /// The folder for the copies of lists; by default that of the snapshot, or the user's folder
    /// for state.
    forwarder_lists_folder: Option<PathBuf> = None, example("\"/var/lib/headworks\""), restart();
    /// The selection when an announce cannot go to all forwarders: `shuffle` is random, `yield`
    /// prefers those that recently reported the most new peers soonest, and explores others.
    forwarder_selection: Selection = Selection::Shuffle;
    /// The public addresses of this machine or its network, which forwarders report like any other
    /// peer. They are also learned from responses.
    public_addresses: Vec<IpAddr> = Vec::new(), example("[\"198.51.100.7\"]");
    /// Only ask for peers: forwarders receive no events, peer ids or totals of clients, only what
    /// the protocol requires.
    ask_only: bool = false;
    /// A file with torrents that are never forwarded, one hexadecimal info hash per line.
    never_forward_file: Option<PathBuf> = None, example("\"private.txt\"");
    /// The most forwarders per announce.
    max_forwarders_per_announce: usize = 100, file(&["max_forwarders_per_announce"]), env(&["MAX_FORWARDERS_PER_ANNOUNCE"]);
    /// The most peers from forwarders kept per torrent.
    max_cached_peers: usize = 500;
    /// The capacity of the forward queue.
    forwarder_queue_size: usize = 10_000, file(&["forwarder_queue_size"]), env(&["FORWARDER_QUEUE_SIZE"]), flag(&["-Q"]);
    /// The local peers of a torrent that are announced to forwarders: `all` of them, up to ten, or
    /// only `one` at a time.
    announce_peers: AnnouncePeers = AnnouncePeers::All;
    /// The most requests that wait for responses of UDP forwarders at once.
    forwarder_in_flight: usize = 4096;
    /// The number of workers, each with one announce over HTTP at a time.
    forwarder_workers: usize = 10, file(&["forwarder_workers"]), env(&["FORWARDER_WORKERS"]), flag(&["-w"]);
    /// The number of workers when the queue is filling up.
    max_forwarder_workers: usize = 20, file(&["max_forwarder_workers"]), env(&["MAX_FORWARDER_WORKERS"]), flag(&["-W"]);
    /// The most concurrent forwards per forwarder.
    forwarder_concurrency: u32 = 4;
    /// The fill of the queue, in percent, above which workers are added.
    queue_scale_threshold_pct: u8 = 60, file(&["queue_scale_threshold_pct"]), env(&["QUEUE_SCALE_THRESHOLD"]), flag(&["--queue-scale-threshold"]);
    /// The fill of the queue, in percent, above which an announce goes to fewer forwarders.
    queue_throttle_threshold: u8 = 60, file(&["queue_throttle_threshold"]), env(&["QUEUE_THROTTLE_THRESHOLD"]), flag(&["--queue-throttle-threshold"]);
    /// The most forwarders per announce then; 0 turns throttling off.
    queue_throttle_top_n: usize = 20, file(&["queue_throttle_top_n"]), env(&["QUEUE_THROTTLE_TOP"]), flag(&["--queue-throttle-top"]);
    /// The fill of the queue, in percent, above which new torrents are rate-limited; 0 turns it
    /// off.
    queue_rate_limit_threshold: u8 = 80, file(&["queue_rate_limit_threshold"]), env(&["QUEUE_RATE_LIMIT_THRESHOLD"]), flag(&["--queue-rate-limit-threshold"]);
    /// The rate of new torrents per second then.
    rate_limit_initial_per_sec: f64 = 100.0, file(&["rate_limit_initial_per_sec"]), env(&["RATE_LIMIT_INITIAL_PER_SEC"]), flag(&["--rate-limit-initial-ps"]);
    /// The burst of new torrents then.
    rate_limit_initial_burst: u32 = 200, file(&["rate_limit_initial_burst"]), env(&["RATE_LIMIT_INITIAL_BURST"]), flag(&["--rate-limit-initial-burst"]);
    /// The retry time sent to a rate-limited client.
    #[serde(with = "headworks_service::config::seconds")]
    retry_period: Duration = Duration::from_secs(300), file(&["retry_period"]), env(&["RETRY_PERIOD"]);
    /// The response to a client whose announce cannot be forwarded: `refuse` sends a failure,
    /// `serve` sends the known peers.
    overload: Overload = Overload::Refuse;
    /// The suspension of an overloaded forwarder.
    #[serde(with = "headworks_service::config::seconds")]
    forwarder_suspend_seconds: Duration = Duration::from_secs(300), file(&["forwarder_suspend_seconds"]), env(&["FORWARDER_SUSPEND_SECONDS"]), flag(&["--forwarder-suspend"]);
    /// The timeout of a request to a forwarder.
    #[serde(with = "headworks_service::config::seconds")]
    forward_timeout: Duration = Duration::from_secs(30), file(&["forward_timeout"]), env(&["FORWARD_TIMEOUT"]), flag(&["-t"]);
    /// The number of attempts per forward.
    forwarder_retry_attempts: u32 = 5, file(&["forwarder_retry_attempts"]), env(&["FORWARDER_RETRY_ATTEMPTS"]);
    /// The first pause between two attempts, in milliseconds. It doubles with each attempt.
    forwarder_retry_base_ms: u64 = 500, file(&["forwarder_retry_base_ms"]), env(&["FORWARDER_RETRY_BASE_MS"]);
    /// The number of consecutive failures that suspends a forwarder; 0 for never.
    forwarder_fail_threshold: u32 = 10, file(&["forwarder_fail_threshold"]), env(&["FORWARDER_FAIL_THRESHOLD"]);
    /// The pause before a disabled forwarder is probed. It doubles up to an hour.
    #[serde(with = "headworks_service::config::seconds")]
    forwarder_probe_seconds: Duration = Duration::from_secs(300);
}

impl TrackerConfig {
    /// Returns the files and URLs that hold lists of forwarders.
    pub(crate) fn list_sources(&self) -> impl Iterator<Item = String> + '_ {
        let file = self.forwarders_file.iter();
        let file = file.map(|path| path.to_string_lossy().into_owned());
        file.chain(self.forwarder_lists.iter().cloned())
    }
}

/// The unit of a swarm's totals.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum CountBy {
    /// Every IP address once.
    Ip,
    /// Every peer.
    Peer,
}

/// The local peers of a torrent that are announced to forwarders.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum AnnouncePeers {
    /// All, up to ten.
    All,
    /// One at a time.
    One,
}

impl AnnouncePeers {
    /// Returns the most peers of a torrent that are announced.
    pub(crate) fn limit(self) -> usize {
        match self {
            AnnouncePeers::All => 10,
            AnnouncePeers::One => 1,
        }
    }
}

/// The selection of forwarders when an announce cannot go to all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Selection {
    /// Random.
    Shuffle,
    /// The highest score first, with some exploration.
    Yield,
}

/// The response to a client whose announce cannot be forwarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Overload {
    /// A failure with a retry time.
    Refuse,
    /// The known peers and a short interval.
    Serve,
}

fn validate(config: &TrackerConfig) -> Vec<ValidationError> {
    let mut errors = Vec::new();
    let mut object = |invalid: bool, key, text: &str| {
        if invalid {
            errors.push(ValidationError::new(key, text));
        }
    };
    object(
        config.max_forwarder_workers < config.forwarder_workers,
        "max_forwarder_workers",
        "must not be below `forwarder_workers` (`-w`); raise it with `-W`",
    );
    let rate = config.rate_limit_initial_per_sec;
    object(
        !rate.is_finite() || rate < 0.0,
        "rate_limit_initial_per_sec",
        "must be 0 or a positive number",
    );
    object(
        config.allow_clients.as_ref().is_some_and(Vec::is_empty),
        "allow_clients",
        "is empty, so that no client would be served; older versions wrote this line and served \
         everybody: delete it to do so, or list networks such as \"10.0.0.0/8\"",
    );
    object(
        config.forwarder_workers == 0,
        "forwarder_workers",
        "must be at least 1",
    );
    object(
        config.forwarder_queue_size == 0,
        "forwarder_queue_size",
        "must be at least 1",
    );
    object(
        config.forwarder_in_flight == 0,
        "forwarder_in_flight",
        "must be at least 1",
    );
    object(
        config.forwarder_concurrency == 0,
        "forwarder_concurrency",
        "must be at least 1",
    );
    object(
        !(1..=2000).contains(&config.max_peers),
        "max_peers",
        "must be 1 to 2000",
    );
    object(
        config.announce_interval < Duration::from_secs(10),
        "announce_interval",
        "must be at least 10 seconds",
    );
    object(
        config.forwarder_lists_refresh < Duration::from_secs(60),
        "forwarder_lists_refresh",
        "must be at least 60 seconds",
    );
    object(
        config.snapshot_interval.is_zero(),
        "snapshot_interval",
        "must be more than 0",
    );
    for forwarder in &config.forwarders {
        if let Err(problem) = forwarder.check() {
            object(true, "forwarders", &problem);
        }
    }
    errors
}
