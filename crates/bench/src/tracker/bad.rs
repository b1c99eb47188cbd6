//! The p99 response time with misbehaving forwarders, compared with no forwarders.

use std::io::IoSliceMut;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use headworks_tracker_wire::Announce;
use headworks_tracker_wire::udp::{self, Response};
use nix::cmsg_space;
use nix::errno::Errno;
use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg, setsockopt, sockopt};
use nix::sys::time::TimeSpec;

use super::contenders::{BOTH, LOAD, role};
use super::{OURS, Options, loopback};
use crate::measure::{median, without_steal};
use crate::process::Process;
use crate::report::Report;

/// The kinds of misbehaviour. A closed port is added to them.
const KINDS: [&str; 8] = [
    "silent", "429", "500", "404", "lie", "large", "bomb", "drip",
];
/// Forwarders per kind.
const EACH: usize = 5;
/// Announces per second.
const RATE: f64 = 2_000.0;
/// More rounds than for a mean, because a p99 also depends on the machine's other programs.
const ROUNDS: usize = 5;
/// Seconds per round.
const SECONDS: u64 = 3;
/// One announce in this many is the first of its torrent and is forwarded.
const NEW: u32 = 20;

pub(super) fn run(options: &Options, report: &mut Report) {
    let (none, bad) = (
        format!("{OURS}, no forwarders, p99"),
        format!("{OURS}, bad forwarders, p99"),
    );
    let forwarders = role(LOAD, "misbehaving", "");
    let contenders = [String::new(), settings(forwarders.address)];
    let pairs = (0..options.rounds * ROUNDS).map(|_| {
        // One at a time, so that pending forwards of one tracker do not disturb the other.
        without_steal(|| contenders.each_ref().map(|settings| p99(settings)))
    });
    let pairs: Vec<[f64; 2]> = pairs.collect();
    let median_of = |of: fn(&[f64; 2]) -> f64| median(pairs.iter().map(of).collect());
    report.row(&none, "ns", median_of(|[plain, _]| *plain), None);
    report.row(&bad, "ns", median_of(|[_, troubled]| *troubled), None);
    // Ratios are taken within a pair, which ran under the same conditions.
    let times = median_of(|[plain, troubled]| troubled / plain);
    report.bound(format!("{bad} ÷ {none}"), times, 1.2);
    let above = median_of(|[plain, troubled]| (troubled - plain) / 1e6);
    report.bound(format!("{bad} above {none}, ms"), above, 1.0);
}

/// Returns the p99 response time in nanoseconds.
fn p99(settings: &str) -> f64 {
    let tracker = role(BOTH, "ours", settings);
    let mut times = response_times(&tracker, SECONDS);
    times.sort_unstable_by(f64::total_cmp);
    times[times.len() * 99 / 100]
}

/// Lists forwarders of every kind. Suspensions and probe pauses are short, so that the forwarders
/// are asked often enough to misbehave.
fn settings(forwarders: SocketAddr) -> String {
    let closed = loopback(Process::free().port());
    let one = |number: usize| {
        let kind = KINDS[number % KINDS.len()];
        format!("http://{forwarders}/{kind}?{number}")
    };
    let uris = (0..KINDS.len() * EACH).map(one);
    let uris = uris.chain([format!("http://{closed}/"), format!("udp://{closed}/")]);
    let list = uris.map(|uri| format!("[[tracker.forwarders]]\nuri = '{uri}'\n"));
    let settings =
        "forward_timeout = '2s'\nforwarder_suspend_seconds = 1\nforwarder_probe_seconds = 1\n";
    settings.to_owned() + &list.collect::<String>()
}

/// Returns the response time of each announce in nanoseconds: from sending until the response
/// reached the socket, by the kernel's timestamp. The delay until this program is scheduled is not
/// the tracker's.
fn response_times(process: &Process, seconds: u64) -> Vec<f64> {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    socket.connect(process.address).expect("an address");
    let timeout = Some(Duration::from_secs(2));
    socket.set_read_timeout(timeout).expect("a socket option");
    setsockopt(&socket, sockopt::ReceiveTimestampns, &true).expect("a socket option");
    let connection = connection(&socket);
    let count = (RATE * seconds as f64) as u32;
    let sender = socket.try_clone().expect("a second handle");
    let sending = std::thread::spawn(move || {
        let start = Instant::now();
        let due = |number: u32| start + Duration::from_secs_f64(f64::from(number) / RATE);
        let send = |number: u32| {
            std::thread::sleep(due(number).saturating_duration_since(Instant::now()));
            let packet = announce(connection, number);
            let now = SystemTime::now();
            sender.send(&packet).expect("the socket accepts it");
            now
        };
        (0..count).map(send).collect::<Vec<_>>()
    });
    let arrivals: Vec<_> = (0..count).map_while(|_| receive(&socket)).collect();
    let sent = sending.join().expect("the sender does not panic");
    check_missing(count as usize - arrivals.len(), process.address, &socket);
    let took = |(number, at): (u32, Duration)| {
        let sent = sent[number as usize].duration_since(UNIX_EPOCH);
        let sent = sent.expect("the clock is right");
        at.saturating_sub(sent).as_nanos() as f64
    };
    arrivals.into_iter().map(took).collect()
}

/// Accounts for announces without a response. When this machine stalls, the sender catches up in a
/// burst, and the kernel drops what does not fit into a socket's buffer. Such drops are
/// not the tracker's fault. Any other missing response fails the run.
fn check_missing(missing: usize, tracker: SocketAddr, socket: &UdpSocket) {
    if missing == 0 {
        return;
    }
    let own = socket.local_addr().expect("a bound socket").port();
    let dropped = dropped_by_kernel(&[tracker.port(), own]);
    assert!(
        missing as u64 <= dropped,
        "{missing} announces have no response, but the kernel dropped only {dropped} datagrams"
    );
    eprintln!("note: the kernel dropped {missing} datagrams because a socket buffer was full");
}

/// Returns the number of datagrams that the kernel dropped at sockets with these local ports, by
/// `/proc/net/udp`.
fn dropped_by_kernel(ports: &[u16]) -> u64 {
    let table = std::fs::read_to_string("/proc/net/udp").expect("Linux has it");
    let drops = table.lines().skip(1).filter_map(|line| {
        let columns: Vec<&str> = line.split_whitespace().collect();
        let (_, port) = columns.get(1)?.split_once(':')?;
        let port = u16::from_str_radix(port, 16).ok()?;
        let drops: u64 = columns.last()?.parse().ok()?;
        ports.contains(&port).then_some(drops)
    });
    drops.sum()
}

fn connection(socket: &UdpSocket) -> u64 {
    let mut packet = Vec::new();
    udp::write_connect(1, &mut packet);
    socket.send(&packet).expect("the socket accepts it");
    let mut buffer = [0; 64];
    let length = socket.recv(&mut buffer).expect("a response");
    match udp::parse_response(&buffer[..length]) {
        Some(Response::Connect { connection, .. }) => connection,
        _ => panic!("no connection id"),
    }
}

fn announce(connection: u64, number: u32) -> Vec<u8> {
    let torrent = match number % NEW {
        0 => number,
        _ => u32::MAX - number % 1000,
    };
    let mut announce = Announce {
        port: 1 + (number % 60_000) as u16,
        left: Some(1),
        ..Announce::default()
    };
    announce.info_hash.0[..4].copy_from_slice(&torrent.to_be_bytes());
    announce.peer_id.0[..4].copy_from_slice(&number.to_be_bytes());
    let mut packet = Vec::new();
    udp::write_announce(connection, number, &announce, b"", &mut packet);
    packet
}

/// Receives a response and returns its transaction id and its arrival time; `None` if none came
/// within the socket's timeout.
fn receive(socket: &UdpSocket) -> Option<(u32, Duration)> {
    let mut buffer = [0; 2048];
    let mut space = cmsg_space!(TimeSpec);
    let mut parts = [IoSliceMut::new(&mut buffer)];
    let (descriptor, flags) = (socket.as_raw_fd(), MsgFlags::empty());
    let message = match recvmsg::<()>(descriptor, &mut parts, Some(&mut space), flags) {
        Ok(message) => message,
        Err(Errno::EAGAIN) => return None,
        Err(error) => panic!("cannot receive: {error}"),
    };
    let stamp = message
        .cmsgs()
        .expect("no truncation")
        .find_map(|part| match part {
            ControlMessageOwned::ScmTimestampns(at) => Some(Duration::from(at)),
            _ => None,
        });
    let number = buffer[4..8].try_into().expect("four bytes");
    Some((u32::from_be_bytes(number), stamp.expect("a timestamp")))
}
