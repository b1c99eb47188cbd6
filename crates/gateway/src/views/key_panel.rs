//! The console's panel of keys and tenants.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use headworks_service::panel::{
    Action, ActionResult, Args, Body, Cell, Health, Paged, Panel, PanelError, Parameter,
    ParameterKind, Row, Snapshot, Unit, Widget,
};
use jiff::Timestamp;

use crate::config::{KeySettings, TenantSettings};
use crate::error::Error;
use crate::key_store::{KeyChange, NewKey, parse_moment};
use crate::shared::Shared;

/// Rows that are shown. The command line lists all.
const SHOWN: usize = 500;

/// The user of the console, for the audit log. Its page has the token of the admin listener.
const ACTOR: &str = "console";

const ADD: &str = "add-key";
const ROTATE: &str = "rotate-key";
const EXPIRE: &str = "expire-key";
const REVOKE: &str = "revoke-key";
const BUDGET: &str = "set-budget";

/// Panel of the stored keys and tenants.
pub(super) struct KeyPanel(pub(super) Arc<Shared>);

impl Panel for KeyPanel {
    fn name(&self) -> &str {
        "gateway-keys"
    }

    fn snapshot(&self) -> Snapshot {
        let table = self.0.stored_keys();
        Snapshot {
            title: "Gateway keys".into(),
            health: self.health(table.keys.is_empty()),
            widgets: vec![
                Widget::new("keys", "Stored keys", Body::Table(keys(&table.keys))),
                Widget::new(
                    "tenants",
                    "Stored tenants",
                    Body::Table(tenants(&table.tenants)),
                ),
            ],
        }
    }

    fn actions(&self) -> Vec<Action> {
        let parameter = |name: &str, kind, required| Parameter {
            name: name.to_owned(),
            title: name.replace('_', " "),
            kind,
            required,
            now: None,
        };
        let text = |name: &str| parameter(name, ParameterKind::Text, false);
        let needed = |name: &str| parameter(name, ParameterKind::Text, true);
        let key = || parameter("key", ParameterKind::Row("keys".to_owned()), true);
        let whole = |name: &str| parameter(name, ParameterKind::Whole, false);
        let action = |name: &str, title: &str, doc: &str, destructive, parameters| Action {
            name: name.to_owned(),
            title: title.to_owned(),
            doc: doc.to_owned(),
            destructive,
            parameters,
        };
        vec![
            action(
                ADD,
                "Create a key",
                "Shows the key once. `expires` is a time such as 90d or 2027-01-01.",
                false,
                vec![
                    needed("tenant"),
                    text("id"),
                    whole("class"),
                    text("expires"),
                ],
            ),
            action(
                ROTATE,
                "Rotate a key",
                "Creates a successor and shows it once. The replaced key works until `keep_until`.",
                false,
                vec![key(), text("id"), needed("keep_until")],
            ),
            action(
                EXPIRE,
                "Set the expiry of a key",
                "The key is refused from this time on, such as 7d or 2027-01-01.",
                true,
                vec![key(), needed("at")],
            ),
            action(
                REVOKE,
                "Revoke a key",
                "The key is refused by every gateway within two seconds.",
                true,
                vec![key()],
            ),
            action(
                BUDGET,
                "Set the budget of a tenant",
                "Other stored settings of the tenant stay. Without a number, the budget is unlimited.",
                true,
                vec![
                    needed("tenant"),
                    whole("tokens_per_day"),
                    whole("tokens_per_month"),
                ],
            ),
        ]
    }

    fn act<'a>(
        &'a self,
        action: &'a str,
        args: &'a Args,
    ) -> BoxFuture<'a, Result<ActionResult, PanelError>> {
        Box::pin(async move {
            match action {
                ADD => self.add(args).await,
                ROTATE => self.rotate(args).await,
                EXPIRE => {
                    let (id, at) = (text(args, "key"), moment(args, "at")?);
                    let done = format!("set the expiry of `{id}`");
                    self.change(KeyChange::Expire { id, at }, done).await
                }
                REVOKE => {
                    let id = text(args, "key");
                    let done = format!("revoked `{id}`");
                    self.change(KeyChange::Revoke { id }, done).await
                }
                BUDGET => self.set_budget(args).await,
                _ => Err(PanelError::unknown_action(action)),
            }
        })
    }
}

impl KeyPanel {
    fn health(&self, is_empty: bool) -> Health {
        match self.0.clock.age() {
            Some((age, most)) if age >= most => {
                Health::Bad("the database is away; stored keys are refused".to_owned())
            }
            _ if is_empty => Health::Idle,
            _ => Health::Good,
        }
    }

    async fn add(&self, args: &Args) -> Result<ActionResult, PanelError> {
        let class = args.get("class").and_then(serde_json::Value::as_u64);
        let class = class.map(|class| u8::try_from(class).unwrap_or(u8::MAX));
        let new = generate(KeySettings {
            id: text(args, "id"),
            tenant: text(args, "tenant"),
            class,
            expires: moment(args, "expires")?,
            ..KeySettings::default()
        })?;
        let change = KeyChange::Add(new.settings.clone());
        self.change(change, shown_once(&new)).await
    }

    async fn rotate(&self, args: &Args) -> Result<ActionResult, PanelError> {
        let id = text(args, "key");
        let table = self.0.stored_keys();
        let replaced = table.keys.iter().find(|key| key.id == id);
        let new = generate(KeySettings {
            id: text(args, "id"),
            tenant: replaced.map_or(String::new(), |key| key.tenant.clone()),
            ..KeySettings::default()
        })?;
        let change = KeyChange::Rotate {
            id,
            successor: new.settings.clone(),
            keep_until: moment(args, "keep_until")?,
        };
        self.change(change, shown_once(&new)).await
    }

    async fn set_budget(&self, args: &Args) -> Result<ActionResult, PanelError> {
        let name = text(args, "tenant");
        let number = |name: &str| args.get(name).and_then(serde_json::Value::as_u64);
        let active = self.0.active.load();
        // Settings of the configuration are kept, too: stored ones replace them as a whole.
        let settings = active.tenant(&name).cloned().unwrap_or_default();
        let tenant = TenantSettings {
            tokens_per_day: number("tokens_per_day"),
            tokens_per_month: number("tokens_per_month"),
            name: name.clone(),
            ..settings
        };
        let done = format!("set the budget of `{name}`");
        self.change(KeyChange::SetTenant(tenant), done).await
    }

    async fn change(&self, change: KeyChange, done: String) -> Result<ActionResult, PanelError> {
        match self.0.change_keys(&change, ACTOR).await {
            Ok(()) => Ok(ActionResult::new(done)),
            Err(error @ (Error::Fleet(_) | Error::KeyFile { .. })) => {
                Err(PanelError::Failed(error.to_string()))
            }
            Err(error) => Err(PanelError::Refused(error.to_string())),
        }
    }
}

/// Not destructive, so the message is not logged.
fn shown_once(new: &NewKey) -> String {
    let (id, key) = (&new.settings.id, new.reveal());
    format!("`{id}` is {key}; this is the only time that the key is shown")
}

fn generate(settings: KeySettings) -> Result<NewKey, PanelError> {
    NewKey::generate(settings).map_err(|error| PanelError::Failed(error.to_string()))
}

fn text(args: &Args, name: &str) -> String {
    let value = args.get(name).and_then(serde_json::Value::as_str);
    value.unwrap_or_default().to_owned()
}

fn moment(args: &Args, name: &str) -> Result<Option<Timestamp>, PanelError> {
    match text(args, name).as_str() {
        "" => Ok(None),
        text => parse_moment(text)
            .map(Some)
            .map_err(|cause| PanelError::argument(name, cause)),
    }
}

fn keys(keys: &[KeySettings]) -> Paged {
    let class =
        |class: Option<u8>| class.map_or(Cell::Empty, |class| Cell::Text(format!("P{class}")));
    let rows = keys.iter().take(SHOWN).map(|key| {
        let models = match key.models.as_slice() {
            [] => "all".to_owned(),
            models => models.join(", "),
        };
        let expires = key
            .expires
            .map_or(Cell::Empty, |at| Cell::Text(at.to_string()));
        let cells = vec![
            Cell::from(key.id.as_str()),
            Cell::from(key.tenant.as_str()),
            class(key.class),
            class(key.max_class),
            Cell::Text(models),
            expires,
        ];
        Row::new(key.id.as_str(), cells)
    });
    let names = ["key", "tenant", "class", "up to class", "models", "expires"];
    let mut table = Paged::new(&names.map(|name| (name, Unit::Count)), rows.collect(), None);
    table.total = Some(keys.len() as u64);
    table
}

fn tenants(tenants: &[TenantSettings]) -> Paged {
    let number = |number: Option<f64>| number.map_or(Cell::Empty, Cell::from);
    let rows = tenants.iter().take(SHOWN).map(|tenant| {
        let cells = vec![
            Cell::from(tenant.name.as_str()),
            number(tenant.weight.map(f64::from)),
            number(tenant.max_concurrent.map(f64::from)),
            number(tenant.max_rps),
            number(tenant.max_tokens_per_sec),
            number(tenant.tokens_per_day.map(|tokens| tokens as f64)),
            number(tenant.tokens_per_month.map(|tokens| tokens as f64)),
        ];
        Row::new(tenant.name.as_str(), cells)
    });
    let names = [
        ("tenant", Unit::Count),
        ("weight", Unit::Count),
        ("limit", Unit::Count),
        ("request rate limit", Unit::PerSecond),
        ("token rate limit", Unit::TokensPerSecond),
        ("tokens per day", Unit::Tokens),
        ("tokens per month", Unit::Tokens),
    ];
    let mut table = Paged::new(&names, rows.collect(), None);
    table.total = Some(tenants.len() as u64);
    table
}
