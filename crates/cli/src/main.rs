//! The one binary: parse, configure, wire, exit code.

mod applications;
mod arguments;
mod commands;
mod flags;
mod overrides;
mod report;

use std::process::ExitCode;

use arguments::{Arguments, Command};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let arguments = Arguments::read();
    let outcome = match &arguments.command {
        Command::Config(command) => commands::config::run(command, &arguments.common),
        Command::Sim(command) => commands::sim::run(command, &arguments.common),
        Command::Gateway { command: None } => {
            commands::up::run(&arguments.common, &[applications::GATEWAY])
        }
        Command::Gateway {
            command: Some(command),
        } => commands::gateway::run(command, &arguments.common),
        Command::Tracker(command) => commands::tracker::run(command, &arguments.common),
        Command::Up => commands::up::run(&arguments.common, applications::APPLICATIONS),
    };
    match outcome {
        Ok(exit) => exit.into(),
        Err(error) => report::failure(&error).into(),
    }
}
