//! `headworks-bench tracker`: what an answer costs the tracker, in us and in others.
//!
//! Every contender is a process of its own, held to one CPU while the load has the other, so that
//! its CPU time is its own: what is compared is CPU time an answer, taken in interleaved rounds.
//! aquatic's own load tester asks over UDP. Nobody is a seeder in it, because we send seeders no
//! seeders and aquatic does: the answers would not be the same.

mod bad;
mod contenders;
mod http;
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
    /// Interleaved rounds; the median of them counts.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// How long each contender is asked in a round.
    #[arg(long, default_value_t = 5)]
    seconds: u64,
    /// Peers when memory is measured.
    #[arg(long, default_value_t = 1_000_000)]
    peers: u32,
    /// Only these parts: udp, http, warm, bad, memory.
    #[arg(long, value_delimiter = ',', default_values = ["udp", "http", "warm", "bad", "memory"])]
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
    /// Be one of the processes. For the bench itself.
    #[arg(long, hide = true)]
    role: Option<String>,
    /// What the role needs to know. For the bench itself.
    #[arg(long, hide = true, default_value = "")]
    settings: String,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// Exit with 4 if a bound is missed, or cannot be looked at because a peer is not installed.
    #[arg(long)]
    check: bool,
}

pub(crate) fn run(options: &Options) -> ExitCode {
    if let Some(role) = &options.role {
        return roles::run(role, &options.settings);
    }
    hold_to(1);
    let mut report = Report::new(options.rounds);
    type Part = fn(&Options, &mut Report);
    let parts: [(&str, Part); 5] = [
        ("udp", udp::run),
        ("http", http::run),
        ("warm", warm::run),
        ("bad", bad::run),
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

/// Holds this process to one CPU: the load must not have the contender's.
fn hold_to(cpu: usize) {
    let mut set = rustix::thread::CpuSet::new();
    set.set(cpu);
    if let Err(error) = rustix::thread::sched_setaffinity(None, &set) {
        eprintln!("the load is not held to CPU {cpu}: {error}");
    }
}

/// What rounds against one contender found.
#[derive(Default)]
struct Found {
    /// CPU time an answer, in nanoseconds.
    cpu: Vec<f64>,
    /// Answers a second.
    rate: Vec<f64>,
    /// Bytes, or peers, in an answer.
    size: Vec<f64>,
}

impl Found {
    fn add(&mut self, cpu: f64, seconds: f64, answers: f64, size: f64) {
        self.cpu.push(cpu / answers);
        self.rate.push(answers / seconds);
        self.size.push(size);
    }

    fn tell(self, name: &str, unit: &'static str, report: &mut Report) {
        if self.cpu.is_empty() {
            return;
        }
        report.row(
            &format!("{name}, CPU an answer"),
            "ns",
            median(self.cpu),
            None,
        );
        report.row(&format!("{name}, answers"), "/s", median(self.rate), None);
        report.row(&format!("{name}, an answer"), unit, median(self.size), None);
    }
}

/// Holds our CPU time an answer to a multiple of another's, and the size of the answers to ± 2 %.
fn compare(report: &mut Report, ours: &str, other: &str, at_most: f64, same: bool) {
    let name = |name: &str, what: &str| format!("{name}, {what}");
    let cpu = |one: &str| name(one, "CPU an answer");
    let missing = |report: &Report, one: &str| report.value(&cpu(one)).is_none();
    if missing(report, ours) || missing(report, other) {
        // Not a number is within no bound.
        return report.bound(
            format!("{ours} ÷ {other}: not installed"),
            f64::NAN,
            at_most,
        );
    }
    report.ratio(&cpu(ours), &cpu(other), at_most);
    let sizes = (
        report.value(&name(ours, "an answer")),
        report.value(&name(other, "an answer")),
    );
    if let (Some(ours_size), Some(other_size), true) = (sizes.0, sizes.1, same) {
        let off = (ours_size / other_size - 1.0).abs();
        report.bound(format!("size of {ours} ÷ {other}, off by"), off, 0.02);
    }
}

/// Where a process listens for HTTP and UDP alike.
fn loopback(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}
