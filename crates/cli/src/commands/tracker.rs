//! `headworks tracker`: the tracker alone, with the flags of its predecessor.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use clap::{Args, Subcommand};
use headworks_service::exit::Exit;
use headworks_service::outbound::{Outbound, OutboundConfig};
use headworks_tracker::check;

use crate::applications::{TRACKER, schema};
use crate::arguments::Common;
use crate::commands::instance::Instance;
use crate::commands::up;
use crate::flags::Setting;
use crate::report::UsageError;
use crate::{overrides, report};

/// Arguments of this command only. The flags of its keys are generated from its section.
#[derive(Debug, Args)]
pub(crate) struct TrackerCommand {
    /// The configuration file: TOML, or a predecessor's YAML. Same as `--config`.
    #[arg(short = 'c', value_name = "FILE")]
    file: Option<PathBuf>,
    /// Log debug messages, as the predecessor did. Same as `--log-level debug`.
    #[arg(short = 'd')]
    debug: bool,
    /// Print the version, as the predecessor did.
    #[arg(short = 'v')]
    version: bool,
    /// Turned on metrics in the predecessor. They are always on here.
    #[arg(short = 'p')]
    prometheus: bool,
    #[command(subcommand)]
    task: Option<Task>,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Probe every forwarder of a list, without announcing a peer.
    ///
    /// Exit code 3 if a forwarder cannot be reached.
    Check {
        /// The list, a file or a URL: one URI per line, YAML or JSON.
        #[arg(short = 'f', value_name = "FILE|URL")]
        list: String,
        /// Print JSON instead of a table.
        #[arg(long)]
        json: bool,
        /// Timeout per forwarder, in seconds.
        #[arg(long, value_name = "SECONDS", default_value_t = 10)]
        timeout: u64,
    },
    /// Explain the state of a torrent: its peers, and the state of each forwarder.
    ///
    /// Queries the running instance.
    Explain {
        /// The torrent, in hexadecimal digits.
        torrent: String,
        /// Address of the instance, such as http://127.0.0.1:7070/?token=TOKEN, as it printed at
        /// its start.
        #[arg(long, value_name = "ADDRESS")]
        at: Option<String>,
        /// Print JSON instead of text.
        #[arg(long)]
        json: bool,
    },
}

pub(crate) fn run(command: &TrackerCommand, common: &Common) -> Result<Exit> {
    let mut common = common.clone();
    common.config = command.file.clone().or(common.config);
    if command.version {
        report::data(&format!("headworks {}\n", crate::version()))?;
        return Ok(Exit::Done);
    }
    if command.debug {
        common.settings.push(Setting {
            flag: "-d".into(),
            key: "log.level".into(),
            value: "debug".into(),
        });
    }
    if command.prometheus {
        report::note("`-p` is not needed: metrics are always on, at /metrics");
    }
    match &command.task {
        // Strict: without the tracker there is nothing to keep running.
        None => up::run(&common, &[TRACKER], true),
        Some(Task::Check {
            list,
            json,
            timeout,
        }) => {
            let config = schema().load(&overrides::sources(&common)?)?;
            let outbound = Outbound::new(&*config.section::<OutboundConfig>())?;
            check_list(list, outbound, Duration::from_secs(*timeout), *json)
        }
        Some(Task::Explain { torrent, at, json }) => {
            let digits = torrent.len();
            let is_hash =
                matches!(digits, 40 | 64) && torrent.bytes().all(|b| b.is_ascii_hexdigit());
            if !is_hash {
                let words = format!(
                    "invalid info hash `{torrent}`: expected 40 (or 64) hexadecimal digits"
                );
                return Err(UsageError(words).into());
            }
            let instance = Instance::find(at.as_deref(), &common)?;
            explain(&instance, torrent, *json)
        }
    }
}

fn explain(instance: &Instance, torrent: &str, json: bool) -> Result<Exit> {
    let told = runtime()?.block_on(instance.explain("tracker", torrent))?;
    let text = match json {
        true => serde_json::to_string_pretty(&told)? + "\n",
        false => {
            let facts = told.facts.iter();
            let facts = facts.map(|fact| format!("  {}: {}\n", fact.name, fact.value));
            format!(
                "{}: {}\n{}",
                told.subject,
                told.summary,
                facts.collect::<String>()
            )
        }
    };
    report::data(&text)?;
    Ok(Exit::Done)
}

fn runtime() -> Result<tokio::runtime::Runtime> {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    Ok(builder.enable_all().build()?)
}

fn check_list(source: &str, outbound: Outbound, timeout: Duration, json: bool) -> Result<Exit> {
    let checked = runtime()?.block_on(async {
        let list = check::load(source, &outbound).await?;
        for skipped in &list.skipped {
            report::note(&format!("entry {}: {}", skipped.entry, skipped.reason));
        }
        Ok::<_, anyhow::Error>(check::check(&list.forwarders, outbound, timeout).await?)
    })?;
    let text = match json {
        true => serde_json::to_string_pretty(&checked)? + "\n",
        false => check::table(&checked),
    };
    report::data(&text)?;
    match checked.iter().all(|one| one.ok) {
        true => Ok(Exit::Done),
        false => Ok(Exit::FinishedWithFailures),
    }
}
