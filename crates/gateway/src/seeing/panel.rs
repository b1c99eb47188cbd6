//! What the console shows of the gateway.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use headworks_core::{Class, TargetState};
use headworks_service::panel::{
    Body, Cell, Column, Explanation, Health, Line, LineKind, Page, Paged, Panel, PanelError, Row,
    Series, Snapshot, Unit, Widget,
};

use super::explain;
use crate::shared::Shared;
use crate::wire::class_name;

/// How many of the last requests are shown.
const SHOWN: usize = 50;

/// The gateway's panel.
pub(super) struct GatewayPanel(pub(super) Arc<Shared>);

impl Panel for GatewayPanel {
    fn name(&self) -> &str {
        "gateway"
    }

    fn snapshot(&self) -> Snapshot {
        let view = self.0.permits.inspect();
        Snapshot {
            title: "Gateway".into(),
            health: health(&view),
            widgets: vec![
                Widget::new("load", "Requests", Body::Series(self.load(&view))),
                Widget::new("classes", "Classes", Body::Table(classes(&view))),
                Widget::new("upstreams", "Upstreams", Body::Table(self.upstreams(&view))),
                Widget::new("tenants", "Tenants", Body::Table(self.tenants())),
                Widget::new("requests", "Last requests", Body::Table(self.requests())),
            ],
        }
    }

    fn explain<'a>(&'a self, subject: &'a str) -> BoxFuture<'a, Result<Explanation, PanelError>> {
        let told = explain::explain(&self.0, subject);
        Box::pin(async move { told.ok_or_else(|| PanelError::unknown_subject(subject)) })
    }
}

fn health(view: &headworks_core::View) -> Health {
    let resting = view
        .targets
        .iter()
        .filter(|target| matches!(target.state, TargetState::Suspended { .. }));
    match (resting.count(), view.running + view.waiting) {
        (0, 0) => Health::Idle,
        (0, _) => Health::Good,
        (resting, _) if resting == view.targets.len() => Health::Bad("every upstream rests".into()),
        (resting, _) => Health::Warning(format!("{resting} upstreams rest")),
    }
}

fn columns(names: &[(&str, Unit)]) -> Vec<Column> {
    let column = |(name, unit): &(&str, Unit)| Column {
        name: (*name).to_owned(),
        unit: *unit,
    };
    names.iter().map(column).collect()
}

fn table(names: &[(&str, Unit)], rows: Vec<Row>) -> Paged {
    Paged {
        columns: columns(names),
        total: Some(rows.len() as u64),
        page: Page { rows, next: None },
    }
}

fn row(id: impl Into<String>, cells: Vec<Cell>) -> Row {
    Row {
        id: id.into(),
        cells,
        children: None,
    }
}

fn classes(view: &headworks_core::View) -> Paged {
    let rows = view.classes.iter().enumerate().map(|(level, class)| {
        let level = Class(u8::try_from(level).unwrap_or(u8::MAX));
        let name = class_name(level).map_or(level.to_string(), |name| format!("{level} {name}"));
        let wait = class.stats.waits.quantile(0.9).as_secs_f64();
        row(
            level.to_string(),
            vec![
                Cell::Text(name),
                f64::from(class.weight).into(),
                (class.waiting as f64).into(),
                (class.stats.granted as f64).into(),
                (class.stats.charged as f64).into(),
                wait.into(),
            ],
        )
    });
    let names = [
        ("class", Unit::Count),
        ("weight", Unit::Count),
        ("waiting", Unit::Count),
        ("granted", Unit::Count),
        ("charged", Unit::Tokens),
        ("wait, 90 %", Unit::Seconds),
    ];
    table(&names, rows.collect())
}

impl GatewayPanel {
    fn load(&self, view: &headworks_core::View) -> Series {
        let most = self.0.plan.load().config.scheduler_max_concurrent;
        let line = |name: &str, kind, value: u64, limit| Line {
            name: name.to_owned(),
            kind,
            value: value as f64,
            limit,
        };
        let granted = view.classes.iter().map(|class| class.stats.granted).sum();
        Series {
            unit: Unit::Count,
            lines: vec![
                line(
                    "running",
                    LineKind::Level,
                    view.running,
                    Some(f64::from(most)),
                ),
                line("waiting", LineKind::Level, view.waiting, None),
                line("granted", LineKind::Total, granted, None),
            ],
        }
    }

    fn upstreams(&self, view: &headworks_core::View) -> Paged {
        let plan = self.0.plan.load();
        let rows = plan.upstreams().filter_map(|upstream| {
            let target = view.targets.get(upstream.target.index())?;
            let health = match target.state {
                TargetState::Active => Health::Good,
                other => Health::Warning(other.name().to_owned()),
            };
            let cells = vec![
                upstream.name().into(),
                Cell::Health(health),
                f64::from(target.running).into(),
                (target.granted as f64).into(),
                f64::from(target.faults).into(),
            ];
            Some(row(upstream.name(), cells))
        });
        let names = [
            ("upstream", Unit::Count),
            ("state", Unit::Count),
            ("running", Unit::Count),
            ("granted", Unit::Count),
            ("faults in a row", Unit::Count),
        ];
        table(&names, rows.collect())
    }

    fn tenants(&self) -> Paged {
        let rows = self.0.ledger.totals().into_iter().map(|(tenant, classes)| {
            let (mut requests, mut refused, mut tokens) = (0, 0, 0);
            for totals in &classes {
                requests += totals.requests;
                refused += totals.refused;
                tokens += totals.tokens;
            }
            let numbers = [requests, refused, tokens].map(|number| Cell::Number(number as f64));
            row(
                &*tenant,
                [Cell::from(&*tenant)].into_iter().chain(numbers).collect(),
            )
        });
        let names = [
            ("tenant", Unit::Count),
            ("requests", Unit::Count),
            ("refused", Unit::Count),
            ("tokens", Unit::Tokens),
        ];
        table(&names, rows.collect())
    }

    fn requests(&self) -> Paged {
        let rows = self.0.journal.latest(SHOWN).into_iter().map(|entry| {
            let seconds = |time: Option<std::time::Duration>| {
                time.map_or(Cell::Empty, |time| time.as_secs_f64().into())
            };
            let id = self.0.journal.ids.name(entry.number);
            let cells = vec![
                Cell::Text(id.clone()),
                Cell::from(&*entry.tenant),
                Cell::Text(entry.class.to_string()),
                Cell::Text(entry.model),
                Cell::from(entry.reason),
                seconds(entry.waited),
                seconds(entry.took),
                entry
                    .tokens
                    .map_or(Cell::Empty, |tokens| (tokens as f64).into()),
            ];
            row(id, cells)
        });
        let names = [
            ("request", Unit::Count),
            ("tenant", Unit::Count),
            ("class", Unit::Count),
            ("model", Unit::Count),
            ("what happened", Unit::Count),
            ("waited", Unit::Seconds),
            ("took", Unit::Seconds),
            ("tokens", Unit::Tokens),
        ];
        table(&names, rows.collect())
    }
}
