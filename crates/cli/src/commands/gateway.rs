//! `headworks gateway key | usage`: manages keys and prints usage, without a running gateway.

use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::{Args, Subcommand, ValueEnum};
use headworks_gateway::config::KeySettings;
use headworks_gateway::{GatewayConfig, KeyFile, UsageRow, UsageStore};
use headworks_service::exit::Exit;

use crate::applications::schema;
use crate::arguments::Common;
use crate::overrides;
use crate::report::{UsageError, data};

#[derive(Debug, Subcommand)]
pub(crate) enum GatewayCommand {
    /// Create, list and revoke API keys. Only their hashes are stored, in `gateway.keys_file`.
    #[command(subcommand)]
    Key(KeyCommand),
    /// Print usage by tenant, day and model from `gateway.usage_file`.
    Usage {
        /// The first day, such as 20261115.
        #[arg(long, default_value_t = 0)]
        from: u32,
        /// The last day.
        #[arg(long, default_value_t = u32::MAX, hide_default_value = true)]
        to: u32,
        /// The output format.
        #[arg(long, value_enum, default_value_t = Format::Csv)]
        format: Format,
        /// The usage file, instead of the configured one.
        #[arg(long)]
        file: Option<PathBuf>,
    },
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Format {
    Csv,
    Json,
}

#[derive(Debug, Subcommand)]
pub(crate) enum KeyCommand {
    /// Create a key and print it. It cannot be shown again.
    Add(NewKey),
    /// List the keys: id, tenant, class.
    List,
    /// Revoke a key by its id. A running gateway applies it at its next reload.
    Revoke {
        /// The key's id, as `list` shows it.
        id: String,
    },
}

#[derive(Debug, Args)]
pub(crate) struct NewKey {
    /// The tenant that the key belongs to.
    #[arg(long)]
    tenant: String,
    /// A name by which to list and revoke it; by default derived from the tenant.
    #[arg(long, default_value = "")]
    id: String,
    /// The class of its requests; 0 is the most urgent.
    #[arg(long)]
    class: Option<u8>,
    /// The most urgent class that it may request with `X-Priority`.
    #[arg(long)]
    max_class: Option<u8>,
    /// A model that it may use; `*` is a wildcard. May be repeated.
    #[arg(long = "model")]
    models: Vec<String>,
}

pub(crate) fn run(command: &GatewayCommand, common: &Common) -> Result<Exit> {
    let sources = overrides::sources(common)?;
    let config = schema().load(&sources)?.section::<GatewayConfig>();
    match command {
        GatewayCommand::Key(command) => {
            let default = || sources.directory().join(GatewayConfig::KEYS_FILE);
            let path = config.keys_file.clone().unwrap_or_else(default);
            keys(command, &path, config.scheduler_priority_levels)
        }
        GatewayCommand::Usage {
            from,
            to,
            format,
            file,
        } => {
            let Some(path) = file.as_deref().or(config.usage_file.as_deref()) else {
                let words = "no usage file is configured: set `gateway.usage_file`, or name one with --file";
                return Err(UsageError(words.into()).into());
            };
            if !path.exists() {
                let words = format!("the usage file `{}` does not exist yet", path.display());
                return Err(UsageError(words).into());
            }
            let rows = UsageStore::open(Some(path))?.rows(*from, *to)?;
            data(&match format {
                Format::Csv => UsageRow::csv(&rows),
                Format::Json => format!("{}\n", serde_json::to_string_pretty(&rows)?),
            })?;
            Ok(Exit::Done)
        }
    }
}

fn keys(command: &KeyCommand, path: &Path, levels: u8) -> Result<Exit> {
    let mut file = KeyFile::read_or_new(path, levels)?;
    match command {
        KeyCommand::Add(new) => {
            for class in [new.class, new.max_class].into_iter().flatten() {
                if class >= levels {
                    let words = format!("invalid class {class}: expected 0 to {}", levels - 1);
                    return Err(UsageError(words).into());
                }
            }
            let key = file.add(new.settings())?;
            file.write(path)?;
            let id = file.key.last().map_or("", |key| &key.id);
            eprintln!(
                "wrote `{id}` to {}; this is the key, and it cannot be shown again:",
                path.display()
            );
            // Only the key goes to stdout, so that a script can capture it.
            data(&format!("{key}\n"))?;
        }
        KeyCommand::List => data(&list(&file))?,
        KeyCommand::Revoke { id } => {
            file.revoke(id)?;
            file.write(path)?;
            eprintln!(
                "revoked `{id}`; reload a running gateway with `kill -HUP` or POST /admin/reload"
            );
        }
    }
    Ok(Exit::Done)
}

impl NewKey {
    fn settings(&self) -> KeySettings {
        let mut settings = KeySettings::default();
        settings.id.clone_from(&self.id);
        settings.tenant.clone_from(&self.tenant);
        settings.class = self.class;
        settings.max_class = self.max_class;
        settings.models.clone_from(&self.models);
        settings
    }
}

fn list(file: &KeyFile) -> String {
    let class = |class: Option<u8>| class.map_or("-".to_owned(), |class| format!("P{class}"));
    let line = |key: &KeySettings| {
        let models = match key.models.as_slice() {
            [] => "all models".to_owned(),
            models => models.join(", "),
        };
        let (own, highest) = (class(key.class), class(key.max_class));
        format!(
            "{:<24} {:<16} class {own:<4} up to {highest:<4} {models}\n",
            key.id, key.tenant
        )
    };
    file.key.iter().map(line).collect()
}
