//! `headworks gateway key | tenant | audit | usage`: manages keys and tenants and prints usage,
//! without a running gateway.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Result;
use clap::builder::PossibleValuesParser;
use clap::{Args, Subcommand, ValueEnum};
use headworks_fleet::Secrets;
use headworks_gateway::config::{KeySettings, TenantSettings};
use headworks_gateway::{
    AuditEntry, FleetConfig, GatewayConfig, KeyChange, KeyFile, KeyStore, NewKey, SqliteUsageStore,
    UsageRow, UsageStore, open_key_store, open_usage_store, parse_moment,
};
use headworks_service::config::Config;
use headworks_service::exit::Exit;
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::applications::schema;
use crate::arguments::Common;
use crate::overrides;
use crate::report::{UsageError, data};

#[derive(Debug, Subcommand)]
pub(crate) enum GatewayCommand {
    /// Create, list, rotate and revoke API keys. Only their hashes are stored, in
    /// `gateway.keys_file` or in the database of the fleet. A running gateway applies a change
    /// within two seconds.
    #[command(subcommand)]
    Key(KeyCommand),
    /// Set limits and quotas of tenants, in place of those in the configuration.
    #[command(subcommand)]
    Tenant(TenantCommand),
    /// Print who changed which key or tenant, and when.
    Audit {
        /// The number of changes, the latest last.
        #[arg(long, default_value_t = 100)]
        limit: usize,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Print usage by tenant, day and model from `gateway.usage_file`, or from the database of the
    /// fleet.
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
    Add(AddArgs),
    /// List the stored keys: id, tenant, class, models, expiry.
    List {
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Create a successor of a key, with its tenant and permissions, and print it.
    Rotate {
        /// The key's id, as `list` shows it.
        id: String,
        /// The successor's id; by default derived from the tenant.
        #[arg(long = "id", default_value = "")]
        successor: String,
        /// How long the replaced key works, such as 7d or 2027-01-01. By default it is removed at
        /// once.
        #[arg(long, value_name = "TIME", value_parser = parse_moment)]
        keep_until: Option<Timestamp>,
        /// When the successor expires. By default when the replaced key would have.
        #[arg(long, value_name = "TIME", value_parser = parse_moment)]
        expires: Option<Timestamp>,
    },
    /// Set the time from which a key is refused.
    Expire {
        /// The key's id, as `list` shows it.
        id: String,
        /// The time, such as 7d or 2027-01-01T00:00:00Z.
        #[arg(long, value_name = "TIME", value_parser = parse_moment, required_unless_present = "never")]
        at: Option<Timestamp>,
        /// Let it work until it is revoked.
        #[arg(long, conflicts_with = "at")]
        never: bool,
    },
    /// Remove a key by its id.
    Revoke {
        /// The key's id, as `list` shows it.
        id: String,
    },
    /// Put the keys and tenants of a key file into the database of the fleet.
    Import {
        /// The key file. Default: `gateway.keys_file`.
        file: Option<PathBuf>,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum TenantCommand {
    /// Change limits and budgets of a tenant. Those that are not named stay as they are stored or
    /// configured.
    Set(TenantArgs),
    /// List the stored tenants.
    List {
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Remove the stored settings of a tenant. Those of the configuration count again.
    Remove {
        /// The tenant.
        name: String,
    },
}

#[derive(Debug, Args)]
pub(crate) struct TenantArgs {
    /// The tenant, as in its keys.
    name: String,
    /// The weight of its share within a class.
    #[arg(long)]
    weight: Option<u32>,
    /// Concurrent requests.
    #[arg(long)]
    max_concurrent: Option<u32>,
    /// Requests started per second.
    #[arg(long)]
    max_rps: Option<f64>,
    /// Tokens started per second.
    #[arg(long)]
    max_tokens_per_sec: Option<f64>,
    /// Token quota per calendar day.
    #[arg(long)]
    tokens_per_day: Option<u64>,
    /// Token quota per calendar month.
    #[arg(long)]
    tokens_per_month: Option<u64>,
    /// A limit or quota to remove, such as tokens-per-day. May be repeated.
    #[arg(long, value_name = "LIMIT", value_parser = limit_names())]
    clear: Vec<String>,
}

/// The names of the limits, as the flags have them.
fn limit_names() -> PossibleValuesParser {
    PossibleValuesParser::new(TenantSettings::FIELDS.map(|field| field.replace('_', "-")))
}

#[derive(Debug, Args)]
pub(crate) struct AddArgs {
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
    /// When it expires, such as 90d or 2027-01-01. By default never.
    #[arg(long, value_name = "TIME", value_parser = parse_moment)]
    expires: Option<Timestamp>,
}

pub(crate) fn run(command: &GatewayCommand, common: &Common) -> Result<Exit> {
    let sources = overrides::sources(common)?;
    let config = schema().load(&sources)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    if let GatewayCommand::Usage {
        from,
        to,
        format,
        file,
    } = command
    {
        let rows = runtime.block_on(usage(&config, file.as_deref(), *from, *to))?;
        data(&match format {
            Format::Csv => UsageRow::csv(&rows),
            Format::Json => format!("{}\n", serde_json::to_string_pretty(&rows)?),
        })?;
        return Ok(Exit::Done);
    }
    let gateway = config.section::<GatewayConfig>();
    let default = || sources.directory().join(GatewayConfig::KEYS_FILE);
    let stored = Stored::open(&config, gateway.keys_file.clone().unwrap_or_else(default))?;
    runtime.block_on(async {
        match command {
            GatewayCommand::Key(command) => stored.keys(command).await,
            GatewayCommand::Tenant(command) => stored.tenants(command).await,
            GatewayCommand::Audit { limit, json } => stored.audit(*limit, *json).await,
            GatewayCommand::Usage { .. } => Ok(()),
        }
    })?;
    Ok(Exit::Done)
}

async fn usage(
    config: &Config,
    file: Option<&std::path::Path>,
    from: u32,
    to: u32,
) -> Result<Vec<UsageRow>> {
    let fleet = open_usage_store(&config.section::<FleetConfig>(), Secrets::from_env())?;
    if let (None, Some(store)) = (file, fleet) {
        return Ok(store.rows(from, to).await?);
    }
    let gateway = config.section::<GatewayConfig>();
    let Some(path) = file.or(gateway.usage_file.as_deref()) else {
        let words =
            "no usage file is configured: set `gateway.usage_file`, or name one with --file";
        return Err(UsageError(words.into()).into());
    };
    if !path.exists() {
        let words = format!("the usage file `{}` does not exist yet", path.display());
        return Err(UsageError(words).into());
    }
    Ok(SqliteUsageStore::open(Some(path))?.rows(from, to)?)
}

/// The key store, as the configuration names it.
struct Stored {
    store: Arc<dyn KeyStore>,
    /// The key file, which is not the store in a fleet.
    file: PathBuf,
    is_fleet: bool,
    levels: u8,
    /// The tenants of the configuration.
    configured: Vec<TenantSettings>,
}

impl Stored {
    fn open(config: &Config, file: PathBuf) -> Result<Stored> {
        let gateway = config.section::<GatewayConfig>();
        let fleet = config.section::<FleetConfig>();
        Ok(Stored {
            store: open_key_store(&gateway, &fleet, &file, Secrets::from_env())?,
            file,
            is_fleet: open_usage_store(&fleet, Secrets::from_env())?.is_some(),
            levels: gateway.scheduler_priority_levels,
            configured: gateway.tenant.clone(),
        })
    }

    async fn keys(&self, command: &KeyCommand) -> Result<()> {
        match command {
            KeyCommand::Add(new) => {
                for class in [new.class, new.max_class].into_iter().flatten() {
                    if class >= self.levels {
                        let last = self.levels - 1;
                        let words = format!("invalid class {class}: expected 0 to {last}");
                        return Err(UsageError(words).into());
                    }
                }
                let is_past = new
                    .expires
                    .is_some_and(|expires| expires <= Timestamp::now());
                let is_lower = new
                    .class
                    .zip(new.max_class)
                    .is_some_and(|(own, most)| most > own);
                if is_past || is_lower {
                    let words = match is_past {
                        true => "--expires is in the past: the key would never work",
                        false => "--max-class is less urgent than --class: it may only be more so",
                    };
                    return Err(UsageError(words.into()).into());
                }
                // A gateway that was open at its start reads this file at a reload only.
                let is_first = !self.is_fleet && self.store.load().await?.keys.is_empty();
                let new = NewKey::generate(new.settings())?;
                self.change(&KeyChange::Add(new.settings.clone())).await?;
                self.print_key(&new)?;
                if is_first {
                    eprintln!(
                        "a gateway that runs without keys needs a reload to use this key file"
                    );
                }
            }
            KeyCommand::List { json } => {
                let table = self.store.load().await?;
                data(&match json {
                    true => pretty(&Value::from_iter(table.keys.iter().map(without_secrets)))?,
                    false => table.keys.iter().map(line).collect(),
                })?;
            }
            KeyCommand::Rotate {
                id,
                successor,
                keep_until,
                expires,
            } => self.rotate(id, successor, *keep_until, *expires).await?,
            KeyCommand::Expire { id, at, .. } => {
                let (id, at) = (id.clone(), *at);
                let change = KeyChange::Expire { id: id.clone(), at };
                self.change(&change).await?;
                match at {
                    Some(at) => eprintln!("`{id}` expires at {at}"),
                    None => eprintln!("`{id}` does not expire"),
                }
            }
            KeyCommand::Revoke { id } => {
                self.change(&KeyChange::Revoke { id: id.clone() }).await?;
                eprintln!("revoked `{id}`; running gateways apply it within two seconds");
            }
            KeyCommand::Import { file } => self.import(file.as_ref()).await?,
        }
        Ok(())
    }

    async fn rotate(
        &self,
        id: &str,
        successor: &str,
        keep_until: Option<Timestamp>,
        expires: Option<Timestamp>,
    ) -> Result<()> {
        let table = self.store.load().await?;
        let replaced = table.keys.iter().find(|key| key.id == id);
        let mut settings = KeySettings::default();
        settings.id = successor.to_owned();
        settings.tenant = replaced.map_or(String::new(), |key| key.tenant.clone());
        settings.expires = expires;
        let new = NewKey::generate(settings)?;
        let change = KeyChange::Rotate {
            id: id.to_owned(),
            successor: new.settings.clone(),
            keep_until,
        };
        self.change(&change).await?;
        match keep_until {
            Some(until) => eprintln!("`{id}` works until {until}"),
            None => eprintln!("removed `{id}`; running gateways apply it within two seconds"),
        }
        self.print_key(&new)
    }

    fn print_key(&self, new: &NewKey) -> Result<()> {
        eprintln!(
            "wrote `{}` to {}; this is the key, and it cannot be shown again:",
            new.settings.id,
            self.store.name()
        );
        // Only the key goes to stdout, so that a script can capture it.
        data(&format!("{}\n", new.reveal()))
    }

    async fn import(&self, file: Option<&PathBuf>) -> Result<()> {
        if !self.is_fleet {
            let words = "there is no database to import into: set `fleet.url`";
            return Err(UsageError(words.into()).into());
        }
        let path = file.unwrap_or(&self.file);
        let read = KeyFile::read(path, self.levels)?;
        let change = KeyChange::Import {
            keys: read.key,
            tenants: read.tenant,
        };
        let changed = self.store.change(&change, &actor()).await?;
        let (count, store) = (changed.added.len(), self.store.name());
        eprintln!("imported {count} keys of `{}` into {store}", path.display());
        for id in &changed.revoked {
            eprintln!("`{id}` was revoked earlier and stays so");
        }
        Ok(())
    }

    async fn tenants(&self, command: &TenantCommand) -> Result<()> {
        match command {
            TenantCommand::Set(tenant) => {
                let table = self.store.load().await?;
                let mut known = table.tenants.iter().chain(&self.configured);
                let before = known.find(|known| known.name == tenant.name).cloned();
                let is_new = before.is_none();
                let settings = tenant.apply_to(&before.unwrap_or_default())?;
                eprint!("stored: {}", tenant_line(&settings));
                self.change(&KeyChange::SetTenant(settings)).await?;
                let has_key = table.keys.iter().any(|key| key.tenant == tenant.name);
                if is_new && !has_key {
                    eprintln!("no stored key belongs to `{}` yet", tenant.name);
                }
                if !self.is_fleet && table.keys.is_empty() {
                    eprintln!(
                        "a gateway that runs without keys needs a reload to use this key file"
                    );
                }
            }
            TenantCommand::List { json } => {
                let tenants = self.store.load().await?.tenants;
                data(&match json {
                    true => pretty(&json!(tenants))?,
                    false => tenants.iter().map(tenant_line).collect(),
                })?;
            }
            TenantCommand::Remove { name } => {
                let change = KeyChange::RemoveTenant { name: name.clone() };
                self.change(&change).await?;
                eprintln!("removed the stored settings of `{name}`");
            }
        }
        Ok(())
    }

    async fn audit(&self, limit: usize, json: bool) -> Result<()> {
        let entries = self.store.audit_log(limit).await?;
        let line = |entry: &AuditEntry| {
            let detail = match &entry.detail {
                Value::Null => String::new(),
                detail => detail.to_string(),
            };
            format!(
                "{}  {:<20} {:<14} {} {detail}\n",
                entry.at, entry.actor, entry.action, entry.subject
            )
        };
        data(&match json {
            true => pretty(&json!(entries))?,
            false => entries.iter().map(line).collect(),
        })
    }

    async fn change(&self, change: &KeyChange) -> Result<()> {
        self.store.change(change, &actor()).await?;
        Ok(())
    }
}

/// The user of this command, for the audit log.
fn actor() -> String {
    let named = ["SUDO_USER", "USER", "LOGNAME"].into_iter();
    let name = named.filter_map(|variable| std::env::var(variable).ok());
    let name = name
        .filter(|name| !name.is_empty())
        .take(1)
        .collect::<String>();
    match name.as_str() {
        "" => "cli".to_owned(),
        name => format!("cli:{name}"),
    }
}

impl AddArgs {
    fn settings(&self) -> KeySettings {
        let mut settings = KeySettings::default();
        settings.id.clone_from(&self.id);
        settings.tenant.clone_from(&self.tenant);
        settings.class = self.class;
        settings.max_class = self.max_class;
        settings.models.clone_from(&self.models);
        settings.expires = self.expires;
        settings
    }
}

impl TenantArgs {
    /// The settings with those of the command line.
    fn apply_to(&self, before: &TenantSettings) -> Result<TenantSettings> {
        let given = json!({
            "weight": self.weight,
            "max_concurrent": self.max_concurrent,
            "max_rps": self.max_rps,
            "max_tokens_per_sec": self.max_tokens_per_sec,
            "tokens_per_day": self.tokens_per_day,
            "tokens_per_month": self.tokens_per_month,
        });
        let given = given.as_object().cloned().unwrap_or_default();
        let mut changes: Map<String, Value> = given
            .into_iter()
            .filter(|(_, value)| !value.is_null())
            .collect();
        for field in &self.clear {
            let field = field.replace('-', "_");
            if changes.insert(field, Value::Null).is_some() {
                let words = "the same limit is set and cleared".to_owned();
                return Err(UsageError(words).into());
            }
        }
        if changes.is_empty() {
            let words = format!(
                "nothing to change for `{}`: name a limit, such as --max-concurrent 10, or \
                 --clear one",
                self.name
            );
            return Err(UsageError(words).into());
        }
        let mut settings = before.changed(&changes).map_err(UsageError)?;
        settings.name.clone_from(&self.name);
        Ok(settings)
    }
}

fn pretty(value: &Value) -> Result<String> {
    Ok(format!("{}\n", serde_json::to_string_pretty(value)?))
}

/// A key without what could admit anybody.
fn without_secrets(key: &KeySettings) -> Value {
    json!({
        "id": key.id, "tenant": key.tenant, "class": key.class, "max_class": key.max_class,
        "models": key.models, "expires": key.expires,
    })
}

fn line(key: &KeySettings) -> String {
    let class = |class: Option<u8>| class.map_or("-".to_owned(), |class| format!("P{class}"));
    let models = match key.models.as_slice() {
        [] => "all models".to_owned(),
        models => models.join(", "),
    };
    let (own, highest) = (class(key.class), class(key.max_class));
    let expires = key.expires.map(|at| format!("  expires {at}"));
    format!(
        "{:<24} {:<16} class {own:<4} up to {highest:<4} {models}{}\n",
        key.id,
        key.tenant,
        expires.unwrap_or_default()
    )
}

fn tenant_line(tenant: &TenantSettings) -> String {
    let settings = json!(tenant);
    let settings = settings.as_object().into_iter().flatten();
    let settings = settings.filter(|(name, _)| *name != "name");
    let settings: String = settings
        .map(|(name, value)| format!(" {name}={value}"))
        .collect();
    format!("{:<24}{settings}\n", tenant.name)
}
