//! `headworks doctor`: looks for what keeps this configuration from working on this machine.
//!
//! Each module looks at one area and returns findings; nothing is changed.

mod files;
mod finding;
mod fleet;
mod machine;
mod ports;
mod upstreams;

use std::time::Duration;

use anyhow::Result;
use clap::Args;
use headworks_service::config::{Config, Problems};
use headworks_service::exit::Exit;

use crate::applications::schema;
use crate::arguments::Common;
use crate::overrides;
use crate::report::{data, note};
use finding::{Finding, Severity};

/// Longest time for one question to another machine.
const TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Debug, Args)]
pub(crate) struct DoctorCommand {
    /// Print JSON: a list of objects with state, subject, found and advice.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(command: &DoctorCommand, common: &Common) -> Result<Exit> {
    let sources = overrides::sources(common)?;
    let file = sources.path().map(|path| path.display().to_string());
    let findings = match schema().load(&sources) {
        Ok(config) => examine(&config, file)?,
        Err(problems) => invalid(&problems),
    };
    if command.json {
        data(&format!("{}\n", serde_json::to_string_pretty(&findings)?))?;
    } else {
        data(&findings.iter().map(Finding::to_string).collect::<String>())?;
        note(&summary(&findings));
    }
    let is_healthy = findings.iter().all(|one| one.state != Severity::Problem);
    Ok(if is_healthy { Exit::Done } else { Exit::Failed })
}

fn examine(config: &Config, file: Option<String>) -> Result<Vec<Finding>> {
    let subject = file.unwrap_or_else(|| "configuration".to_owned());
    let mut findings: Vec<Finding> = config
        .warnings()
        .into_iter()
        .map(|warning| Finding::warning(&subject, warning.to_string()))
        .collect();
    if findings.is_empty() {
        findings.push(Finding::ok(&subject, "no problems"));
    }
    findings.extend(machine::examine(config));
    findings.extend(ports::examine(config));
    findings.extend(files::examine(config));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    findings.extend(runtime.block_on(upstreams::examine(config))?);
    findings.extend(runtime.block_on(fleet::examine(config)));
    // A look-up that hangs must not hold up the end.
    runtime.shutdown_background();
    Ok(findings)
}

fn invalid(problems: &Problems) -> Vec<Finding> {
    problems
        .into_iter()
        .map(|problem| Finding::problem("configuration", problem.to_string()))
        .collect()
}

fn summary(findings: &[Finding]) -> String {
    let count = |state| findings.iter().filter(|one| one.state == state).count();
    match (count(Severity::Problem), count(Severity::Warning)) {
        (0, 0) => "everything is in order".to_owned(),
        (0, warnings) => format!("no problems, {warnings} to look at"),
        (problems, warnings) => format!("{problems} to repair, {warnings} to look at"),
    }
}
