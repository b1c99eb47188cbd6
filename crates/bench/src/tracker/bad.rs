//! With forwarders that do everything wrong, beside none at all: how long a client waits.

use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use headworks_tracker_wire::Announce;
use headworks_tracker_wire::udp::{self, Answer};

use super::contenders::{ours, role};
use super::{OURS, Options, loopback};
use crate::measure::median;
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
/// One announce in so many is the first of its torrent, and goes on to forwarders.
const NEW: u32 = 20;

pub(super) fn run(options: &Options, report: &mut Report) {
    let (none, bad) = (
        format!("{OURS}, no forwarders, p99"),
        format!("{OURS}, bad forwarders, p99"),
    );
    let far_side = role(1, "misbehaving", "");
    let contenders = [ours(""), ours(&settings(far_side.address))];
    let mut found = [Vec::new(), Vec::new()];
    for round in 0..options.rounds as u32 {
        for (process, found) in contenders.iter().zip(&mut found) {
            let mut times = announces(process, round, options.seconds);
            times.sort_unstable_by(f64::total_cmp);
            found.push(times[times.len() * 99 / 100]);
        }
    }
    let [plain, troubled] = found.map(median);
    report.row(&none, "ns", plain, None);
    report.row(&bad, "ns", troubled, None);
    report.bound(format!("{bad} ÷ {none}"), troubled / plain, 1.2);
    let above = (troubled - plain) / 1e6;
    report.bound(format!("{bad} above {none}, ms"), above, 1.0);
}

/// Forwarders of every kind, kept at it: suspensions are short, and whoever is disabled is looked at again soon.
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

/// How long each announce waited for its answer, from when it was due, in nanoseconds.
fn announces(process: &Process, round: u32, seconds: u64) -> Vec<f64> {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    socket.connect(process.address).expect("an address");
    let patience = Some(Duration::from_secs(2));
    socket.set_read_timeout(patience).expect("a socket option");
    let mut packet = Vec::new();
    udp::write_connect(1, &mut packet);
    socket.send(&packet).expect("it is sent");
    let mut buffer = [0; 2048];
    let length = socket.recv(&mut buffer).expect("an answer");
    let Some(Answer::Connect { connection, .. }) = udp::read_answer(&buffer[..length]) else {
        panic!("no connection id")
    };
    let count = (RATE * seconds as f64) as u32;
    let start = Instant::now() + Duration::from_millis(20);
    let due = |number: u32| start + Duration::from_secs_f64(f64::from(number) / RATE);
    let sender = socket.try_clone().expect("a second handle");
    let sending = std::thread::spawn(move || {
        for number in 0..count {
            std::thread::sleep(due(number).saturating_duration_since(Instant::now()));
            let new = number % NEW == 0;
            let torrent = if new {
                round << 24 | number
            } else {
                u32::MAX - number % 1000
            };
            let mut announce = Announce {
                port: 1 + (number % 60_000) as u16,
                left: Some(1),
                ..Announce::default()
            };
            announce.info_hash.0[..4].copy_from_slice(&torrent.to_be_bytes());
            announce.peer_id.0[..4].copy_from_slice(&number.to_be_bytes());
            packet.clear();
            udp::write_announce(connection, number, &announce, b"", &mut packet);
            sender.send(&packet).expect("it is sent");
        }
    });
    let mut times = Vec::with_capacity(count as usize);
    while times.len() < count as usize {
        let length = socket.recv(&mut buffer).expect("an answer to each");
        let transaction = buffer[..length].get(4..8).and_then(|b| b.try_into().ok());
        let number = u32::from_be_bytes(transaction.expect("a whole answer"));
        times.push(due(number).elapsed().as_nanos() as f64);
    }
    sending.join().expect("the sender does not panic");
    times
}
