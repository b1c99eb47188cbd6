//! The console's panel of the gateway.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use headworks_core::{Cost, Time};
use headworks_service::panel::{
    Action, ActionResult, Args, Body, Change, Explanation, Health, Panel, PanelError, Parameter,
    Prediction, Snapshot, Widget,
};
use jiff::Timestamp;

use super::explain;
use super::tables::{Recent, Tables};
use super::what_if::{self, ReplayedRequest};
use crate::overrides::Overrides;
use crate::shared::Shared;

/// Names of the actions.
const CHANGE: &str = "change";
const RESET: &str = "reset";

/// Panel of the gateway.
pub(super) struct GatewayPanel(pub(super) Arc<Shared>);

impl Panel for GatewayPanel {
    fn name(&self) -> &str {
        "gateway"
    }

    fn snapshot(&self) -> Snapshot {
        let view = self.0.permits.inspect();
        let recent = Recent::of(&self.0.history, view.classes.len());
        let config = self.0.scheduler_config(&self.0.overrides());
        let tables = Tables {
            shared: &self.0,
            view: &view,
            config: &config,
            recent: &recent,
        };
        Snapshot {
            title: "Gateway".into(),
            health: self.health(&view),
            widgets: vec![
                Widget::new("load", "Requests", Body::Series(tables.load())),
                Widget::new("refused", "Rejected", Body::Series(tables.refused())),
                Widget::new(
                    "waits",
                    "p90 wait, last minute",
                    Body::Series(tables.waits()),
                ),
                Widget::new("classes", "Classes", Body::Table(tables.classes())),
                Widget::new("upstreams", "Upstreams", Body::Table(tables.upstreams())),
                Widget::new("pools", "Capacity pools", Body::Table(tables.pools())),
                Widget::new("tenants", "Tenants", Body::Table(tables.tenants())),
                Widget::new(
                    "requests",
                    "Latest requests",
                    Body::Table(tables.requests()),
                ),
            ],
        }
    }

    fn explains(&self) -> Option<&str> {
        Some("request")
    }

    fn settings(&self) -> Vec<Parameter> {
        Overrides::parameters(&self.0.scheduler_config(&self.0.overrides()))
    }

    fn actions(&self) -> Vec<Action> {
        vec![
            Action {
                name: CHANGE.to_owned(),
                title: "Change settings".to_owned(),
                doc: "Applies until the next reload or restart. The configuration file does not change.".to_owned(),
                destructive: true,
                parameters: self.settings(),
            },
            Action {
                name: RESET.to_owned(),
                title: "Reset to the configuration file".to_owned(),
                doc: "Discards the settings that were changed here.".to_owned(),
                ..Action::default()
            },
        ]
    }

    fn act<'a>(
        &'a self,
        action: &'a str,
        args: &'a Args,
    ) -> BoxFuture<'a, Result<ActionResult, PanelError>> {
        Box::pin(async move {
            match action {
                CHANGE => self.change(args),
                RESET => self.apply_overrides(
                    Overrides::default(),
                    "settings reset to the configuration file",
                ),
                _ => Err(PanelError::unknown_action(action)),
            }
        })
    }

    fn what_if<'a>(
        &'a self,
        changes: &'a [Change],
    ) -> BoxFuture<'a, Result<Prediction, PanelError>> {
        Box::pin(async move {
            let mut overrides = self.0.overrides();
            let now = self.0.scheduler_config(&overrides);
            for Change { key, value } in changes {
                overrides.change(self.0.active.load().levels(), key, value)?;
            }
            let then = self.0.scheduler_config(&overrides);
            let arrivals = self.arrivals();
            // The replay is CPU-bound, so it does not run on a thread of the runtime.
            let compared =
                tokio::task::spawn_blocking(move || what_if::compare(&arrivals, &now, &then));
            let failed = |cause: &dyn std::fmt::Display| PanelError::Failed(cause.to_string());
            let answer = compared.await.map_err(|cause| failed(&cause))?;
            answer.map_err(|cause| failed(&cause))
        })
    }

    fn explain<'a>(&'a self, subject: &'a str) -> BoxFuture<'a, Result<Explanation, PanelError>> {
        let explanation = explain::explain(&self.0, subject);
        Box::pin(async move { explanation.ok_or_else(|| PanelError::unknown_subject(subject)) })
    }
}

impl GatewayPanel {
    fn health(&self, view: &headworks_core::View) -> Health {
        let (active, now) = (self.0.active.load(), self.0.permits.now());
        let states = active.upstreams().filter_map(|upstream| {
            let target = view.targets.get(upstream.target.index())?;
            Some(upstream.state(target.state, now).1.is_some())
        });
        let states: Vec<bool> = states.collect();
        let suspended = states.iter().filter(|suspended| **suspended).count();
        match (suspended, view.running + view.waiting) {
            (0, 0) => Health::Idle,
            (0, _) => Health::Good,
            (suspended, _) if suspended == states.len() => {
                Health::Bad("all upstreams are suspended".into())
            }
            (suspended, _) => Health::Warning(format!("{suspended} upstreams are suspended")),
        }
    }

    fn change(&self, args: &Args) -> Result<ActionResult, PanelError> {
        let mut overrides = self.0.overrides();
        for (key, value) in args.iter().filter(|(_, value)| !value.is_null()) {
            overrides.change(self.0.active.load().levels(), key, value)?;
        }
        if overrides.is_empty() {
            return Err(PanelError::Refused("nothing was changed".to_owned()));
        }
        self.apply_overrides(overrides, "applied until the next reload or restart")
    }

    fn apply_overrides(
        &self,
        overrides: Overrides,
        message: &str,
    ) -> Result<ActionResult, PanelError> {
        let failed = |cause: headworks_core::ConfigError| PanelError::Failed(cause.to_string());
        self.0.apply_overrides(overrides).map_err(failed)?;
        Ok(ActionResult::new(message))
    }

    /// Requests of the last minutes, in the order of their arrival.
    fn arrivals(&self) -> Vec<ReplayedRequest> {
        let active = self.0.active.load();
        let now = Timestamp::now();
        let from = now - what_if::SPAN;
        let mut arrivals = Vec::new();
        self.0.history.since(from, |entry| {
            let tenant: &str = &entry.tenant;
            let at = entry.arrived.duration_since(from).as_nanos();
            let arrival = ReplayedRequest {
                at: Time::from_nanos(u64::try_from(at).unwrap_or(0)),
                class: entry.class,
                flow: self.0.seed.flow(&tenant),
                estimate: Cost(entry.estimate),
                actual_cost: entry.tokens.map(Cost),
                took: entry.took.unwrap_or_default(),
                timeout: active.queue_timeout(entry.class),
            };
            arrivals.push((arrival, entry.took.is_some()));
        });
        arrivals.sort_by_key(|(arrival, _)| arrival.at);
        what_if::with_service_times(arrivals)
    }
}
