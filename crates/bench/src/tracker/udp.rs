//! UDP, compared with aquatic_udp under aquatic's own load tester.

use std::path::Path;
use std::time::Instant;

use super::contenders::{LOAD, aquatic, configured, is_installed, ours, pinned};
use super::roles::PEERS;
use super::{OURS, Options, Samples, compare};
use crate::process::Process;
use crate::report::Report;

const MIO: &str = "aquatic_udp (mio)";
const URING: &str = "aquatic_udp (io_uring)";

pub(super) fn run(options: &Options, report: &mut Report) {
    let ours_name = format!("{OURS}, UDP");
    let tester = is_installed(&options.load_test, "cargo install aquatic_udp_load_test");
    let mio = tester && is_installed(&options.aquatic_udp, "cargo install aquatic_udp");
    let how = "cargo install aquatic_udp --features io-uring --root ELSEWHERE";
    let uring = tester && is_installed(&options.aquatic_udp_uring, how);
    let mut contenders: Vec<(&str, Starter<'_>)> = Vec::new();
    if tester {
        contenders.push((&ours_name, Box::new(|| ours(""))));
    }
    for (there, name, command) in [
        (mio, MIO, &options.aquatic_udp),
        (uring, URING, &options.aquatic_udp_uring),
    ] {
        if there {
            contenders.push((name, Box::new(|| aquatic(command, &response_peers(), true))));
        }
    }
    let mut samples: Vec<Samples> = contenders.iter().map(|_| Samples::default()).collect();
    for _ in 0..options.rounds {
        for ((_, start), samples) in contenders.iter().zip(&mut samples) {
            round(options, &start(), samples);
        }
    }
    for ((name, _), samples) in contenders.iter().zip(samples) {
        samples.report(name, "peers", report);
    }
    compare(report, &ours_name, MIO, 1.0, true);
    compare(report, &ours_name, URING, 1.0, true);
}

/// Starts a contender, so that every round begins with an empty tracker.
type Starter<'a> = Box<dyn Fn() -> Process + 'a>;

fn response_peers() -> [(&'static str, &'static str); 1] {
    [("max_response_peers", "30")]
}

fn round(options: &Options, process: &Process, samples: &mut Samples) {
    let peers = PEERS.to_string();
    let (server, seconds) = (
        format!("\"{}\"", process.address),
        options.seconds.to_string(),
    );
    let changes = [
        ("server_address", server.as_str()),
        ("duration", &seconds),
        // Few enough that all of them have announced soon, so that responses are equally large with
        // a slower tracker.
        ("number_of_torrents", "10000"),
        ("number_of_peers", "20000"),
        ("announce_peers_wanted", &peers),
        ("peer_seeder_probability", "0.0"),
    ];
    let file = configured(&options.load_test, &changes);
    let (before, start) = (process.cpu(), Instant::now());
    let output = run_load_test(&options.load_test, &file);
    let (cpu, seconds) = (process.cpu() - before, start.elapsed().as_secs_f64());
    // The tester may cut its last second short, so its own average over its own time is used.
    let number = |label: &str| number_after(&output, label).unwrap_or(f64::NAN);
    let duration = number("Test ran for ");
    let responses = number("Average responses per second: ") * duration;
    samples.add(
        cpu,
        seconds,
        responses,
        number("Peers per announce response: "),
    );
}

fn run_load_test(tester: &Path, file: &Path) -> String {
    let mut command = pinned(LOAD, tester);
    let output = command.arg("-c").arg(file).output();
    let output = output.expect("the load tester runs");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Returns the number after the last occurrence of a label.
fn number_after(text: &str, label: &str) -> Option<f64> {
    let (_, rest) = text.rsplit_once(label)?;
    let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.');
    rest[..end.unwrap_or(rest.len())].parse().ok()
}
