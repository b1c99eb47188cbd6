//! Over UDP, beside aquatic_udp, under aquatic's own load tester.

use std::path::Path;
use std::time::Instant;

use super::contenders::{LOAD, aquatic, configured, is_there, ours, pinned};
use super::roles::PEERS;
use super::{Found, OURS, Options, compare};
use crate::process::Process;
use crate::report::Report;

const MIO: &str = "aquatic_udp (mio)";
const URING: &str = "aquatic_udp (io_uring)";

pub(super) fn run(options: &Options, report: &mut Report) {
    let ours_name = format!("{OURS}, UDP");
    let tester = is_there(&options.load_test, "cargo install aquatic_udp_load_test");
    let mio = tester && is_there(&options.aquatic_udp, "cargo install aquatic_udp");
    let how = "cargo install aquatic_udp --features io-uring --root ELSEWHERE";
    let uring = tester && is_there(&options.aquatic_udp_uring, how);
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
    let mut found: Vec<Found> = contenders.iter().map(|_| Found::default()).collect();
    for _ in 0..options.rounds {
        for ((_, start), found) in contenders.iter().zip(&mut found) {
            round(options, &start(), found);
        }
    }
    for ((name, _), found) in contenders.iter().zip(found) {
        found.tell(name, "peers", report);
    }
    compare(report, &ours_name, MIO, 1.0, true);
    compare(report, &ours_name, URING, 1.0, true);
}

/// Starts a contender anew, so that every round begins with an empty tracker.
type Starter<'a> = Box<dyn Fn() -> Process + 'a>;

fn response_peers() -> [(&'static str, &'static str); 1] {
    [("max_response_peers", "30")]
}

fn round(options: &Options, process: &Process, found: &mut Found) {
    let peers = PEERS.to_string();
    let (server, seconds) = (
        format!("\"{}\"", process.address),
        options.seconds.to_string(),
    );
    let changes = [
        ("server_address", server.as_str()),
        ("duration", &seconds),
        // Few enough that all of them have announced themselves soon: then answers are as large
        // with a slower tracker.
        ("number_of_torrents", "10000"),
        ("number_of_peers", "20000"),
        ("announce_peers_wanted", &peers),
        ("peer_seeder_probability", "0.0"),
    ];
    let file = configured(&options.load_test, &changes);
    let (before, start) = (process.cpu(), Instant::now());
    let said = ask(&options.load_test, &file);
    let (cpu, seconds) = (process.cpu() - before, start.elapsed().as_secs_f64());
    // The tester's last second may be cut short: its own average counts, over its own time.
    let number = |label: &str| number_after(&said, label).unwrap_or(f64::NAN);
    let ran = number("Test ran for ");
    let answers = number("Average responses per second: ") * ran;
    found.add(
        cpu,
        seconds,
        answers,
        number("Peers per announce response: "),
    );
}

fn ask(tester: &Path, file: &Path) -> String {
    let mut command = pinned(LOAD, tester);
    let output = command.arg("-c").arg(file).output();
    let output = output.expect("the load tester runs");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The last number that follows a label.
fn number_after(text: &str, label: &str) -> Option<f64> {
    let (_, rest) = text.rsplit_once(label)?;
    let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.');
    rest[..end.unwrap_or(rest.len())].parse().ok()
}
