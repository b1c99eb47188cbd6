//! `headworks sim`: simulates a policy before it is used.

mod output_file;
mod progress;

use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Args;
use headworks_gateway::GatewayConfig;
use headworks_service::exit::Exit;
use headworks_sim::{Report, Scenario, SimError, Trial, shipped_names};

use crate::applications::schema;
use crate::arguments::Common;
use crate::commands::reject_config_flags;
use crate::overrides;
use crate::report::{UsageError, data};
use output_file::OutputFile;
use progress::ProgressLine;

/// Arguments of `headworks sim`.
#[derive(Debug, Args)]
pub(crate) struct SimCommand {
    /// A scenario file, or the name of a shipped scenario.
    #[arg(value_name = "FILE|NAME")]
    scenario: Option<String>,
    /// A seed other than that of the scenario: other arrivals, other failures, the same rules.
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Replay recorded requests (arrival time in seconds, class, flow, cost; one per line) under
    /// the rules of the scenario; without one, those of the gateway's configuration.
    #[arg(long, value_name = "FILE.csv")]
    trace: Option<PathBuf>,
    /// Maximum steps (submissions, grants and time advances); overrides the scenario and the
    /// default of 200 million.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    max_steps: Option<u64>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// Also write a self-contained HTML page with plots.
    #[arg(long, value_name = "FILE.html")]
    html: Option<PathBuf>,
    /// List the shipped scenarios.
    #[arg(long, conflicts_with_all = ["scenario", "trace", "json", "html", "seed", "max_steps"])]
    list: bool,
}

pub(crate) fn run(command: &SimCommand, common: &Common) -> anyhow::Result<Exit> {
    if command.scenario.is_some() || command.trace.is_none() {
        reject_config_flags(common, "sim")?;
    }
    if command.list {
        for name in shipped_names() {
            let scenario = Scenario::shipped(name).context("a shipped scenario")?;
            data(&format!("{name:<20} {}\n", scenario.about()))?;
        }
        return Ok(Exit::Done);
    }
    let scenario = scenario(command, common)?;
    if let Some(page) = &command.html {
        reject_input_as_output(page, command)?;
    }
    // Opened before the run, which may take minutes.
    let page = command.html.as_deref().map(OutputFile::open).transpose()?;
    let report = report(command, &scenario)?;
    if let Some(page) = page {
        page.write(&report.to_html())?;
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

/// Rejects an output page that would overwrite an input.
fn reject_input_as_output(page: &Path, command: &SimCommand) -> Result<(), UsageError> {
    let Ok(real) = page.canonicalize() else {
        return Ok(());
    };
    let scenario = command.scenario.as_deref().map(Path::new);
    let inputs = scenario.into_iter().chain(command.trace.as_deref());
    let is_input = |input: &Path| input.canonicalize().is_ok_and(|input| input == real);
    if !real.is_file() || inputs.into_iter().any(is_input) {
        let why = if real.is_file() {
            "it is an input of the simulation"
        } else {
            "not a regular file"
        };
        let words = format!(
            "`{}` cannot be written: {why}; name another file with --html",
            page.display()
        );
        return Err(UsageError(words));
    }
    Ok(())
}

impl From<SimError> for UsageError {
    fn from(error: SimError) -> UsageError {
        UsageError(error.to_string())
    }
}

fn scenario(command: &SimCommand, common: &Common) -> anyhow::Result<Scenario> {
    let scenario = match (&command.scenario, &command.trace) {
        (Some(name), _) => Scenario::open(name).map_err(UsageError::from)?,
        (None, Some(_)) => gateway_scenario(common)?,
        (None, None) => {
            let words = "nothing to simulate: name a scenario file or a shipped scenario \
                         (`headworks sim --list`), or give `--trace requests.csv`";
            return Err(UsageError(words.into()).into());
        }
    };
    Ok(match command.max_steps {
        Some(steps) => scenario.with_max_steps(steps),
        None => scenario,
    })
}

/// The rules of the gateway's configuration.
fn gateway_scenario(common: &Common) -> anyhow::Result<Scenario> {
    let config = schema().load(&overrides::sources(common)?)?;
    let text = config.section::<GatewayConfig>().replay_scenario();
    Ok(Scenario::from_text("gateway", &text).map_err(UsageError::from)?)
}

fn report(command: &SimCommand, scenario: &Scenario) -> anyhow::Result<Report> {
    let mut line = ProgressLine::on_a_terminal(scenario.name());
    let mut watch = |progress| line.show(progress);
    let seed = command.seed.unwrap_or(scenario.seed());
    let mut trial = Trial::new(scenario, seed).on_progress(&mut watch);
    if let Some(trace) = &command.trace {
        trial = trial.with_trace_file(trace).map_err(UsageError::from)?;
    }
    let report = trial.run();
    line.clear();
    Ok(report.map_err(UsageError::from)?)
}
