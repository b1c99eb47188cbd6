//! A hundred forwarders that are not due, compared with no forwarders.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use headworks_tracker_wire::udp::{self, Request, Response};
use headworks_tracker_wire::{Announce, Counts};

use super::contenders::ours;
use super::roles::PEERS;
use super::{OURS, Options, Samples, compare};
use crate::process::Process;
use crate::report::Report;

const FORWARDERS: usize = 100;
const TORRENTS: u32 = 100;
const PEERS_EACH: u32 = 100;
/// Packets in flight.
const WINDOW: usize = 64;

pub(super) fn run(options: &Options, report: &mut Report) {
    let (none, hundred) = (
        format!("{OURS}, no forwarders"),
        format!("{OURS}, {FORWARDERS} warm forwarders"),
    );
    let (forwarder, asked) = spawn_forwarder();
    let list = (0..FORWARDERS).map(|number| {
        format!("[[tracker.forwarders]]\nuri = 'udp://{forwarder}/{number}'\nname = '{number}'\n")
    });
    let list: String = list.collect();
    let large =
        "forwarder_queue_size = 1000000\nmax_forwarder_workers = 64\nforwarder_workers = 64\n";
    let contenders = [
        (none.as_str(), ours("")),
        (hundred.as_str(), ours(&format!("{large}{list}"))),
    ];
    for (_, process) in &contenders {
        Client::new(process.address).announce_all();
    }
    let wanted = FORWARDERS * TORRENTS as usize;
    let start = Instant::now();
    while asked.load(Ordering::Relaxed) < wanted {
        assert!(
            start.elapsed() < Duration::from_secs(120),
            "not every forwarder was asked"
        );
        std::thread::sleep(Duration::from_millis(50));
    }
    let mut samples = [Samples::default(), Samples::default()];
    for _ in 0..options.rounds {
        for ((_, process), samples) in contenders.iter().zip(&mut samples) {
            round(options, process, samples);
        }
    }
    assert_eq!(
        asked.load(Ordering::Relaxed),
        wanted,
        "no forwarder was due"
    );
    for ((name, _), samples) in contenders.iter().zip(samples) {
        samples.report(name, "bytes", report);
    }
    compare(report, &hundred, &none, 1.0 / 0.9, true);
}

fn round(options: &Options, process: &Process, samples: &mut Samples) {
    let mut client = Client::new(process.address);
    let time = Duration::from_secs(options.seconds);
    let (before, start) = (process.cpu(), Instant::now());
    let (mut responses, mut bytes) = (0, 0);
    while start.elapsed() < time {
        let (more, size) = client.exchange();
        (responses, bytes) = (responses + more, bytes + size);
    }
    let (cpu, seconds) = (process.cpu() - before, start.elapsed().as_secs_f64());
    let responses = responses as f64;
    samples.add(cpu, seconds, responses, bytes as f64 / responses);
}

/// A client with many peers.
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
        let timeout = Some(Duration::from_secs(5));
        socket.set_read_timeout(timeout).expect("a socket option");
        let mut packet = Vec::new();
        udp::write_connect(1, &mut packet);
        socket.send(&packet).expect("the socket accepts it");
        let mut buffer = [0; 64];
        let length = socket.recv(&mut buffer).expect("a response");
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
    fn announce_all(&mut self) {
        for _ in 0..TORRENTS * PEERS_EACH / WINDOW as u32 + 1 {
            self.exchange();
        }
    }

    /// Announces some peers and receives the responses. Returns their number and size in bytes.
    fn exchange(&mut self) -> (usize, usize) {
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
            self.socket
                .send(&self.packet)
                .expect("the socket accepts it");
        }
        let mut buffer = [0; 2048];
        let receive = |_| self.socket.recv(&mut buffer).expect("a response");
        let sizes = (0..WINDOW).map(receive);
        (WINDOW, sizes.sum())
    }
}

/// Starts a UDP tracker without peers. Returns its address and its number of announces.
fn spawn_forwarder() -> (SocketAddr, Arc<AtomicUsize>) {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let (address, asked) = (
        socket.local_addr().expect("a bound address"),
        Arc::default(),
    );
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
