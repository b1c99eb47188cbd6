//! With a hundred forwarders that were all asked, beside none at all.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use headworks_tracker_wire::udp::{self, Request, Response};
use headworks_tracker_wire::{Announce, Counts};

use super::contenders::ours;
use super::roles::PEERS;
use super::{Found, OURS, Options, compare};
use crate::process::Process;
use crate::report::Report;

const FORWARDERS: usize = 100;
const TORRENTS: u32 = 100;
const PEERS_EACH: u32 = 100;
/// Packets on their way at once.
const WINDOW: usize = 64;

pub(super) fn run(options: &Options, report: &mut Report) {
    let (none, hundred) = (
        format!("{OURS}, no forwarders"),
        format!("{OURS}, {FORWARDERS} warm forwarders"),
    );
    let (far_side, asked) = far_side();
    let list = (0..FORWARDERS).map(|number| {
        format!("[[tracker.forwarders]]\nuri = 'udp://{far_side}/{number}'\nname = '{number}'\n")
    });
    let list: String = list.collect();
    let large =
        "forwarder_queue_size = 1000000\nmax_forwarder_workers = 64\nforwarder_workers = 64\n";
    let contenders = [
        (none.as_str(), ours("")),
        (hundred.as_str(), ours(&format!("{large}{list}"))),
    ];
    for (_, process) in &contenders {
        Client::new(process.address).all();
    }
    let wanted = FORWARDERS * TORRENTS as usize;
    let start = Instant::now();
    while asked.load(Ordering::Relaxed) < wanted {
        assert!(
            start.elapsed() < Duration::from_secs(120),
            "not everybody is asked"
        );
        std::thread::sleep(Duration::from_millis(50));
    }
    let mut found = [Found::default(), Found::default()];
    for _ in 0..options.rounds {
        for ((_, process), found) in contenders.iter().zip(&mut found) {
            round(options, process, found);
        }
    }
    assert_eq!(asked.load(Ordering::Relaxed), wanted, "nobody was due");
    for ((name, _), found) in contenders.iter().zip(found) {
        found.tell(name, "bytes", report);
    }
    compare(report, &hundred, &none, 1.0 / 0.9, true);
}

fn round(options: &Options, process: &Process, found: &mut Found) {
    let mut client = Client::new(process.address);
    let time = Duration::from_secs(options.seconds);
    let (before, start) = (process.cpu(), Instant::now());
    let (mut answers, mut bytes) = (0, 0);
    while start.elapsed() < time {
        let (more, size) = client.turn();
        (answers, bytes) = (answers + more, bytes + size);
    }
    let (cpu, seconds) = (process.cpu() - before, start.elapsed().as_secs_f64());
    let answers = answers as f64;
    found.add(cpu, seconds, answers, bytes as f64 / answers);
}

/// A client that has many peers.
struct Client {
    socket: UdpSocket,
    connection: u64,
    next: u32,
    packet: Vec<u8>,
}

impl Client {
    fn new(address: SocketAddr) -> Client {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        socket.connect(address).expect("an address");
        let patience = Some(Duration::from_secs(5));
        socket.set_read_timeout(patience).expect("a socket option");
        let mut packet = Vec::new();
        udp::write_connect(1, &mut packet);
        socket.send(&packet).expect("it is sent");
        let mut buffer = [0; 64];
        let length = socket.recv(&mut buffer).expect("an answer");
        let Some(Response::Connect { connection, .. }) = udp::parse_response(&buffer[..length])
        else {
            panic!("no connection id")
        };
        Client {
            socket,
            connection,
            next: 0,
            packet,
        }
    }

    /// Announces every peer once.
    fn all(&mut self) {
        for _ in 0..TORRENTS * PEERS_EACH / WINDOW as u32 + 1 {
            self.turn();
        }
    }

    /// Announces some peers, and takes the answers: how many, and their bytes.
    fn turn(&mut self) -> (usize, usize) {
        for _ in 0..WINDOW {
            self.next = (self.next + 1) % (TORRENTS * PEERS_EACH);
            let mut announce = Announce {
                port: 10_000 + (self.next / TORRENTS) as u16,
                left: Some(1),
                numwant: Some(PEERS as u32),
                ..Announce::default()
            };
            announce.info_hash.0 = [(self.next % TORRENTS) as u8; 20];
            announce.peer_id.0[..4].copy_from_slice(&self.next.to_be_bytes());
            self.packet.clear();
            udp::write_announce(self.connection, self.next, &announce, b"", &mut self.packet);
            self.socket.send(&self.packet).expect("it is sent");
        }
        let mut buffer = [0; 2048];
        let answer = |_| self.socket.recv(&mut buffer).expect("an answer");
        let sizes = (0..WINDOW).map(answer);
        (WINDOW, sizes.sum())
    }
}

/// A UDP tracker that knows nobody, and how often it was asked.
fn far_side() -> (SocketAddr, Arc<AtomicUsize>) {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let (address, asked) = (socket.local_addr().expect("it is bound"), Arc::default());
    let count: Arc<AtomicUsize> = Arc::clone(&asked);
    std::thread::spawn(move || {
        let mut buffer = [0; 2048];
        while let Ok((length, from)) = socket.recv_from(&mut buffer) {
            let mut out = Vec::new();
            match udp::parse_request(&buffer[..length]) {
                Ok(Request::Connect { transaction }) => {
                    udp::write_connect_response(transaction, 1, &mut out);
                }
                Ok(Request::Announce { transaction, .. }) => {
                    count.fetch_add(1, Ordering::Relaxed);
                    udp::write_announce_response(transaction, 7200, Counts::default(), &mut out);
                }
                _ => continue,
            }
            let _ = socket.send_to(&out, from);
        }
    });
    (address, asked)
}
