//! The binary: parses arguments, runs a command and sets the exit code.

mod applications;
mod arguments;
mod commands;
mod demo;
mod flags;
mod overrides;
mod report;

use std::process::ExitCode;

use arguments::{Arguments, Command};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The version, with the commit it was built from, if known.
pub(crate) fn version() -> &'static str {
    env!("HEADWORKS_VERSION")
}

fn main() -> ExitCode {
    let arguments = Arguments::read();
    let outcome = match &arguments.command {
        Command::Config(command) => commands::config::run(command, &arguments.common),
        Command::Doctor(command) => commands::doctor::run(command, &arguments.common),
        Command::Sim(command) => commands::sim::run(command, &arguments.common),
        Command::Gateway { command: None } => {
            commands::up::run(&arguments.common, &[applications::GATEWAY], true)
        }
        Command::Gateway {
            command: Some(command),
        } => commands::gateway::run(command, &arguments.common),
        Command::Fleet(command) => commands::fleet::run(command, &arguments.common),
        Command::Tracker(command) => commands::tracker::run(command, &arguments.common),
        Command::Up(command) => command.run(&arguments.common),
        Command::Top(command) => commands::top::run(command, &arguments.common),
        Command::Generate(command) => commands::generate::run(command, &arguments.common),
        Command::Migrate(command) => commands::migrate::run(command),
    };
    match outcome {
        Ok(exit) => exit.into(),
        Err(error) => report::print_error(&error).into(),
    }
}
