//! What the command line says.

use std::path::PathBuf;

use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::applications::schema;
use crate::commands::config::ConfigCommand;
use crate::commands::migrate::MigrateCommand;
use crate::commands::sim::SimCommand;
use crate::flags::{self, Setting};

/// Decides how much work goes where, when the far side can only take so much.
#[derive(Debug, Parser)]
#[command(
    version,
    max_term_width = 100,
    after_help = "\
Examples:
  headworks up                                  start everything, and say how to reach it
  headworks sim greedy-tenant                   try a policy before you live with it
  headworks config init --output headworks.toml write a file with every key explained
  headworks config check headworks.toml         find every mistake in it at once
  headworks config show                         see every value and where it comes from

Exit codes: 0 done, 1 failed, 2 usage, 3 finished with failures, 4 differences found."
)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) common: Common,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What every command takes.
#[derive(Debug, Default, Args)]
pub(crate) struct Common {
    /// The configuration file. Without it: $HEADWORKS_CONFIG, ./headworks.toml,
    /// $XDG_CONFIG_HOME/headworks/headworks.toml, or none.
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Sets one key for this run, such as `--set log.level=debug`. Wins over environment and file.
    #[arg(long, global = true, value_name = "SECTION.KEY=VALUE")]
    pub(crate) set: Vec<String>,
    /// What the flags made of the sections' keys gave.
    #[arg(skip)]
    pub(crate) settings: Vec<Setting>,
}

impl Arguments {
    /// Reads this process's command line; ends the process with words if it makes no sense.
    pub(crate) fn read() -> Arguments {
        let schema = schema();
        let command = Arguments::command()
            .mut_subcommand("up", |up| flags::add(up, &schema))
            .mut_subcommand("config", |config| {
                config.mut_subcommand("show", |show| flags::add(show, &schema))
            });
        let matches = command.get_matches();
        let mut arguments = Arguments::from_arg_matches(&matches).unwrap_or_else(|e| e.exit());
        arguments.common.settings = flags::given(&matches, &schema);
        arguments
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Write, check or show the configuration.
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Move a tree from one storage to another, lose nothing, and prove it.
    ///
    /// Every command can be cut off at any instant and run again. Exit code 3 if something could not be listed or copied,
    /// 4 if something was knowingly left out or verification found a difference.
    #[command(
        subcommand,
        after_help = "\
Examples:
  headworks migrate run    /data /backup --state job.db
  headworks migrate plan   /data /backup --state job.db
  headworks migrate review --state job.db --exclude '*.tmp'
  headworks migrate copy   --state job.db --delete=quarantine
  headworks migrate verify --state job.db --hash"
    )]
    Migrate(MigrateCommand),
    /// Simulate a scenario, or replay recorded requests: waits, shares and drops before they happen.
    ///
    /// Deterministic: the same scenario and seed give the same report. Exit code 2 if the scenario or trace is wrong, 4 if
    /// one of its expectations is not met.
    #[command(after_help = "\
Examples:
  headworks sim --list
  headworks sim greedy-tenant
  headworks sim my-scenario.toml --seed 7 --html report.html
  headworks sim --trace requests.csv --json")]
    Sim(SimCommand),
    /// Start every application there is, and the admin listener.
    ///
    /// Reloads the configuration on SIGHUP; stops on SIGINT or SIGTERM, at once on the second.
    #[command(after_help = "\
Examples:
  headworks up
  headworks --config headworks.toml up
  headworks up --admin-listen 127.0.0.1:0 --log-format json")]
    Up,
}
