//! `headworks-bench tracker`: the CPU time per response, compared with other trackers.
//!
//! Every contender is a separate process pinned to one CPU; the load has the other one. The CPU
//! time per response is compared in interleaved rounds. Over UDP the load comes from aquatic's own
//! load tester. It runs without seeders: aquatic sends seeders to seeders and this tracker does
//! not, so the responses would differ.

mod bad;
mod contenders;
mod http;
mod list;
mod memory;
mod roles;
mod udp;
mod warm;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use crate::measure::median;
use crate::report::Report;

const OURS: &str = "headworks tracker";

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Interleaved rounds, of which the median is reported.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Seconds of load per contender and round.
    #[arg(long, default_value_t = 5)]
    seconds: u64,
    /// Peers for the measurement of memory.
    #[arg(long, default_value_t = 1_000_000)]
    peers: u32,
    /// The parts to run: udp, http, warm, bad, list, memory.
    #[arg(long, value_delimiter = ',', default_values = ["udp", "http", "warm", "bad", "list", "memory"])]
    only: Vec<String>,
    /// The command of aquatic_udp.
    #[arg(long, value_name = "COMMAND", default_value = "aquatic_udp")]
    aquatic_udp: PathBuf,
    /// The command of aquatic_udp with its feature `io-uring`.
    #[arg(long, value_name = "COMMAND", default_value = "aquatic_udp_uring")]
    aquatic_udp_uring: PathBuf,
    /// The command of aquatic_udp_load_test.
    #[arg(long, value_name = "COMMAND", default_value = "aquatic_udp_load_test")]
    load_test: PathBuf,
    /// The command of aquatic_http.
    #[arg(long, value_name = "COMMAND", default_value = "aquatic_http")]
    aquatic_http: PathBuf,
    /// Run as one of the processes. For internal use.
    #[arg(long, hide = true)]
    role: Option<String>,
    /// The settings of the role. For internal use.
    #[arg(long, hide = true, default_value = "")]
    settings: String,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// Exit with code 4 if a bound is missed, or cannot be checked because a contender is not
    /// installed.
    #[arg(long)]
    check: bool,
}

pub(crate) fn run(options: &Options) -> ExitCode {
    if let Some(role) = &options.role {
        return roles::run(role, &options.settings);
    }
    pin_to(1);
    let mut report = Report::new(options.rounds);
    type Part = fn(&Options, &mut Report);
    let parts: [(&str, Part); 6] = [
        ("udp", udp::run),
        ("http", http::run),
        ("warm", warm::run),
        ("bad", bad::run),
        ("list", list::run),
        ("memory", memory::run),
    ];
    for (name, part) in parts {
        if options.only.iter().any(|only| only == name) {
            part(options, &mut report);
        }
    }
    report.print(options.json);
    report.exit(options.check)
}

/// Pins this process to one CPU, so that the load does not use the contender's.
fn pin_to(cpu: usize) {
    let mut set = rustix::thread::CpuSet::new();
    set.set(cpu);
    if let Err(error) = rustix::thread::sched_setaffinity(None, &set) {
        eprintln!("cannot pin the load to CPU {cpu}: {error}");
    }
}

/// The measurements of one contender, one per round.
#[derive(Default)]
struct Samples {
    /// CPU time per response, in nanoseconds.
    cpu: Vec<f64>,
    /// Responses per second.
    rate: Vec<f64>,
    /// Bytes or peers per response.
    size: Vec<f64>,
}

impl Samples {
    fn add(&mut self, cpu: f64, seconds: f64, responses: f64, size: f64) {
        self.cpu.push(cpu / responses);
        self.rate.push(responses / seconds);
        self.size.push(size);
    }

    fn report(self, name: &str, unit: &'static str, report: &mut Report) {
        if self.cpu.is_empty() {
            return;
        }
        report.row(
            &format!("{name}, CPU per response"),
            "ns",
            median(self.cpu),
            None,
        );
        report.row(&format!("{name}, responses"), "/s", median(self.rate), None);
        report.row(
            &format!("{name}, response size"),
            unit,
            median(self.size),
            None,
        );
    }
}

/// Bounds our CPU time per response by a multiple of another contender's and, with `same`, the size
/// of the responses to ± 2 % of its size.
fn compare(report: &mut Report, ours: &str, other: &str, at_most: f64, same: bool) {
    let name = |name: &str, row: &str| format!("{name}, {row}");
    let cpu = |one: &str| name(one, "CPU per response");
    let missing = |report: &Report, one: &str| report.value(&cpu(one)).is_none();
    if missing(report, ours) || missing(report, other) {
        // NaN is within no bound.
        return report.bound(
            format!("{ours} ÷ {other}: not installed"),
            f64::NAN,
            at_most,
        );
    }
    report.ratio(&cpu(ours), &cpu(other), at_most);
    let sizes = (
        report.value(&name(ours, "response size")),
        report.value(&name(other, "response size")),
    );
    if let (Some(ours_size), Some(other_size), true) = (sizes.0, sizes.1, same) {
        let off = (ours_size / other_size - 1.0).abs();
        report.bound(format!("size of {ours} ÷ {other}, off by"), off, 0.02);
    }
}

/// Returns the loopback address with a port.
fn loopback(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}
