//! `headworks-bench gateway`: cost of a request through the gateway, beside other gateways.
//!
//! Every contender is a process of its own in front of the same mock upstream, so that its CPU time
//! and memory can be measured. The load is open-loop: a slow response does not delay the next
//! request.

mod admission;
mod contenders;
mod hostile;
mod load;
mod roles;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use crate::measure::{median, without_steal};
use crate::process::Process;
use crate::report::Report;
use contenders::{litellm, role, router};
use load::{Load, WaitingClients};

const OURS: &str = "headworks gateway";
const BARE: &str = "bare hyper pass-through";
const DIRECT: &str = "no gateway at all";
const ROUTER: &str = "vllm-router";
const LITELLM: &str = "LiteLLM";
const WAITING: &str = "memory of one that waits";
const SIXTY: &str = "60 requests of 5 ms, 10 slots";
const SEMAPHORE: &str = "60 requests of 5 ms, bare behind a semaphore of 10";
const STREAMS: &str = "memory of one that waits over HTTP/2";
const PLAIN: &str = "memory of one that waits in a bare hyper server";

/// The values of `--only`.
const PARTS: [&str; 5] = ["passing", "slots", "admission", "hostile", "memory"];

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Number of interleaved rounds; the median counts.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Requests per round.
    #[arg(long, default_value_t = 5000)]
    requests: usize,
    /// Requests per second, about half of what the machine can do.
    #[arg(long, default_value_t = 1000.0)]
    rate: f64,
    /// Number of waiting requests when memory is measured.
    #[arg(long, default_value_t = 10_000)]
    waiting: usize,
    /// Command of vllm-router (PyPI), to measure it as well.
    #[arg(long, value_name = "COMMAND")]
    vllm_router: Option<PathBuf>,
    /// Command of LiteLLM's proxy (PyPI `litellm[proxy]`), to measure it as well, at a twentieth of
    /// the rate.
    #[arg(long, value_name = "COMMAND")]
    litellm: Option<PathBuf>,
    /// Run only these parts.
    #[arg(long, value_name = "PART", value_delimiter = ',', value_parser = PARTS)]
    only: Vec<String>,
    /// Run as one of the processes. Used by the bench itself.
    #[arg(long, hide = true)]
    role: Option<String>,
    /// Address of the mock upstream. Used by the bench itself.
    #[arg(long, hide = true)]
    upstream: Option<SocketAddr>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// Exit with 4 if a bound is missed.
    #[arg(long)]
    check: bool,
}

/// Results of all rounds of one contender.
#[derive(Default)]
struct ContenderResults {
    cpu: Vec<f64>,
    p50: Vec<f64>,
    p99: Vec<f64>,
    /// The p99 of the time beyond the service time of the upstream.
    beyond: Vec<f64>,
}

pub(crate) fn run(options: &Options) -> ExitCode {
    if let Some(name) = &options.role {
        return roles::run(name, options.upstream);
    }
    let mock = role("mock", None);
    let mut report = Report::new(options.rounds);
    if options.wants("passing") {
        passing(options, mock.address, &mut report);
        bounds(&mut report);
    }
    if options.wants("slots") {
        sixty(options, mock.address, &mut report);
    }
    if options.wants("admission") {
        admission::run(options.rounds, &mut report);
    }
    if options.wants("hostile") {
        hostile::run(options.rounds, options.requests, options.rate, &mut report);
    }
    if options.wants("memory") {
        memory(options, &mut report);
    }
    report.print(options.json);
    report.exit(options.check)
}

impl Options {
    fn wants(&self, part: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| only == part)
    }
}

/// Sends requests at half load through every contender.
fn passing(options: &Options, mock: SocketAddr, report: &mut Report) {
    let mut contenders = vec![
        (DIRECT, None),
        (BARE, Some(role("bare", Some(mock)))),
        (OURS, Some(role("ours", Some(mock)))),
    ];
    if let Some(command) = &options.vllm_router {
        contenders.push((ROUTER, Some(router(command, mock))));
    }
    if let Some(command) = &options.litellm {
        contenders.push((LITELLM, Some(litellm(command, mock))));
    }
    let mut results: Vec<ContenderResults> = contenders
        .iter()
        .map(|_| ContenderResults::default())
        .collect();
    for _ in 0..options.rounds {
        let rounds = without_steal(|| {
            let rounds = contenders.iter().map(|(name, process)| {
                // LiteLLM cannot sustain the rate of the others.
                let divisor = if *name == LITELLM { 20 } else { 1 };
                round(options, divisor, process.as_ref(), mock)
            });
            rounds.collect::<Vec<_>>()
        });
        for (round, results) in rounds.into_iter().zip(&mut results) {
            results.add(round);
        }
    }
    let direct = results[0].beyond.clone();
    for ((name, process), results) in contenders.iter().zip(results) {
        let cpu = Some(median(results.cpu)).filter(|cpu| *cpu > 0.0);
        if process.is_some() && results.beyond.len() == direct.len() {
            // Compared within a round, because all contenders of a round find the machine in the
            // same state.
            let added = results.beyond.iter().zip(&direct);
            let added = added.map(|(beyond, direct)| beyond - direct);
            report.row(
                &format!("{name}, added p99"),
                "ns",
                median(added.collect()),
                None,
            );
        }
        report.row(&format!("{name}, p50"), "ns", median(results.p50), None);
        report.row(&format!("{name}, p99"), "ns", median(results.p99), None);
        if let Some(cpu) = cpu {
            report.row(&format!("{name}, CPU"), "ns", cpu, None);
        }
    }
}

/// Results of one round of one contender.
struct RoundResult {
    cpu: f64,
    p50: f64,
    p99: f64,
    beyond: Option<f64>,
}

impl ContenderResults {
    fn add(&mut self, round: RoundResult) {
        self.cpu.push(round.cpu);
        self.p50.push(round.p50);
        self.p99.push(round.p99);
        self.beyond.extend(round.beyond);
    }
}

fn round(
    options: &Options,
    divisor: usize,
    process: Option<&Process>,
    mock: SocketAddr,
) -> RoundResult {
    let (requests, rate) = (options.requests / divisor, options.rate / divisor as f64);
    let address = process.map_or(mock, |process| process.address);
    let before = process.map_or(0.0, Process::cpu);
    let times = Load::new(address).open_loop(requests, rate);
    let spent = process.map_or(0.0, Process::cpu) - before;
    let beyond: Option<Vec<f64>> = times.iter().map(|took| took.beyond).collect();
    let times = sorted(times.iter().map(|took| took.since_due).collect());
    let slowest = |times: &[f64]| times[times.len() * 99 / 100];
    RoundResult {
        cpu: spent / requests as f64,
        p50: times[times.len() / 2],
        p99: slowest(&times),
        beyond: beyond.map(|beyond| slowest(&sorted(beyond))),
    }
}

fn sorted(mut times: Vec<f64>) -> Vec<f64> {
    times.sort_unstable_by(f64::total_cmp);
    times
}

fn bounds(report: &mut Report) {
    let cpu = |name: &str| format!("{name}, CPU");
    report.ratio(&cpu(OURS), &cpu(BARE), 1.3);
    report.ratio(&cpu(OURS), &cpu(ROUTER), 0.7);
    let (ours, bare) = (format!("{OURS}, added p99"), format!("{BARE}, added p99"));
    // On a busy machine the difference is smaller than the noise, and a ratio means nothing.
    if report.value(&bare).is_some_and(|added| added > 0.0) {
        report.ratio(&ours, &bare, 2.0);
    }
}

/// Sixty short requests through ten slots: the gateway, and a bare pass-through behind a semaphore.
fn sixty(options: &Options, mock: SocketAddr, report: &mut Report) {
    let ours = role("ten", Some(mock));
    let bare = role("bare", Some(mock));
    let (ours, bare) = (Load::new(ours.address), Load::new(bare.address));
    let (mut through, mut behind) = (Vec::new(), Vec::new());
    for round in 0..=options.rounds {
        let took = (ours.burst(60, 60), bare.burst(60, 10));
        // The first round opens the connections.
        if round > 0 {
            through.push(took.0);
            behind.push(took.1);
        }
    }
    report.row(SIXTY, "ns", median(through), None);
    report.row(SEMAPHORE, "ns", median(behind), None);
    report.ratio(SIXTY, SEMAPHORE, 1.3);
}

/// Memory per waiting request, without its body: in the gateway, and in a server that only keeps
/// the connection.
fn memory(options: &Options, report: &mut Report) {
    let mock = role("hanging", None);
    let plain = role("hanging", None);
    let waiting = options.waiting;
    report.row(
        PLAIN,
        "bytes",
        each_of(waiting, &plain, Load::waiting_clients),
        None,
    );
    for (name, open) in [
        (WAITING, Load::waiting_clients as OpenClients),
        (STREAMS, Load::waiting_streams),
    ] {
        let ours = role("narrow", Some(mock.address));
        let each = each_of(waiting, &ours, open);
        report.row(name, "bytes", each, None);
        report.bound(format!("{name}, in bytes"), each, 10_240.0);
    }
}

/// Opens a number of waiting clients.
type OpenClients = fn(&Load, usize) -> WaitingClients;

fn each_of(waiting: usize, process: &Process, open: OpenClients) -> f64 {
    let before = process.resident();
    let load = Load::new(process.address);
    let waiting_clients = open(&load, waiting);
    process.wait_until_idle();
    let each = (process.resident() - before) / waiting as f64 - load::BODY.len() as f64;
    drop(waiting_clients);
    each
}
