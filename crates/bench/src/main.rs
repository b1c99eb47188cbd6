//! Side-by-side measurements. See `headworks-bench --help`.

use clap::{Parser, Subcommand};
use std::process::ExitCode;

mod engine;
mod measure;
mod report;

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
}

fn main() -> ExitCode {
    match Arguments::parse().bench {
        Bench::Engine(options) => engine::run(&options),
    }
}
