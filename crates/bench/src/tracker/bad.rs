//! With forwarders that do everything wrong, beside none at all: how long a client waits.

use std::io::IoSliceMut;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use headworks_tracker_wire::Announce;
use headworks_tracker_wire::udp::{self, Response};
use nix::cmsg_space;
use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg, setsockopt, sockopt};
use nix::sys::time::TimeSpec;

use super::contenders::{BOTH, LOAD, role};
use super::{OURS, Options, loopback};
use crate::measure::{median, undisturbed};
use crate::process::Process;
use crate::report::Report;

/// What a forwarder does wrong; the last one's port has nobody.
const WAYS: [&str; 8] = [
    "silent", "429", "500", "404", "lie", "large", "bomb", "drip",
];
/// Forwarders of each kind.
const EACH: usize = 5;
/// Announces a second.
const RATE: f64 = 2_000.0;
/// The slowest hundredth is also what other programs of the machine make of it: it takes more
/// rounds than a mean does.
const ROUNDS: usize = 5;
/// How long each of them is, in seconds.
const SECONDS: u64 = 3;
/// One announce in so many is the first of its torrent, and goes on to forwarders.
const NEW: u32 = 20;

pub(super) fn run(options: &Options, report: &mut Report) {
    let (none, bad) = (
        format!("{OURS}, no forwarders, p99"),
        format!("{OURS}, bad forwarders, p99"),
    );
    let far_side = role(LOAD, "misbehaving", "");
    let contenders = [String::new(), settings(far_side.address)];
    let pairs = (0..options.rounds * ROUNDS).map(|_| {
        // One at a time: what a tracker still has to ask must not be in the way of the other.
        undisturbed(|| {
            contenders
                .each_ref()
                .map(|settings| slowest_hundredth(settings))
        })
    });
    let pairs: Vec<[f64; 2]> = pairs.collect();
    let middle = |of: fn(&[f64; 2]) -> f64| median(pairs.iter().map(of).collect());
    report.row(&none, "ns", middle(|[plain, _]| *plain), None);
    report.row(&bad, "ns", middle(|[_, troubled]| *troubled), None);
    // Within a pair the machine is the same for both.
    let times = middle(|[plain, troubled]| troubled / plain);
    report.bound(format!("{bad} ÷ {none}"), times, 1.2);
    let above = middle(|[plain, troubled]| (troubled - plain) / 1e6);
    report.bound(format!("{bad} above {none}, ms"), above, 1.0);
}

/// What one announce in a hundred waits for its answer at least, in nanoseconds.
fn slowest_hundredth(settings: &str) -> f64 {
    let tracker = role(BOTH, "ours", settings);
    let mut times = announces(&tracker, SECONDS);
    times.sort_unstable_by(f64::total_cmp);
    times[times.len() * 99 / 100]
}

/// Forwarders of every kind, kept at it: suspensions are short, and whoever is disabled is looked
/// at again soon.
fn settings(far_side: SocketAddr) -> String {
    let nobody = loopback(Process::free().port());
    let one = |number: usize| {
        let way = WAYS[number % WAYS.len()];
        format!("http://{far_side}/{way}?{number}")
    };
    let uris = (0..WAYS.len() * EACH).map(one);
    let uris = uris.chain([format!("http://{nobody}/"), format!("udp://{nobody}/")]);
    let list = uris.map(|uri| format!("[[tracker.forwarders]]\nuri = '{uri}'\n"));
    let settings =
        "forward_timeout = '2s'\nforwarder_suspend_seconds = 1\nforwarder_probe_seconds = 1\n";
    settings.to_owned() + &list.collect::<String>()
}

/// How long each announce waited for its answer, in nanoseconds: from when it was sent until its
/// answer reached the socket, as the kernel saw it. When this program was given the CPU to look at
/// it is not the tracker's doing.
fn announces(process: &Process, seconds: u64) -> Vec<f64> {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    socket.connect(process.address).expect("an address");
    let patience = Some(Duration::from_secs(2));
    socket.set_read_timeout(patience).expect("a socket option");
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
            sender.send(&packet).expect("it is sent");
            now
        };
        (0..count).map(send).collect::<Vec<_>>()
    });
    let answered: Vec<_> = (0..count).map(|_| answer(&socket)).collect();
    let sent = sending.join().expect("the sender does not panic");
    let waited = |(number, at): (u32, Duration)| {
        let sent = sent[number as usize].duration_since(UNIX_EPOCH);
        let sent = sent.expect("the clock is right");
        at.saturating_sub(sent).as_nanos() as f64
    };
    answered.into_iter().map(waited).collect()
}

fn connection(socket: &UdpSocket) -> u64 {
    let mut packet = Vec::new();
    udp::write_connect(1, &mut packet);
    socket.send(&packet).expect("it is sent");
    let mut buffer = [0; 64];
    let length = socket.recv(&mut buffer).expect("an answer");
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

/// The number of the next answer, and when it reached the socket.
fn answer(socket: &UdpSocket) -> (u32, Duration) {
    let mut buffer = [0; 2048];
    let mut space = cmsg_space!(TimeSpec);
    let mut parts = [IoSliceMut::new(&mut buffer)];
    let (descriptor, flags) = (socket.as_raw_fd(), MsgFlags::empty());
    let message = recvmsg::<()>(descriptor, &mut parts, Some(&mut space), flags);
    let message = message.expect("an answer to each");
    let stamp = message
        .cmsgs()
        .expect("all of it")
        .find_map(|part| match part {
            ControlMessageOwned::ScmTimestampns(at) => Some(Duration::from(at)),
            _ => None,
        });
    let number = buffer[4..8].try_into().expect("four bytes");
    (u32::from_be_bytes(number), stamp.expect("a time"))
}
