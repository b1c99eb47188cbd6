//! The console's panel of the gateway.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use headworks_core::{Cost, TargetState, Time};
use headworks_service::panel::{
    Action, Args, Body, Change, Done, Explanation, Health, Panel, PanelError, Parameter, Snapshot,
    WhatIf, Widget,
};
use jiff::Timestamp;

use super::explain;
use super::tables::{Recent, Tables};
use super::what_if::{self, Arrival};
use crate::overlay::Overlay;
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
        let recent = Recent::of(&self.0.journal, view.classes.len());
        let config = self.0.scheduling(&self.0.overlay());
        let tables = Tables {
            shared: &self.0,
            view: &view,
            config: &config,
            recent: &recent,
        };
        Snapshot {
            title: "Gateway".into(),
            health: health(&view),
            widgets: vec![
                Widget::new("load", "Requests", Body::Series(tables.load())),
                Widget::new("refused", "Sent away", Body::Series(tables.refused())),
                Widget::new(
                    "waits",
                    "Wait of nine in ten, over the last minute",
                    Body::Series(tables.waits()),
                ),
                Widget::new("classes", "Classes", Body::Table(tables.classes())),
                Widget::new("upstreams", "Upstreams", Body::Table(tables.upstreams())),
                Widget::new("tenants", "Tenants", Body::Table(tables.tenants())),
                Widget::new("requests", "Last requests", Body::Table(tables.requests())),
            ],
        }
    }

    fn explains(&self) -> Option<&str> {
        Some("request")
    }

    fn settings(&self) -> Vec<Parameter> {
        Overlay::parameters(&self.0.scheduling(&self.0.overlay()))
    }

    fn actions(&self) -> Vec<Action> {
        vec![
            Action {
                name: CHANGE.to_owned(),
                title: "Change settings".to_owned(),
                doc: "Holds until the next reload or start; the file stays as it is.".to_owned(),
                destructive: true,
                parameters: self.settings(),
            },
            Action {
                name: RESET.to_owned(),
                title: "Back to the file's settings".to_owned(),
                doc: "Takes back what was changed here.".to_owned(),
                ..Action::default()
            },
        ]
    }

    fn act<'a>(
        &'a self,
        action: &'a str,
        args: &'a Args,
    ) -> BoxFuture<'a, Result<Done, PanelError>> {
        Box::pin(async move {
            match action {
                CHANGE => self.change(args),
                RESET => self.lay_over(Overlay::default(), "the file's settings hold again"),
                _ => Err(PanelError::unknown_action(action)),
            }
        })
    }

    fn what_if<'a>(&'a self, changes: &'a [Change]) -> BoxFuture<'a, Result<WhatIf, PanelError>> {
        Box::pin(async move {
            let mut overlay = self.0.overlay();
            let now = self.0.scheduling(&overlay);
            for Change { key, value } in changes {
                overlay.change(self.0.plan.load().levels(), key, value)?;
            }
            let then = self.0.scheduling(&overlay);
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

impl GatewayPanel {
    fn change(&self, args: &Args) -> Result<Done, PanelError> {
        let mut overlay = self.0.overlay();
        for (key, value) in args.iter().filter(|(_, value)| !value.is_null()) {
            overlay.change(self.0.plan.load().levels(), key, value)?;
        }
        if overlay.is_empty() {
            return Err(PanelError::Refused("nothing was changed".to_owned()));
        }
        self.lay_over(overlay, "changed, until the next reload or start")
    }

    fn lay_over(&self, overlay: Overlay, message: &str) -> Result<Done, PanelError> {
        let failed = |cause: headworks_core::ConfigError| PanelError::Failed(cause.to_string());
        self.0.lay_over(overlay).map_err(failed)?;
        Ok(Done::new(message))
    }

    /// Requests of the last minutes, in the order of their arrival.
    fn arrivals(&self) -> Vec<Arrival> {
        let plan = self.0.plan.load();
        let now = Timestamp::now();
        let from = now - what_if::SPAN;
        let mut arrivals = Vec::new();
        self.0.journal.since(from, |entry| {
            let tenant: &str = &entry.tenant;
            let at = entry.arrived.duration_since(from).as_nanos();
            let arrival = Arrival {
                at: Time::from_nanos(u64::try_from(at).unwrap_or(0)),
                class: entry.class,
                flow: self.0.seed.flow(&tenant),
                estimate: Cost(entry.estimate),
                drawn: entry.tokens.map(Cost),
                took: entry.took.unwrap_or_default(),
                timeout: plan.queue_timeout(entry.class),
            };
            arrivals.push((arrival, entry.took.is_some()));
        });
        arrivals.sort_by_key(|(arrival, _)| arrival.at);
        what_if::with_times(arrivals)
    }
}
