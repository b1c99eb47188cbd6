//! The command line: global flags and subcommands.

use std::path::PathBuf;

use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::applications::schema;
use crate::commands::config::ConfigCommand;
use crate::commands::doctor::DoctorCommand;
use crate::commands::fleet::FleetCommand;
use crate::commands::gateway::GatewayCommand;
use crate::commands::generate::GenerateCommand;
use crate::commands::migrate::MigrateCommand;
use crate::commands::sim::SimCommand;
use crate::commands::top::TopCommand;
use crate::commands::tracker::TrackerCommand;
use crate::commands::up::UpCommand;
use crate::flags::{self, Setting};

/// Schedules work across targets with limited capacity.
#[derive(Debug, Parser)]
#[command(
    version,
    max_term_width = 100,
    after_help = "\
Examples:
  headworks up                                  start all applications and print their addresses
  headworks top                                 watch it in the terminal
  headworks gateway                             share LLM capacity; unconfigured, an echo model
  headworks migrate run FROM TO --state job.db  move a tree, and prove that nothing was lost
  headworks sim greedy-tenant                   simulate a policy before using it
  headworks config init --output headworks.toml write a file with every key explained
  headworks config check headworks.toml         report every problem in it
  headworks config show                         print every value and its origin
  headworks doctor                              say what would keep it from working

Exit codes: 0 done, 1 failed, 2 usage, 3 finished with failures, 4 differences found."
)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) common: Common,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Display order of the global flags: after the flags of the command.
const GLOBAL_FLAG_ORDER: usize = 900;

/// Flags of every command.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct Common {
    /// The configuration file. Default: $HEADWORKS_CONFIG, ./headworks.toml,
    /// $XDG_CONFIG_HOME/headworks/headworks.toml, or none.
    #[arg(long, global = true, display_order = GLOBAL_FLAG_ORDER, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Set one key, such as `--set log.level=debug`. Overrides environment and file.
    #[arg(long, global = true, display_order = GLOBAL_FLAG_ORDER, value_name = "SECTION.KEY=VALUE")]
    pub(crate) set: Vec<String>,
    /// Values of the flags that are generated from the sections' keys.
    #[arg(skip)]
    pub(crate) settings: Vec<Setting>,
}

impl Arguments {
    /// Parses the command line of this process; prints the error and exits if it is invalid.
    pub(crate) fn read() -> Arguments {
        let matches = Arguments::with_flags().get_matches();
        let mut arguments = Arguments::from_arg_matches(&matches).unwrap_or_else(|e| e.exit());
        arguments.common.settings = flags::collect_settings(&matches, &schema());
        arguments
    }

    /// The command line, with a flag for every key.
    pub(crate) fn with_flags() -> clap::Command {
        let schema = schema();
        Arguments::command()
            .version(crate::version())
            .mut_subcommand("up", |up| flags::add(up, &schema))
            .mut_subcommand("gateway", |gateway| {
                let gateway = flags::add_for(gateway, &schema, "gateway");
                flags::with_short_names(gateway, &schema, "gateway")
            })
            .mut_subcommand("tracker", |tracker| {
                // In the predecessor `-x` has no value.
                let flag = |arg: clap::Arg| arg.num_args(0..=1).default_missing_value("true");
                flags::add_for(tracker, &schema, "tracker").mut_arg("tracker.x_real_ip", flag)
            })
            .mut_subcommand("config", |config| {
                config.mut_subcommand("show", |show| flags::add(show, &schema))
            })
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Write, check or show the configuration.
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Look for what keeps a configuration from working on this machine, and say what to do.
    ///
    /// Checks the configuration, open files, the clock, ports, files, upstreams and the shared
    /// server of a fleet. Changes nothing and uses no model. Exit code 1 if there is a problem.
    #[command(after_help = "\
Examples:
  headworks doctor
  headworks --config headworks.toml doctor
  headworks doctor --json | jq '.[] | select(.state != \"ok\")'")]
    Doctor(DoctorCommand),
    /// Share LLM capacity: an OpenAI- and Anthropic-compatible gateway in front of real providers.
    ///
    /// Without a configuration it serves only loopback, with a built-in model called `echo`. Every
    /// key of its section is a flag here, with and without the prefix `gateway-`.
    #[command(
        subcommand_negates_reqs = true,
        args_conflicts_with_subcommands = true,
        after_help = "\
Examples:
  headworks gateway --listen 127.0.0.1:8080
  headworks gateway key add --tenant search --class 3
  headworks gateway usage --format csv"
    )]
    Gateway {
        #[command(subcommand)]
        command: Option<GatewayCommand>,
    },
    /// Show the gateways that share one set of limits, or remove one that has stopped.
    ///
    /// Reads the section `[fleet]` of the configuration. Passwords come from PGPASSFILE, PGPASSWORD
    /// or VALKEYCLI_AUTH.
    #[command(
        subcommand,
        after_help = "\
Examples:
  headworks fleet status
  headworks --set fleet.url=postgres://headworks@db.example/fleet fleet status --json
  headworks fleet forget gateway-3"
    )]
    Fleet(FleetCommand),
    /// Move a tree from one storage to another, lose nothing, and prove it.
    ///
    /// Every command can be interrupted at any moment and run again. Exit code 3 if something could
    /// not be listed or copied, 4 if something was deliberately left out or verification found a
    /// difference.
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
    Migrate(Box<MigrateCommand>),
    /// Simulate a scenario or replay recorded requests, and report waits, shares and
    /// refusals.
    ///
    /// Deterministic: the same scenario and seed give the same report. Exit code 2 if the scenario
    /// or trace is invalid, 4 if an expectation is not met.
    #[command(after_help = "\
Examples:
  headworks sim --list
  headworks sim greedy-tenant
  headworks sim my-scenario.toml --seed 7 --html report.html
  headworks sim --trace requests.csv --json")]
    Sim(SimCommand),
    /// Start the tracker, which answers clients from memory and forwards announces to other
    /// trackers, and the admin listener.
    ///
    /// Other trackers see the address of this machine, not that of the client, which suits a LAN, a
    /// seedbox or a single public address.
    #[command(after_help = "\
Examples:
  headworks tracker                             serve this machine
  headworks tracker -l :6969 -u :6969           serve all addresses, over HTTP and UDP
  headworks tracker -l :6969 -f forwarders.yml  forward to the trackers of a list
  headworks tracker -c config.yml               read a predecessor's configuration")]
    Tracker(TrackerCommand),
    /// Start the gateway, the tracker, the view of migrate jobs and the admin listener.
    ///
    /// Reloads the configuration on SIGHUP; stops on SIGINT or SIGTERM, immediately on the second.
    #[command(after_help = "\
Examples:
  headworks up
  headworks --config headworks.toml up
  headworks up --strict
  headworks up --admin-listen 127.0.0.1:0 --log-format json")]
    Up(UpCommand),
    /// Watch a running instance in the terminal: what the console shows, without a browser.
    ///
    /// Use the address with the token that `headworks up` printed. Without an argument, the address
    /// comes from the configuration, and the token from $HEADWORKS_TOKEN or `admin.token`.
    #[command(after_help = "\
Examples:
  headworks top 'http://127.0.0.1:7070/?token=TOKEN'
  headworks top
  headworks top --once                          print the numbers once, for a script or a pipe")]
    Top(TopCommand),
    /// Print shell completions or the manual page, for packaging.
    #[command(after_help = "\
Examples:
  headworks generate bash > /usr/share/bash-completion/completions/headworks
  headworks generate zsh > /usr/share/zsh/site-functions/_headworks
  headworks generate fish > ~/.config/fish/completions/headworks.fish
  headworks generate man > headworks.1")]
    Generate(GenerateCommand),
}
