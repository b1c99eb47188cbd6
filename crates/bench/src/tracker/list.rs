//! A list as people publish it: good forwarders beside many dead ones, from a cold start with
//! default settings.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use headworks_tracker_wire::udp::{self, Request};
use headworks_tracker_wire::{Announce, Counts};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, UdpSocket};

use super::contenders::{BOTH, role};
use super::{OURS, Options};
use crate::measure::median;
use crate::process::Process;
use crate::report::Report;

/// Good forwarders, and the time that each takes to respond.
const GOOD: usize = 10;
const DELAY: Duration = Duration::from_millis(50);
/// The time that a slow forwarder takes.
const SLOW: Duration = Duration::from_secs(5);
/// Its response over HTTP.
const RESPONSE: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 26\r\n\r\nd8:intervali900e5:peers0:e";
const TORRENTS: u32 = 50;
/// The numbers of bad forwarders.
const BAD: [usize; 4] = [0, 20, 200, 1500];
/// The longest that a round may take.
const PATIENCE: Duration = Duration::from_secs(300);
/// Cold starts that must not raise a false alarm, in batches that run at once.
const STARTS: usize = 100;
const BATCH: usize = 25;
/// The time after which every silent forwarder has run into its timeout.
const ALL_SILENT: Duration = Duration::from_secs(40);

pub(super) fn run(options: &Options, report: &mut Report) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .expect("a runtime can be built");
    let name =
        |bad: usize| format!("{OURS}, {GOOD} good and {bad} bad forwarders, {TORRENTS} torrents");
    for bad in BAD {
        let rounds = (0..options.rounds).map(|_| runtime.block_on(cold_start(bad)));
        let times = rounds.map(|time| time.as_nanos() as f64).collect();
        report.row(&name(bad), "ns", median(times), None);
    }
    for bad in &BAD[1..] {
        report.ratio(&name(*bad), &name(0), 1.5);
    }
    let alarms: f64 = (0..STARTS / BATCH)
        .map(|_| runtime.block_on(false_alarms()))
        .sum();
    report.bound(
        format!("{OURS}, false alarms in {STARTS} cold starts"),
        alarms,
        0.0,
    );
}

/// The pairs of good forwarder and torrent that were asked.
type Asked = Arc<Mutex<HashSet<(usize, [u8; 20])>>>;

/// The forwarders of one round, which end with it.
struct Forwarders {
    asked: Asked,
    list: String,
    tasks: Vec<tokio::task::JoinHandle<()>>,
    _silent: Vec<std::net::UdpSocket>,
    _silent_http: Vec<std::net::TcpListener>,
}

impl Drop for Forwarders {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

impl Forwarders {
    /// Starts good forwarders and `bad` others over both transports: silent, refusing, unknown and
    /// slow ones.
    async fn start(bad: usize) -> Forwarders {
        let mut forwarders = Forwarders {
            asked: Arc::default(),
            list: String::new(),
            tasks: Vec::new(),
            _silent: Vec::new(),
            _silent_http: Vec::new(),
        };
        for number in 0..GOOD {
            forwarders.respond(number, DELAY).await;
        }
        for number in 0..bad {
            match number % 8 {
                0 => {
                    let socket = std::net::UdpSocket::bind("127.0.0.1:0").expect("a socket");
                    let address = socket.local_addr().expect("a bound address");
                    forwarders.add("udp", address);
                    forwarders._silent.push(socket);
                }
                1 => forwarders.add("udp", Process::free()),
                2 => {
                    let _ = writeln!(
                        forwarders.list,
                        "udp://tracker-{number}.invalid:80/announce"
                    );
                }
                3 => forwarders.respond(GOOD + number, SLOW).await,
                4 => {
                    // The kernel completes connections that nobody accepts.
                    let socket = std::net::TcpListener::bind("127.0.0.1:0").expect("a socket");
                    forwarders.add("http", socket.local_addr().expect("a bound address"));
                    forwarders._silent_http.push(socket);
                }
                5 => forwarders.add("http", Process::free()),
                6 => {
                    let _ = writeln!(forwarders.list, "http://tracker-{number}.invalid/announce");
                }
                _ => forwarders.respond_slowly_over_http().await,
            }
        }
        forwarders
    }

    fn add(&mut self, scheme: &str, address: SocketAddr) {
        let _ = writeln!(self.list, "{scheme}://{address}/announce");
    }

    /// Starts a slow forwarder over HTTP.
    async fn respond_slowly_over_http(&mut self) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a socket");
        self.add("http", listener.local_addr().expect("a bound address"));
        self.tasks.push(tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                tokio::spawn(async move {
                    // A request of the tracker fits into one segment.
                    let mut buffer = [0; 4096];
                    while stream
                        .read(&mut buffer)
                        .await
                        .is_ok_and(|length| length > 0)
                    {
                        tokio::time::sleep(SLOW).await;
                        if stream.write_all(RESPONSE).await.is_err() {
                            return;
                        }
                    }
                });
            }
        }));
    }

    /// Starts a forwarder that responds after a delay.
    async fn respond(&mut self, number: usize, delay: Duration) {
        let socket = Arc::new(UdpSocket::bind("127.0.0.1:0").await.expect("a socket"));
        self.add("udp", socket.local_addr().expect("a bound address"));
        let asked = self.asked.clone();
        self.tasks.push(tokio::spawn(async move {
            let mut buffer = [0; 2048];
            while let Ok((length, from)) = socket.recv_from(&mut buffer).await {
                let mut out = Vec::new();
                match udp::parse_request(&buffer[..length]) {
                    Ok(Request::Connect { transaction }) => {
                        udp::write_connect_response(transaction, 9, &mut out);
                    }
                    Ok(Request::Announce {
                        transaction,
                        announce,
                        ..
                    }) => {
                        if number < GOOD {
                            let pair = (number, announce.info_hash.0);
                            asked.lock().expect("no panic").insert(pair);
                        }
                        udp::write_announce_response(transaction, 900, Counts::default(), &mut out);
                    }
                    _ => continue,
                }
                let socket = socket.clone();
                tokio::spawn(async move {
                    tokio::time::sleep(delay).await;
                    let _ = socket.send_to(&out, from).await;
                });
            }
        }));
    }

    /// Starts our tracker with these forwarders.
    fn tracker(&self) -> Process {
        let name = format!(
            "headworks-bench-{}-{}.txt",
            std::process::id(),
            self.list.len()
        );
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, &self.list).expect("a folder for temporary files");
        let tracker = role(
            BOTH,
            "ours",
            &format!("forwarder_lists = ['{}']\n", path.display()),
        );
        let _ = std::fs::remove_file(path);
        tracker
    }
}

/// Returns the time until the good forwarders have been asked for all torrents.
async fn cold_start(bad: usize) -> Duration {
    let forwarders = Forwarders::start(bad).await;
    let tracker = forwarders.tracker();
    let start = Instant::now();
    announce(tracker.address, TORRENTS).await;
    let all = GOOD * TORRENTS as usize;
    while forwarders.asked.lock().expect("no panic").len() < all && start.elapsed() < PATIENCE {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    start.elapsed()
}

/// Returns the number of outages that trackers declared, although nothing was wrong but their
/// lists.
async fn false_alarms() -> f64 {
    let mut running = Vec::new();
    for _ in 0..BATCH {
        let forwarders = Forwarders::start(BAD[1]).await;
        let tracker = forwarders.tracker();
        announce(tracker.address, 5).await;
        running.push((tracker, forwarders));
    }
    tokio::time::sleep(ALL_SILENT).await;
    let outages = running.iter().map(|(tracker, _)| outages(tracker.address));
    outages.sum()
}

async fn announce(tracker: SocketAddr, torrents: u32) {
    let socket = UdpSocket::bind("127.0.0.1:0").await.expect("a socket");
    socket.connect(tracker).await.expect("an address");
    let (mut packet, mut buffer) = (Vec::new(), [0; 2048]);
    udp::write_connect(1, &mut packet);
    socket.send(&packet).await.expect("the socket accepts it");
    let length = socket.recv(&mut buffer).await.expect("a response");
    let Some(udp::Response::Connect { connection, .. }) = udp::parse_response(&buffer[..length])
    else {
        panic!("no connection id")
    };
    for torrent in 0..torrents {
        let mut announce = Announce {
            port: 6881,
            left: Some(1),
            ..Announce::default()
        };
        announce.info_hash.0[..4].copy_from_slice(&torrent.to_be_bytes());
        packet.clear();
        udp::write_announce(connection, torrent, &announce, b"", &mut packet);
        socket.send(&packet).await.expect("the socket accepts it");
        socket.recv(&mut buffer).await.expect("a response");
    }
}

/// Returns the number of outages that a tracker has declared.
fn outages(tracker: SocketAddr) -> f64 {
    let mut stream = TcpStream::connect(tracker).expect("the tracker listens");
    let request = "GET /metrics HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n";
    stream.write_all(request.as_bytes()).expect("a request");
    let mut page = String::new();
    stream.read_to_string(&mut page).expect("a page");
    let value =
        (page.lines()).find_map(|line| line.strip_prefix("headworks_tracker_outages_total "));
    value
        .and_then(|value| value.parse().ok())
        .expect("the metric")
}
