//! What an application shows of itself, so that a page can draw it without knowing it.
//!
//! A [`Panel`] hands out typed [`Widget`]s with names and units, says which [`Action`]s it takes,
//! explains why things are as they are, and answers what-if questions. Everything is
//! serialisable; the admin listener passes it on and the console draws it. A panel reads its
//! application's state and must not stop it: `snapshot` is called once a second and is cheap.

mod action;
mod answer;
mod described;
mod engine;
mod error;
mod widget;

use std::sync::Arc;

use futures_util::future::BoxFuture;

pub use action::{Action, Args, Choice, Done, Parameter, ParameterKind};
pub use answer::{Change, Comparison, Explanation, Fact, WhatIf};
pub use described::{Described, PanelList};
pub use engine::EnginePanel;
pub use error::PanelError;
pub use widget::{
    Body, Cell, Column, Cursor, Health, HeatMap, Line, LineKind, Page, Paged, Round, RoundState,
    Rounds, Row, Series, Side, Snapshot, Unit, Widget,
};

/// What an application shows of itself. Only `name` and `snapshot` must be there; whatever else is
/// not, is answered as not offered.
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
    /// The application's name, as in its section and its addresses: short, lower case.
    fn name(&self) -> &str;

    /// The state now. Cheap: called once a second, and whenever somebody asks. The first series is
    /// what an overview shows: what comes in, waits, runs, and is refused.
    fn snapshot(&self) -> Snapshot;

    /// More rows of a table or tree, from a cursor that an earlier page or snapshot gave.
    fn page<'a>(
        &'a self,
        widget: &'a str,
        cursor: &'a Cursor,
    ) -> BoxFuture<'a, Result<Page, PanelError>> {
        let _ = cursor;
        Box::pin(async move { Err(PanelError::unknown_widget(widget)) })
    }

    /// The actions it takes.
    fn actions(&self) -> Vec<Action> {
        Vec::new()
    }

    /// Takes an action. The arguments fit the action's parameters: [`Action::check`] has seen them.
    fn act<'a>(
        &'a self,
        action: &'a str,
        args: &'a Args,
    ) -> BoxFuture<'a, Result<Done, PanelError>> {
        let _ = args;
        Box::pin(async move { Err(PanelError::unknown_action(action)) })
    }

    /// What kind of thing it explains, in a word such as "request"; nothing if it explains nothing.
    /// The rows of a table or tree whose first column has that name are such things, known by their
    /// ids.
    fn explains(&self) -> Option<&str> {
        None
    }

    /// The settings that a what-if question may change; none if it answers no such question.
    fn settings(&self) -> Vec<Parameter> {
        Vec::new()
    }

    /// Why `subject` (a job, a target, a file, a request: what the application has) is as it is.
    fn explain<'a>(&'a self, subject: &'a str) -> BoxFuture<'a, Result<Explanation, PanelError>> {
        let _ = subject;
        Box::pin(async { Err(PanelError::not_offered("explanations")) })
    }

    /// What would be different under other settings.
    fn what_if<'a>(&'a self, changes: &'a [Change]) -> BoxFuture<'a, Result<WhatIf, PanelError>> {
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

    /// And `panel`; one of the same name gives way.
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
