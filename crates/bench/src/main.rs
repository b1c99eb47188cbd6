//! Side-by-side benchmarks. See `headworks-bench --help`.

use clap::{Parser, Subcommand};
use std::process::ExitCode;

mod engine;
mod gateway;
mod measure;
mod migrate;
mod process;
mod report;
mod tracker;

#[global_allocator]
static ALLOCATOR: measure::Counting = measure::Counting;

/// Measures Headworks beside its peers, in one run, and prints ratios.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    #[command(subcommand)]
    bench: Bench,
}

#[derive(Subcommand)]
enum Bench {
    /// The scheduling core and its pool, beside tokio channels, semaphores and apalis.
    Engine(engine::Options),
    /// The gateway, beside a bare pass-through and vllm-router, in front of one mock upstream.
    Gateway(gateway::Options),
    /// The tracker, beside aquatic_udp, aquatic_http and a bare hyper responder.
    Tracker(tracker::Options),
    /// Planning and copying trees of files, beside rsync, rclone and cp.
    Migrate(migrate::Options),
}

fn main() -> ExitCode {
    match Arguments::parse().bench {
        Bench::Engine(options) => engine::run(&options),
        Bench::Gateway(options) => gateway::run(&options),
        Bench::Tracker(options) => tracker::run(&options),
        Bench::Migrate(options) => migrate::run(&options),
    }
}
