//! The memory per peer and per swarm.

use std::net::{Ipv4Addr, UdpSocket};
use std::time::Duration;

use headworks_tracker_wire::Announce;
use headworks_tracker_wire::udp::{self, Response};

use super::contenders::ours;
use super::{OURS, Options};
use crate::process::Process;
use crate::report::Report;

/// Peers per large swarm.
const LARGE: u32 = 1000;
const WINDOW: u32 = 64;

pub(super) fn run(options: &Options, report: &mut Report) {
    let peers = options.peers;
    let in_large = bytes_per_peer(peers, peers / LARGE);
    let alone = bytes_per_peer(peers, peers);
    let name = |row: &str| format!("{OURS}, {row}, {peers} peers");
    report.row(
        &name("memory per peer in large swarms"),
        "bytes",
        in_large,
        None,
    );
    report.row(&name("memory per swarm of one peer"), "bytes", alone, None);
}

/// Returns the bytes per peer with `peers` peers in `swarms` swarms.
fn bytes_per_peer(peers: u32, swarms: u32) -> f64 {
    let process = ours("allow_ip_parameter = true\n");
    let before = process.resident();
    announce(&process, peers, swarms.max(1));
    (process.resident() - before) / f64::from(peers)
}

fn announce(process: &Process, peers: u32, swarms: u32) {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    socket.connect(process.address).expect("an address");
    let timeout = Some(Duration::from_secs(10));
    socket.set_read_timeout(timeout).expect("a socket option");
    let (mut packet, mut buffer) = (Vec::new(), [0; 2048]);
    udp::write_connect(1, &mut packet);
    socket.send(&packet).expect("the socket accepts it");
    let length = socket.recv(&mut buffer).expect("a response");
    let Some(Response::Connect { connection, .. }) = udp::parse_response(&buffer[..length]) else {
        panic!("no connection id")
    };
    for first in (0..peers).step_by(WINDOW as usize) {
        let last = (first + WINDOW).min(peers);
        for number in first..last {
            let mut announce = Announce {
                port: 6881,
                left: Some(u64::from(number % 4)),
                numwant: Some(0),
                ip: Some(Ipv4Addr::from_bits(0x0b00_0000 + number).into()),
                ..Announce::default()
            };
            announce.info_hash.0[..4].copy_from_slice(&(number % swarms).to_be_bytes());
            announce.peer_id.0[..4].copy_from_slice(&number.to_be_bytes());
            packet.clear();
            udp::write_announce(connection, number, &announce, b"", &mut packet);
            socket.send(&packet).expect("the socket accepts it");
        }
        for _ in first..last {
            socket.recv(&mut buffer).expect("a response");
        }
    }
}
