//! `headworks config init | check | schema | show`.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::Subcommand;
use headworks_service::config::{Config, Sources};
use headworks_service::exit::Exit;

use crate::applications::schema;
use crate::arguments::Common;
use crate::commands::reject_config_flags;
use crate::overrides;
use crate::report::{UsageError, print_problems};

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Write a configuration file with every key, its documentation and its default.
    #[command(after_help = "\
Examples:
  headworks config init | less
  headworks config init --output headworks.toml")]
    Init {
        /// Where to write it, instead of stdout. An existing file is not overwritten.
        #[arg(long, short, value_name = "FILE")]
        output: Option<PathBuf>,
    },
    /// Check a file by itself, without `HEADWORKS_…` variables, and report every problem at once.
    ///
    /// Secrets that it refers to (`env:NAME`, `file:PATH`) must exist, as they must when it is
    /// used.
    ///
    /// Reads TOML, and the YAML and INI files of predecessors, in which unknown keys are only
    /// warnings. Exit code 2 if there is an error.
    #[command(after_help = "\
Examples:
  headworks config check headworks.toml
  headworks config check retracker.yaml")]
    Check {
        /// The file to check; by default the file that would be used.
        file: Option<PathBuf>,
    },
    /// Print a JSON Schema of the configuration file, for editors and other checkers.
    #[command(after_help = "\
Examples:
  headworks config schema > headworks.schema.json")]
    Schema,
    /// Show every value in effect and where it comes from. Secrets are masked.
    #[command(after_help = "\
Examples:
  headworks config show
  HEADWORKS_LOG__LEVEL=debug headworks config show --admin-listen 127.0.0.1:0
  headworks config show --json | jq '.[] | select(.origin != \"default\")'")]
    Show {
        /// Print JSON: a list of objects with key, value and origin.
        #[arg(long)]
        json: bool,
    },
}

pub(crate) fn run(command: &ConfigCommand, common: &Common) -> Result<Exit> {
    match command {
        ConfigCommand::Init { output } => {
            reject_config_flags(common, "config init")?;
            init(output.as_deref())
        }
        ConfigCommand::Check { file } => check(file.as_deref(), common),
        ConfigCommand::Schema => {
            reject_config_flags(common, "config schema")?;
            let text = serde_json::to_string_pretty(&schema().json_schema())?;
            print(&format!("{text}\n"))
        }
        ConfigCommand::Show { json } => show(common, *json),
    }
}

fn init(output: Option<&Path>) -> Result<Exit> {
    let text = schema().init();
    let Some(path) = output else {
        return print(&text);
    };
    // `create_new` checks and creates atomically, so an existing file cannot be overwritten.
    let file = std::fs::File::create_new(path);
    if matches!(&file, Err(cause) if cause.kind() == std::io::ErrorKind::AlreadyExists) {
        let text = format!(
            "`{}` already exists: remove it, or choose another name",
            path.display()
        );
        return Err(UsageError(text).into());
    }
    let written = file.and_then(|mut file| file.write_all(text.as_bytes()));
    written.with_context(|| format!("cannot write `{}`", path.display()))?;
    eprintln!(
        "wrote {}; check it with: headworks config check {0}",
        path.display()
    );
    Ok(Exit::Done)
}

fn check(file: Option<&Path>, common: &Common) -> Result<Exit> {
    if !common.set.is_empty() {
        let words = "`--set` has no effect on `headworks config check`, which reads only the file: \
                     remove it, or use `headworks config show`";
        return Err(UsageError(words.into()).into());
    }
    if file.is_some() && common.config.is_some() {
        let words = "two files given: name one, as an argument or with `--config`";
        return Err(UsageError(words.into()).into());
    }
    let sources = overrides::sources(common)?;
    let Some(file) = file.or(sources.path()) else {
        let words = "no configuration file found: name one, or write one with \
                     `headworks config init --output headworks.toml`";
        return Err(UsageError(words.into()).into());
    };
    Ok(
        match schema().load(&overrides::with_gateway_defaults(Sources::new().file(file))) {
            Ok(config) => {
                warn(&config);
                eprintln!("{}: no problems", file.display());
                Exit::Done
            }
            Err(problems) => print_problems(&problems),
        },
    )
}

fn show(common: &Common, json: bool) -> Result<Exit> {
    let config = schema().load(&overrides::sources(common)?)?;
    warn(&config);
    if json {
        let text = serde_json::to_string_pretty(config.values())?;
        return print(&format!("{text}\n"));
    }
    let rows: Vec<_> = config
        .values()
        .iter()
        .map(|s| (s.to_string(), s.origin.to_string()))
        .collect();
    let width = rows
        .iter()
        .map(|(value, _)| value.chars().count())
        .max()
        .unwrap_or(0)
        .min(60);
    let lines = rows
        .iter()
        .map(|(value, origin)| format!("{value:width$}  # {origin}\n"));
    print(&lines.collect::<String>())
}

/// Prints the warnings of a configuration to stderr.
pub(crate) fn warn(config: &Config) {
    for warning in config.warnings() {
        eprintln!("warning: {warning}");
    }
}

/// Prints to stdout; a closed pipe is not an error.
fn print(text: &str) -> Result<Exit> {
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(cause) if cause.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(cause).context("cannot write to stdout")
        }
        _ => Ok(Exit::Done),
    }
}
