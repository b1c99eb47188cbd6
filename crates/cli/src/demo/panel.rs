//! The demo's panel: what it sends, and the buttons that start and stop it.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use futures_util::future::BoxFuture;
use headworks_service::panel::{
    Action, ActionResult, Args, Body, Health, Line, LineKind, Panel, PanelError, Series, Snapshot,
    Unit, Widget,
};

use super::{Demo, LENGTH};

const START: &str = "start";
const STOP: &str = "stop";

/// The panel of a demo.
pub(super) struct DemoPanel(pub(super) Arc<Demo>);

impl Panel for DemoPanel {
    fn name(&self) -> &'static str {
        "demo"
    }

    fn snapshot(&self) -> Snapshot {
        let counts = &self.0.counts;
        let line = |name: &str, counter: &std::sync::atomic::AtomicU64| Line {
            name: name.into(),
            kind: LineKind::Total,
            value: counter.load(Ordering::Relaxed) as f64,
            ..Line::default()
        };
        let lines = vec![
            line("chat requests", &counts.chat),
            line("batch requests", &counts.batch),
            line("rejected", &counts.rejected),
            line("announces", &counts.announces),
        ];
        let series = Series {
            unit: Unit::PerSecond,
            lines,
        };
        let running = self.0.running();
        let health = match &running {
            Some((_, end)) => {
                let minutes = end.duration_since(Instant::now()).as_secs().div_ceil(60);
                Health::Warning(format!(
                    "synthetic load is running, not real traffic; it ends in {minutes} min, or with Stop"
                ))
            }
            None => Health::Idle,
        };
        let action = if running.is_some() { STOP } else { START };
        let button = Body::Action {
            action: action.into(),
        };
        Snapshot {
            title: "Demo: synthetic load".into(),
            health,
            widgets: vec![
                Widget::new("sent", "Synthetic requests sent", Body::Series(series)),
                Widget::new("control", "Start or stop", button),
            ],
        }
    }

    fn actions(&self) -> Vec<Action> {
        let minutes = LENGTH.as_secs() / 60;
        let start = Action {
            name: START.into(),
            title: "Start the demo".into(),
            doc: format!(
                "Sends synthetic requests to the gateway and announces to the tracker, and starts a synthetic migration. Ends after {minutes} minutes."
            ),
            ..Action::default()
        };
        let stop = Action {
            name: STOP.into(),
            title: "Stop the demo".into(),
            doc: "Stops sending. Queued requests are still served.".into(),
            ..Action::default()
        };
        vec![start, stop]
    }

    fn act<'a>(
        &'a self,
        action: &'a str,
        _args: &'a Args,
    ) -> BoxFuture<'a, Result<ActionResult, PanelError>> {
        Box::pin(async move {
            let (changed, otherwise) = match action {
                START => (self.0.start().await, "it runs already"),
                STOP => (self.0.stop(), "it does not run"),
                other => return Err(PanelError::unknown_action(other)),
            };
            match changed {
                true => Ok(ActionResult::new("done")),
                false => Err(PanelError::Refused(otherwise.into())),
            }
        })
    }
}
