//! The widgets of a snapshot.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The state of an application at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Snapshot {
    /// The display name of the application.
    pub title: String,
    /// The overall health.
    pub health: Health,
    /// The widgets, in display order.
    pub widgets: Vec<Widget>,
}

/// Health, as a word and a reason. The words carry the meaning; colour is only an addition.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "state", content = "why", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Health {
    /// Healthy.
    #[default]
    Good,
    /// Nothing to do.
    Idle,
    /// Working, but an operator should look.
    Warning(String),
    /// Not working.
    Bad(String),
}

/// One widget of a panel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Widget {
    /// The name in URLs, unique in its panel.
    pub id: String,
    /// The display name.
    pub title: String,
    /// The content.
    pub body: Body,
}

impl Widget {
    /// A widget called `id` with the title `title`.
    #[must_use]
    pub fn new(id: impl Into<String>, title: impl Into<String>, body: Body) -> Widget {
        let (id, title) = (id.into(), title.into());
        Widget { id, title, body }
    }
}

/// The content of a widget.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Body {
    /// Values over time.
    Series(Series),
    /// Rows, in pages.
    Table(Paged),
    /// Rows with child rows, in pages.
    Tree(Paged),
    /// Two sides that proceed in rounds.
    Rounds(Rounds),
    /// Values by row and column.
    HeatMap(HeatMap),
    /// A button for one of the panel's actions.
    Action {
        /// The action's name.
        action: String,
    },
}

/// The unit of a value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Unit {
    /// A number without a unit.
    #[default]
    Count,
    /// Hundredths.
    Percent,
    /// Seconds.
    Seconds,
    /// Bytes.
    Bytes,
    /// Tokens of a language model.
    Tokens,
    /// Events per second.
    PerSecond,
    /// Bytes per second.
    BytesPerSecond,
    /// Tokens per second.
    TokensPerSecond,
    /// A Unix timestamp, in seconds.
    UnixTime,
}

/// Values over time. A snapshot holds the current values; the console keeps the history.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Series {
    /// The unit of the lines.
    pub unit: Unit,
    /// The lines of the plot.
    pub lines: Vec<Line>,
}

/// One line of a plot.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Line {
    /// The name of the line.
    pub name: String,
    /// The interpretation of the value.
    pub kind: LineKind,
    /// The current value.
    pub value: f64,
    /// An upper limit of the value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<f64>,
}

/// The interpretation of a line's value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum LineKind {
    /// A gauge, drawn as it is.
    #[default]
    Level,
    /// A counter, drawn as a rate.
    Total,
}

/// The position of a page. It is opaque to everyone but the panel that created it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Cursor(pub String);

/// The first page of a table or a tree.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Paged {
    /// The columns.
    pub columns: Vec<Column>,
    /// The total number of rows, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total: Option<u64>,
    /// The first rows.
    pub page: Page,
}

impl Paged {
    /// A table that starts with `rows`; without `next` these are all rows.
    #[must_use]
    pub fn new(columns: &[(&str, Unit)], rows: Vec<Row>, next: Option<Cursor>) -> Paged {
        let column = |(name, unit): &(&str, Unit)| Column {
            name: (*name).to_owned(),
            unit: *unit,
        };
        Paged {
            columns: columns.iter().map(column).collect(),
            total: next.is_none().then_some(rows.len() as u64),
            page: Page { rows, next },
        }
    }
}

/// A column's name and unit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Column {
    /// The name of the column.
    pub name: String,
    /// The unit of its values.
    #[serde(default)]
    pub unit: Unit,
}

/// A page of rows.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Page {
    /// The rows.
    pub rows: Vec<Row>,
    /// The cursor of the next page; absent on the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<Cursor>,
}

/// One row of a table, or one node of a tree.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Row {
    /// The id by which `explain` and actions refer to the row.
    pub id: String,
    /// The cells, one per column.
    pub cells: Vec<Cell>,
    /// In a tree: the cursor of the child rows; absent for a leaf.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub children: Option<Cursor>,
}

impl Row {
    /// A row without children.
    #[must_use]
    pub fn new(id: impl Into<String>, cells: Vec<Cell>) -> Row {
        Row {
            id: id.into(),
            cells,
            children: None,
        }
    }
}

/// One cell.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
#[non_exhaustive]
pub enum Cell {
    /// No value.
    Empty,
    /// A boolean.
    Flag(bool),
    /// A value in the unit of the column.
    Number(f64),
    /// A string.
    Text(String),
    /// A health indicator.
    Health(Health),
}

impl From<&str> for Cell {
    fn from(text: &str) -> Cell {
        Cell::Text(text.to_owned())
    }
}

impl From<f64> for Cell {
    fn from(number: f64) -> Cell {
        Cell::Number(number)
    }
}

/// Two sides that proceed in rounds, the follower behind the leader.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Rounds {
    /// The unit of the work in a round.
    pub unit: Unit,
    /// The side that goes first.
    pub leader: Side,
    /// The side that follows.
    pub follower: Side,
    /// The number of rounds that the follower stays behind.
    pub lag: u32,
    /// The number of rounds that the leader may be ahead.
    pub max_lead: u32,
}

/// The progress of one side.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Side {
    /// The name of the side.
    pub name: String,
    /// The state of the side.
    pub state: RoundState,
    /// Its rounds, in order.
    pub rounds: Vec<Round>,
}

/// The state of a side.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum RoundState {
    /// Not started.
    #[default]
    Waiting,
    /// In a round.
    Running,
    /// Paused by an operator.
    Paused,
    /// Waiting for the other side.
    Held,
    /// Stopped by an operator.
    Stopped,
    /// Finished.
    Completed,
}

/// One round of one side.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Round {
    /// Pieces of work in the round, as far as known.
    pub declared: u64,
    /// Pieces that succeeded.
    pub done: u64,
    /// Pieces that failed.
    pub failed: u64,
    /// Whether all work in the round has ended.
    pub closed: bool,
}

/// Values by row and column.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HeatMap {
    /// The unit of the values.
    pub unit: Unit,
    /// Names of the columns.
    pub columns: Vec<String>,
    /// Names of the rows.
    pub rows: Vec<String>,
    /// The values, row by row; `None` where unknown.
    pub values: Vec<Vec<Option<f64>>>,
}
