//! `headworks-bench engine`: cost of a job in the scheduling core and its pool, beside other
//! queues.

mod contention;
mod instructions;
mod ours;
#[cfg(feature = "peers")]
mod peers;
mod rejection;
mod timers;
mod tokio_parts;

use crate::measure::{Timing, median};
use crate::report::Report;
use std::process::ExitCode;

/// Producers that submit jobs concurrently.
pub(crate) const PRODUCERS: u64 = 8;

/// Bound of every queue that has one. A producer that finds it full waits or retries.
pub(crate) const BOUND: usize = 1_000;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Number of interleaved rounds; the median counts.
    #[arg(long, default_value_t = 7)]
    rounds: usize,
    /// Jobs per round.
    #[arg(long, default_value_t = 400_000)]
    jobs: u64,
    /// Run only contenders with this text in their name, for a profile; `contention` for many
    /// threads on few cores.
    #[arg(long, value_name = "PART", conflicts_with = "check")]
    only: Option<String>,
    /// Also count instructions under valgrind: slow, but the same on every machine.
    #[arg(long)]
    instructions: bool,
    /// Run only the steps that valgrind counts. Used by the bench itself.
    #[arg(long, hide = true, value_name = "QUEUED,FLOWS,TARGETS,JOBS")]
    steps: Option<String>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// Exit with 4 if a bound is missed.
    #[arg(long)]
    check: bool,
}

/// A job that every contender moves from a producer to a worker. Only Headworks schedules by its
/// properties.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Work {
    pub(crate) class: u8,
    pub(crate) target: u32,
    pub(crate) flow: u64,
    pub(crate) cost: u64,
    pub(crate) key: u128,
    pub(crate) number: u64,
}

impl Work {
    /// The `n`th job of a mixed load.
    pub(crate) fn new(n: u64, flows: u64, targets: u64) -> Self {
        let mixed = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Work {
            class: (mixed >> 60) as u8 % 10,
            target: (mixed >> 32) as u32 % targets as u32,
            flow: (mixed >> 20) % flows,
            cost: 1 + (mixed >> 48) % 1000,
            key: u128::from(mixed) << 64 | u128::from(mixed.rotate_left(17)),
            number: n,
        }
    }
}

/// Twenty tenants and eight targets.
pub(crate) const FLOWS: u64 = 20;
pub(crate) const TARGETS: u64 = 8;

type Contender = (&'static str, Box<dyn Fn(u64) -> Timing>);

pub(crate) fn run(options: &Options) -> ExitCode {
    if let Some(steps) = &options.steps {
        return instructions::steps(steps);
    }
    let mut report = Report::new(options.rounds);
    let chosen = |mut contenders: Vec<Contender>| {
        contenders.retain(|(name, _)| options.only.as_ref().is_none_or(|only| name.contains(only)));
        contenders
    };
    let (jobs, rounds) = (options.jobs, options.rounds);
    race(&mut report, chosen(contenders()), rounds, jobs);
    race(&mut report, chosen(timers::contenders()), rounds, 1_000_000);
    if options.only.is_none() {
        rejection::measure(&mut report, rounds);
    }
    if options
        .only
        .as_deref()
        .is_none_or(|only| only == "contention")
    {
        contention::measure(&mut report, rounds);
    }
    report.ratio(ours::NAME, tokio_parts::MPSC, 3.0);
    report.ratio(ours::NAME, "apalis, memory", 0.5);
    report.ratio(timers::WHEEL, timers::DELAY_QUEUE, 0.2);
    if options.instructions {
        instructions::measure(&mut report);
    }
    report.print(options.json);
    report.exit(options.check)
}

fn contenders() -> Vec<Contender> {
    vec![
        (ours::NAME, Box::new(ours::pool)),
        (ours::PERMIT, Box::new(ours::permits)),
        (ours::CORE, Box::new(ours::core)),
        (tokio_parts::MPSC, Box::new(tokio_parts::mpsc)),
        (tokio_parts::MANY, Box::new(tokio_parts::recv_many)),
        (tokio_parts::SPAWN, Box::new(tokio_parts::spawn)),
        #[cfg(feature = "peers")]
        ("apalis, memory", Box::new(peers::apalis)),
    ]
}

fn race(report: &mut Report, contenders: Vec<Contender>, rounds: usize, units: u64) {
    let mut times: Vec<Vec<Timing>> = contenders.iter().map(|_| Vec::new()).collect();
    for _ in 0..rounds {
        for ((_, contender), times) in contenders.iter().zip(&mut times) {
            times.push(contender(units));
        }
    }
    for ((name, _), times) in contenders.iter().zip(times) {
        let wall = median(times.iter().map(|took| took.wall).collect());
        let cpu = median(times.iter().map(|took| took.cpu).collect());
        report.row(name, "ns", wall, Some(cpu));
    }
}

/// A runtime with two threads, the same for every contender.
pub(crate) fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_time()
        .build()
        .expect("a runtime can be built")
}
