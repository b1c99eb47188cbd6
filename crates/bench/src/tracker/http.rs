//! HTTP on persistent connections, compared with aquatic_http and a bare hyper server.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use headworks_tracker_wire::{Announce, query};

use super::contenders::{CONTENDER, aquatic, is_installed, ours, role};
use super::roles::PEERS;
use super::{OURS, Options, Samples, compare};
use crate::process::Process;
use crate::report::Report;

const AQUATIC: &str = "aquatic_http";
const HYPER: &str = "bare hyper responder";
/// Connections with one request in flight each.
const CONNECTIONS: usize = 64;
const TORRENTS: u32 = 100;
const PEERS_EACH: u32 = 100;

pub(super) fn run(options: &Options, report: &mut Report) {
    let ours_name = format!("{OURS}, HTTP");
    let ours = ours("");
    fill(ours.address);
    let body = Load::new(ours.address).body_length();
    let hyper = role(CONTENDER, "hyper", &body.to_string());
    let mut contenders = vec![(ours_name.as_str(), ours), (HYPER, hyper)];
    if is_installed(&options.aquatic_http, "cargo install aquatic_http") {
        let peers = PEERS.to_string();
        let process = aquatic(&options.aquatic_http, &[("max_peers", &peers)], false);
        fill(process.address);
        // Only the peers are compared: aquatic sends a shorter head and fewer fields.
        let [theirs, own] = [&process, &contenders[0].1].map(|one| Load::new(one.address).peers());
        let off = (own / theirs - 1.0).abs();
        let name = format!("peers per response of {ours_name} ÷ {AQUATIC}, off by");
        report.bound(name, off, 0.02);
        contenders.push((AQUATIC, process));
    }
    let mut samples: Vec<Samples> = contenders.iter().map(|_| Samples::default()).collect();
    for _ in 0..options.rounds {
        for ((_, process), samples) in contenders.iter().zip(&mut samples) {
            round(options, process, samples);
        }
    }
    for ((name, _), samples) in contenders.iter().zip(samples) {
        samples.report(name, "bytes", report);
    }
    compare(report, &ours_name, AQUATIC, 0.25, false);
    compare(report, &ours_name, HYPER, 1.0 / 0.6, true);
}

fn fill(address: SocketAddr) {
    let mut load = Load::new(address);
    for number in 0..TORRENTS * PEERS_EACH / CONNECTIONS as u32 + 1 {
        load.exchange(number);
    }
}

fn round(options: &Options, process: &Process, samples: &mut Samples) {
    let mut load = Load::new(process.address);
    let time = Duration::from_secs(options.seconds);
    let (before, start) = (process.cpu(), Instant::now());
    let (mut exchanges, mut bytes) = (0, 0);
    while start.elapsed() < time {
        bytes += load.exchange(exchanges);
        exchanges += 1;
    }
    let (cpu, seconds) = (process.cpu() - before, start.elapsed().as_secs_f64());
    let responses = f64::from(exchanges) * CONNECTIONS as f64;
    samples.add(cpu, seconds, responses, bytes as f64 / responses);
}

/// Connections that are first all written and then all read, so that the server always has many
/// requests ready.
struct Load {
    streams: Vec<TcpStream>,
    buffer: Vec<u8>,
}

impl Load {
    fn new(address: SocketAddr) -> Load {
        let streams = (0..CONNECTIONS).map(|_| {
            let stream = TcpStream::connect(address).expect("a connection");
            stream.set_nodelay(true).expect("a socket option");
            let timeout = Some(Duration::from_secs(20));
            stream.set_read_timeout(timeout).expect("a socket option");
            stream
        });
        Load {
            streams: streams.collect(),
            buffer: vec![0; 64 * 1024],
        }
    }

    /// Sends a request on every connection and reads the responses. Returns their size in bytes.
    fn exchange(&mut self, round: u32) -> usize {
        for (number, stream) in self.streams.iter_mut().enumerate() {
            let request = request(round.wrapping_mul(CONNECTIONS as u32) + number as u32);
            stream
                .write_all(request.as_bytes())
                .expect("the socket accepts it");
        }
        let buffer = &mut self.buffer;
        self.streams
            .iter_mut()
            .map(|stream| read_response(stream, buffer).0)
            .sum()
    }

    /// Returns the average number of peers per response.
    fn peers(&mut self) -> f64 {
        let mut peers = 0;
        for (number, stream) in (0..).zip(&mut self.streams) {
            let request = request(number);
            stream
                .write_all(request.as_bytes())
                .expect("the socket accepts it");
            let (length, _) = read_response(stream, &mut self.buffer);
            let text = String::from_utf8_lossy(&self.buffer[..length]);
            let after = text.split("5:peers").nth(1).expect("a peers field");
            let size: usize = after
                .split(':')
                .next()
                .and_then(|size| size.parse().ok())
                .expect("compact peers");
            peers += size / 6;
        }
        peers as f64 / CONNECTIONS as f64
    }

    fn body_length(&mut self) -> usize {
        let stream = &mut self.streams[0];
        stream
            .write_all(request(0).as_bytes())
            .expect("the socket accepts it");
        let (all, head) = read_response(stream, &mut self.buffer);
        all - head
    }
}

/// Reads one response. Returns its size and the size of its head.
fn read_response(stream: &mut TcpStream, buffer: &mut [u8]) -> (usize, usize) {
    let (mut length, mut wanted) = (0, None);
    loop {
        let read = stream.read(&mut buffer[length..]).expect("a response");
        assert!(read > 0, "the connection closed");
        length += read;
        let seen = &buffer[..length];
        if wanted.is_none()
            && let Some(end) = seen.windows(4).position(|bytes| bytes == b"\r\n\r\n")
        {
            let head = String::from_utf8_lossy(&seen[..end]).to_lowercase();
            let size = head
                .split("content-length:")
                .nth(1)
                .expect("a content length");
            let size = size.lines().next().unwrap_or_default().trim();
            wanted = Some((end + 4, size.parse::<usize>().expect("a number")));
        }
        match wanted {
            Some((head, body)) if length >= head + body => return (length, head),
            _ => {}
        }
    }
}

/// Returns the request of announce number `number`, which cycles through all peers.
fn request(number: u32) -> String {
    let peer = number % (TORRENTS * PEERS_EACH);
    let mut announce = Announce {
        port: 10_000 + (peer / TORRENTS) as u16,
        left: Some(1),
        numwant: Some(PEERS as u32),
        key: Some(7),
        ..Announce::default()
    };
    announce.info_hash.0 = [(peer % TORRENTS) as u8; 20];
    announce.peer_id.0 = *b"-HW0001-............";
    announce.peer_id.0[8..12].copy_from_slice(&peer.to_be_bytes());
    let mut path = String::from("GET /announce?");
    query::write_announce(&announce, None, &mut path);
    path + " HTTP/1.1\r\nHost: tracker.example:6969\r\nUser-Agent: bench/1\r\nAccept-Encoding: gzip\r\n\r\n"
}
