//! `headworks sim`: try a policy before you live with it.

use std::path::PathBuf;

use anyhow::Context;
use clap::Args;
use headworks_service::exit::Exit;
use headworks_sim::{Report, Scenario, replay, run as simulate, shipped_names};

use crate::report::{UsageError, data};

/// What to simulate, and how to show it.
#[derive(Debug, Args)]
pub(crate) struct SimCommand {
    /// A scenario file, or the name of a shipped one.
    #[arg(value_name = "FILE|NAME")]
    scenario: Option<String>,
    /// Another seed than the scenario's: other arrivals, other failures, the same rules.
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Replay recorded requests (arrival time in seconds, class, flow, cost; one a line) under the scenario's rules, or
    /// the default ones.
    #[arg(long, value_name = "FILE.csv")]
    trace: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// Also write one self-contained page with plots.
    #[arg(long, value_name = "FILE.html")]
    html: Option<PathBuf>,
    /// List the shipped scenarios.
    #[arg(long, conflicts_with_all = ["scenario", "trace", "json", "html", "seed"])]
    list: bool,
}

pub(crate) fn run(command: &SimCommand) -> anyhow::Result<Exit> {
    if command.list {
        for name in shipped_names() {
            let scenario = Scenario::shipped(name).context("a shipped scenario")?;
            data(&format!("{name:<20} {}\n", scenario.about()))?;
        }
        return Ok(Exit::Done);
    }
    let report = report(command)?;
    if let Some(path) = &command.html {
        std::fs::write(path, report.to_html())
            .with_context(|| format!("{}: cannot be written", path.display()))?;
        eprintln!("wrote {}", path.display());
    }
    if command.json {
        data(&format!("{}\n", report.to_json()))?;
    } else {
        data(&report.to_text())?;
    }
    Ok(if report.is_as_expected() {
        Exit::Done
    } else {
        Exit::DifferencesFound
    })
}

fn report(command: &SimCommand) -> anyhow::Result<Report> {
    let usage = |error: headworks_sim::SimError| UsageError(error.to_string());
    let scenario = match (&command.scenario, &command.trace) {
        (Some(name), _) => Scenario::open(name).map_err(usage)?,
        (None, Some(_)) => Scenario::for_replay(),
        (None, None) => {
            let words = "nothing to simulate: name a scenario file or a shipped scenario \
                         (`headworks sim --list`), or give `--trace requests.csv`";
            return Err(UsageError(words.into()).into());
        }
    };
    let seed = command.seed.unwrap_or(scenario.seed());
    match &command.trace {
        Some(trace) => Ok(replay(trace, &scenario, seed).map_err(usage)?),
        None => Ok(simulate(&scenario, seed).map_err(usage)?),
    }
}
