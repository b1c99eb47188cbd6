//! A generic description of an application, which the console renders without knowing it.
//!
//! A [`Panel`] provides typed [`Widget`]s with names and units, lists its [`Action`]s, explains why
//! things are as they are, and answers what-if questions. Everything is serializable: the admin
//! listener serves it and the console draws it. A panel reads the state of its application and must
//! not stop it; `snapshot` is called once a second and must be cheap.

mod action;
mod description;
mod engine;
mod error;
mod explanation;
mod widget;

use std::sync::Arc;

use futures_util::future::BoxFuture;

pub use action::{Action, ActionResult, Args, Choice, Parameter, ParameterKind};
pub use description::{PanelDescription, PanelList};
pub use engine::EnginePanel;
pub use error::PanelError;
pub use explanation::{Change, Comparison, Explanation, Fact, Prediction};
pub use widget::{
    Body, Cell, Column, Cursor, Health, HeatMap, Line, LineKind, Page, Paged, Round, RoundState,
    Rounds, Row, Series, Side, Snapshot, Unit, Widget,
};

/// The view of an application on itself. Only `name` and `snapshot` are required; the other methods
/// respond by default that they are not offered.
///
/// ```
/// use headworks_service::panel::{Body, Line, Panel, Series, Snapshot, Widget};
///
/// struct Pump;
///
/// impl Panel for Pump {
///     fn name(&self) -> &str {
///         "pump"
///     }
///
///     fn snapshot(&self) -> Snapshot {
///         let line = Line { name: "turns".into(), value: 12.0, ..Line::default() };
///         let series = Series { lines: vec![line], ..Series::default() };
///         let widgets = vec![Widget::new("turns", "Turns", Body::Series(series))];
///         Snapshot { title: "Pump".into(), widgets, ..Snapshot::default() }
///     }
/// }
///
/// assert!(Pump.actions().is_empty());
/// ```
pub trait Panel: Send + Sync {
    /// The name of the application, as in its section and in URLs: short, lower case.
    fn name(&self) -> &str;

    /// The current state. Must be cheap: it is called once a second and at every request. The
    /// overview shows the first series: arrivals, waiting, running and rejected.
    fn snapshot(&self) -> Snapshot;

    /// More rows of a table or tree, from a cursor of an earlier page or snapshot.
    fn page<'a>(
        &'a self,
        widget: &'a str,
        cursor: &'a Cursor,
    ) -> BoxFuture<'a, Result<Page, PanelError>> {
        let _ = cursor;
        Box::pin(async move { Err(PanelError::unknown_widget(widget)) })
    }

    /// The actions it offers.
    fn actions(&self) -> Vec<Action> {
        Vec::new()
    }

    /// Performs an action. [`Action::check`] has validated the arguments.
    fn act<'a>(
        &'a self,
        action: &'a str,
        args: &'a Args,
    ) -> BoxFuture<'a, Result<ActionResult, PanelError>> {
        let _ = args;
        Box::pin(async move { Err(PanelError::unknown_action(action)) })
    }

    /// The kind of subject it explains, in a word such as "request"; `None` if it offers no
    /// explanations. If the first column of a table or tree has that name, its rows are such
    /// subjects, identified by their ids.
    fn explains(&self) -> Option<&str> {
        None
    }

    /// The settings that a what-if question may change; empty if it answers no such question.
    fn settings(&self) -> Vec<Parameter> {
        Vec::new()
    }

    /// Explains the state of `subject`: a job, a target, a file or a request.
    fn explain<'a>(&'a self, subject: &'a str) -> BoxFuture<'a, Result<Explanation, PanelError>> {
        let _ = subject;
        Box::pin(async { Err(PanelError::not_offered("explanations")) })
    }

    /// Predicts the effect of other settings.
    fn what_if<'a>(
        &'a self,
        changes: &'a [Change],
    ) -> BoxFuture<'a, Result<Prediction, PanelError>> {
        let _ = changes;
        Box::pin(async { Err(PanelError::not_offered("what-if answers")) })
    }
}

/// The panels of a program, by name.
#[derive(Clone, Default)]
pub struct Panels {
    panels: Vec<Arc<dyn Panel>>,
}

impl Panels {
    /// No panels.
    #[must_use]
    pub fn new() -> Panels {
        Panels::default()
    }

    /// Adds `panel`, replacing one of the same name.
    pub fn add(&mut self, panel: Arc<dyn Panel>) {
        self.panels.retain(|known| known.name() != panel.name());
        self.panels.push(panel);
    }

    /// The panel called `name`.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Arc<dyn Panel>> {
        self.panels.iter().find(|panel| panel.name() == name)
    }

    /// All panels, in the order in which they were added.
    pub fn iter(&self) -> std::slice::Iter<'_, Arc<dyn Panel>> {
        self.panels.iter()
    }
}

impl<'a> IntoIterator for &'a Panels {
    type Item = &'a Arc<dyn Panel>;
    type IntoIter = std::slice::Iter<'a, Arc<dyn Panel>>;
    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}
