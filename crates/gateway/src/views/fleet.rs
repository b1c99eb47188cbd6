//! The fleet in the console and in metrics.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures_util::future::BoxFuture;
use headworks_service::metrics::{Collect, Exposition, Family};
use headworks_service::panel::{
    Action, ActionResult, Args, Body, Cell, Health, Paged, Panel, PanelError, Parameter,
    ParameterKind, Row, Snapshot, Unit, Widget,
};

use crate::fleet::{Fleet, FleetStatus, NodeStatus, facts};

const CONNECTED: Family = Family::gauge(
    "headworks_fleet_connected",
    "1 if this process exchanges limits with the others, 0 if it is cut off.",
);
const READY: Family = Family::gauge(
    "headworks_fleet_ready",
    "1 if this process has a share of the limits, 0 if requests wait for one.",
);
const EXCHANGES: Family = Family::counter(
    "headworks_fleet_exchanges_total",
    "Exchanges of limits with the shared server, by outcome.",
);
const AGE: Family = Family::gauge(
    "headworks_fleet_exchange_age_seconds",
    "Time since the last exchange that succeeded was sent.",
);
const NODES: Family = Family::gauge("headworks_fleet_nodes", "Nodes that share the limits.");
const ALLOCATOR: Family = Family::gauge(
    "headworks_fleet_allocator",
    "1 if this process divides the limits.",
);
const DIFFERING: Family = Family::gauge(
    "headworks_fleet_config_mismatches",
    "Nodes whose configuration has other limits or weights than that of the allocator.",
);
const SHARE: Family = Family::gauge(
    "headworks_fleet_share",
    "The share of a limit that a node has: requests and tokens per second, concurrent requests.",
);

/// Collector of the fleet's metrics.
pub(super) struct FleetMetrics(pub(super) Arc<Fleet>);

impl Collect for FleetMetrics {
    fn collect(&self, out: &mut Exposition) {
        let (fleet, flag) = (&self.0, |flag: bool| f64::from(u8::from(flag)));
        out.family(&CONNECTED)
            .sample(&[], flag(fleet.is_connected()));
        out.family(&READY).sample(&[], flag(fleet.is_ready()));
        out.family(&ALLOCATOR).sample(&[], flag(fleet.allocates()));
        for (outcome, count) in [
            ("succeeded", &fleet.counts.exchanges),
            ("failed", &fleet.counts.failures),
            ("published", &fleet.counts.publications),
        ] {
            let count = count.load(Ordering::Relaxed) as f64;
            out.family(&EXCHANGES)
                .sample(&[("outcome", outcome)], count);
        }
        if let Some(age) = fleet.age() {
            out.family(&AGE).sample(&[], age.as_secs_f64());
        }
        let status = fleet.status.lock().clone();
        let Some(status) = status else { return };
        out.family(&NODES).sample(&[], status.nodes.len() as f64);
        out.family(&DIFFERING)
            .sample(&[], status.differing().count() as f64);
        let own = status.nodes.iter().filter(|node| node.is_self);
        for share in own.flat_map(|node| &node.shares) {
            let labels = [
                ("scope", share.scope),
                ("name", share.name.as_str()),
                ("limit", share.limit),
            ];
            out.family(&SHARE).sample(&labels, share.value);
        }
    }
}

/// Name of the action that removes a node.
const FORGET: &str = "forget";

/// Panel of the fleet.
pub(super) struct FleetPanel(pub(super) Arc<Fleet>);

impl Panel for FleetPanel {
    fn name(&self) -> &str {
        "fleet"
    }

    fn snapshot(&self) -> Snapshot {
        let status = self.0.status.lock().clone().unwrap_or_default();
        Snapshot {
            title: "Fleet".into(),
            health: self.health(&status),
            widgets: vec![
                Widget::new("nodes", "Nodes", Body::Table(nodes(&status))),
                Widget::new("shares", "Shares of limits", Body::Table(shares(&status))),
            ],
        }
    }

    fn actions(&self) -> Vec<Action> {
        vec![Action {
            name: FORGET.to_owned(),
            title: "Remove a node that has stopped".to_owned(),
            doc: "Its share goes to the others at once. A node that is alive joins anew."
                .to_owned(),
            destructive: true,
            parameters: vec![Parameter {
                name: "node".to_owned(),
                title: "Node".to_owned(),
                kind: ParameterKind::Row("nodes".to_owned()),
                required: true,
                now: None,
            }],
        }]
    }

    fn act<'a>(
        &'a self,
        action: &'a str,
        args: &'a Args,
    ) -> BoxFuture<'a, Result<ActionResult, PanelError>> {
        Box::pin(async move {
            if action != FORGET {
                return Err(PanelError::unknown_action(action));
            }
            let token = args.get("node").and_then(|node| node.as_str());
            let token = token.and_then(|token| token.parse().ok());
            let token = token
                .ok_or_else(|| PanelError::argument("node", "expected the token of a node"))?;
            self.0.outbox.forget(token);
            self.0
                .outbox
                .change(facts::forgotten(token).lasting(facts::FORGET));
            Ok(ActionResult::new("removed with the next exchange"))
        })
    }
}

impl FleetPanel {
    fn health(&self, status: &FleetStatus) -> Health {
        let differing: Vec<&str> = status.differing().map(|node| node.name.as_str()).collect();
        match (self.0.is_connected(), self.0.is_ready()) {
            (false, true) => Health::Warning("cut off from the fleet; its share is in use".into()),
            (false, false) => Health::Bad("cut off from the fleet, and without a share".into()),
            (true, false) => Health::Warning("waiting for a share of the limits".into()),
            (true, true) if differing.is_empty() => Health::Good,
            (true, true) => {
                let names = differing.join(", ");
                Health::Warning(format!(
                    "other limits or weights in the configuration of {names}"
                ))
            }
        }
    }
}

fn nodes(status: &FleetStatus) -> Paged {
    let row = |node: &NodeStatus| {
        let state = match node {
            node if node.version.is_empty() => "unreadable",
            node if node.is_leaving => "leaving",
            node if node.is_ready => "serving",
            _ => "waiting for a share",
        };
        let role = match (node.is_allocator, node.is_self) {
            (true, true) => "this one, allocator",
            (true, false) => "allocator",
            (false, true) => "this one",
            (false, false) => "",
        };
        let cells = vec![
            Cell::from(node.name.as_str()),
            Cell::from(state),
            Cell::from(role),
            node.silent_seconds.map_or(Cell::Empty, Cell::Number),
            Cell::from(if node.same_config { "same" } else { "differs" }),
            Cell::from(node.version.as_str()),
        ];
        Row::new(node.token.as_str(), cells)
    };
    let columns = [
        ("node", Unit::Count),
        ("state", Unit::Count),
        ("role", Unit::Count),
        ("last report", Unit::Seconds),
        ("configuration", Unit::Count),
        ("version", Unit::Count),
    ];
    Paged::new(&columns, status.nodes.iter().map(row).collect(), None)
}

fn shares(status: &FleetStatus) -> Paged {
    let mut rows = Vec::new();
    for node in &status.nodes {
        for share in &node.shares {
            let what = match share.scope {
                "gateway" => "all requests".to_owned(),
                scope => format!("{scope} {}", share.name),
            };
            let id = format!("{}/{what}/{}", node.token, share.limit);
            let cells = vec![
                Cell::from(node.name.as_str()),
                Cell::Text(what),
                Cell::from(match share.limit {
                    "requests" => "requests per second",
                    "tokens" => "tokens per second",
                    limit => limit,
                }),
                share.value.into(),
            ];
            rows.push(Row::new(id, cells));
        }
    }
    let columns = [
        ("node", Unit::Count),
        ("of", Unit::Count),
        ("limit", Unit::Count),
        ("share", Unit::Count),
    ];
    Paged::new(&columns, rows, None)
}
