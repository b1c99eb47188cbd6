//! A hostile tenant beside a well-behaved one: what it costs the neighbour.
//!
//! Rounds with and without the attack take turns. The attack is a process of its own, so that the
//! load generator does not pay for it; the machine does.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

use super::contenders::role;
use super::load::{BODY, Load};
use crate::measure::median;
use crate::report::Report;

const ALONE: &str = "neighbour alone";
const BESIDE: &str = "neighbour of a hostile tenant";
/// Header in which the hostile tenant tells the upstream how to behave.
pub(super) const ACTION: &str = "x-do";
/// Connections that it holds open.
const CONNECTIONS: usize = 10_000;
/// Pause between two turns of the attack.
const PAUSE: Duration = Duration::from_millis(50);
/// Size of its giant bodies.
const GIANT: usize = 4 << 20;

/// Throughput per second and p99 in nanoseconds.
fn round(address: SocketAddr, requests: usize, rate: f64) -> (f64, f64) {
    let load = Load::new(address).with_key("sk-victim");
    let start = Instant::now();
    let times = load.open_loop(requests, rate);
    let throughput = times.len() as f64 / start.elapsed().as_secs_f64();
    let mut times: Vec<f64> = times.iter().map(|took| took.since_due).collect();
    times.sort_unstable_by(f64::total_cmp);
    (throughput, times[times.len() * 99 / 100])
}

/// Measures the neighbour with and without the attack.
pub(super) fn run(rounds: usize, requests: usize, rate: f64, report: &mut Report) {
    let mock = role("obedient", None);
    let gateway = role("tenants", Some(mock.address));
    let (mut alone, mut beside) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        alone.push(round(gateway.address, requests, rate));
        let attack = role("hostile", Some(gateway.address));
        beside.push(round(gateway.address, requests, rate));
        drop(attack);
        gateway.wait_until_idle();
    }
    for (name, results) in [(ALONE, &alone), (BESIDE, &beside)] {
        let p99 = median(results.iter().map(|(_, p99)| *p99).collect());
        report.row(&format!("{name}, p99"), "ns", p99, None);
        let interval = median(results.iter().map(|(served, _)| 1e9 / served).collect());
        report.row(&format!("{name}, time per request"), "ns", interval, None);
    }
    // Compared within a round, because both parts of it find the machine in the same state.
    let pairs = || alone.iter().zip(&beside);
    let throughput = pairs().map(|(alone, beside)| alone.0 / beside.0);
    let p99 = pairs().map(|(alone, beside)| beside.1 / alone.1);
    let name = |what| format!("{what}: {BESIDE} ÷ {ALONE}");
    report.bound(name("time per request"), median(throughput.collect()), 1.05);
    report.bound(name("p99"), median(p99.collect()), 1.10);
}

/// Attacks the gateway until the process is killed.
pub(super) async fn attack(gateway: SocketAddr) {
    let mut open = Vec::with_capacity(CONNECTIONS);
    for number in 0..CONNECTIONS {
        let socket = TcpSocket::new_v4().expect("a socket");
        let from = Ipv4Addr::new(127, 0, 1, (number % 8) as u8 + 1);
        socket.bind((from, 0).into()).expect("a loopback address");
        open.extend(socket.connect(gateway).await.ok());
    }
    println!("{gateway}");
    let giant = format!(
        r#"{{"model":"m","stream":[{}[]]}}"#,
        "[],".repeat(GIANT / 3)
    );
    loop {
        for action in ["429", "403", "500", "503"] {
            exchange(gateway, &request(action, BODY), true).await;
        }
        let request = request("stream", BODY);
        // It leaves a stream early, leaves before the response, and in the middle of its request.
        exchange(gateway, &request, true).await;
        exchange(gateway, &request, false).await;
        exchange(gateway, &request[..request.len() - 9], false).await;
        let wrong =
            String::from_utf8_lossy(&request).replace("content-length: ", "content-length: 9");
        exchange(gateway, wrong.as_bytes(), false).await;
        for body in [
            r#"{"model":"m","model":"n"}"#,
            r#"{"model":"m","MAX_TOKENS":1}"#,
            &giant,
        ] {
            exchange(gateway, &self::request("", body), true).await;
        }
        tokio::time::sleep(PAUSE).await;
    }
}

fn request(action: &str, body: &str) -> Vec<u8> {
    let head = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: bench\r\nx-api-key: sk-hostile\r\n{ACTION}: {action}\r\n\
         content-length: {}\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), body.as_bytes()].concat()
}

/// Sends bytes, and reads the beginning of the response if asked to.
async fn exchange(gateway: SocketAddr, bytes: &[u8], reads: bool) {
    let Ok(mut stream) = TcpStream::connect(gateway).await else {
        return;
    };
    let _ = stream.write_all(bytes).await;
    if reads {
        let _ = stream.read(&mut [0; 64]).await;
    }
}
