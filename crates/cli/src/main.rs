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
        Command::Migrate(command) => commands::migrate::run(command),
        Command::Sim(command) => commands::sim::run(command),
        Command::Up => commands::up::run(&arguments.common),
    };
    match outcome {
        Ok(exit) => exit.into(),
        Err(error) => report::failure(&error).into(),
    }
}
