//! The typed pieces that a snapshot is made of.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// An application's state at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Snapshot {
    /// What a person calls the application.
    pub title: String,
    /// How it is, in a word and a sentence.
    pub health: Health,
    /// Its pieces, in the order in which to draw them.
    pub widgets: Vec<Widget>,
}

/// How something is. The words carry the meaning; a page may add colour.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "state", content = "why", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Health {
    /// All is well.
    #[default]
    Good,
    /// There is nothing to do.
    Idle,
    /// It works, but somebody should look.
    Warning(String),
    /// It does not work.
    Bad(String),
}

/// One piece of a panel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Widget {
    /// Its name in addresses, unique in its panel.
    pub id: String,
    /// What a person calls it.
    pub title: String,
    /// What it is.
    pub body: Body,
}

impl Widget {
    /// A piece called `id`, shown as `title`.
    #[must_use]
    pub fn new(id: impl Into<String>, title: impl Into<String>, body: Body) -> Widget {
        let (id, title) = (id.into(), title.into());
        Widget { id, title, body }
    }
}

/// What a piece is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Body {
    /// Numbers over time.
    Series(Series),
    /// Rows, a page at a time.
    Table(Paged),
    /// Rows that have rows below them, a page at a time.
    Tree(Paged),
    /// Two sides that go round by round.
    Rounds(Rounds),
    /// Numbers by row and column.
    HeatMap(HeatMap),
    /// A button for one of the panel's actions.
    Action {
        /// The action's name.
        action: String,
    },
}

/// What a number counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Unit {
    /// Things, or nothing in particular.
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
    /// Things in a second.
    PerSecond,
    /// Bytes in a second.
    BytesPerSecond,
    /// Tokens in a second.
    TokensPerSecond,
    /// Seconds since 1970.
    UnixTime,
}

/// Numbers over time. A snapshot holds the current ones; the page remembers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Series {
    /// What the lines count.
    pub unit: Unit,
    /// The lines of the plot.
    pub lines: Vec<Line>,
}

/// One line of a plot.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Line {
    /// What it is called.
    pub name: String,
    /// How to read the number.
    pub kind: LineKind,
    /// The number now.
    pub value: f64,
    /// The number that it cannot or should not pass.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<f64>,
}

/// How to read a line's number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum LineKind {
    /// As it is.
    #[default]
    Level,
    /// It only grows: what matters is how fast.
    Total,
}

/// Where a page goes on. Only the panel that made it knows what is inside.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Cursor(pub String);

/// The first page of a table or a tree.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Paged {
    /// What the cells mean.
    pub columns: Vec<Column>,
    /// How many rows there are in all, if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total: Option<u64>,
    /// The first rows.
    pub page: Page,
}

impl Paged {
    /// A table of which these are the first rows; all of them, if there is no cursor to more.
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
    /// What it is called.
    pub name: String,
    /// What its numbers count.
    #[serde(default)]
    pub unit: Unit,
}

/// Some rows.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Page {
    /// The rows.
    pub rows: Vec<Row>,
    /// Where the next page begins; nothing on the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<Cursor>,
}

/// One row of a table, or one node of a tree.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Row {
    /// What `explain` and actions call it.
    pub id: String,
    /// Its cells, one a column.
    pub cells: Vec<Cell>,
    /// In a tree: where the rows below it begin; nothing if there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub children: Option<Cursor>,
}

impl Row {
    /// A row without rows below it.
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
    /// Nothing is known.
    Empty,
    /// Yes or no.
    Flag(bool),
    /// A number in the column's unit.
    Number(f64),
    /// Words.
    Text(String),
    /// How something is.
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

/// Two sides that go round by round, the follower behind the leader.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Rounds {
    /// What a round counts.
    pub unit: Unit,
    /// Who goes first.
    pub leader: Side,
    /// Who follows.
    pub follower: Side,
    /// How many rounds the follower stays behind.
    pub lag: u32,
    /// How many rounds the leader may be ahead.
    pub max_lead: u32,
}

/// One side's progress.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Side {
    /// What it is called.
    pub name: String,
    /// What it does.
    pub state: RoundState,
    /// Its rounds, the first one first.
    pub rounds: Vec<Round>,
}

/// What a side does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum RoundState {
    /// Not begun.
    #[default]
    Waiting,
    /// In a round.
    Running,
    /// Held by somebody.
    Paused,
    /// Held by the other side.
    Held,
    /// Ended by somebody.
    Stopped,
    /// Nothing is left to do.
    Completed,
}

/// One round of one side.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Round {
    /// How many pieces of work it has, as far as is known.
    pub declared: u64,
    /// How many ended well.
    pub done: u64,
    /// How many failed.
    pub failed: u64,
    /// Whether it is closed: everything in it ended.
    pub closed: bool,
}

/// Numbers by row and column.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HeatMap {
    /// What the numbers count.
    pub unit: Unit,
    /// Names of the columns.
    pub columns: Vec<String>,
    /// Names of the rows.
    pub rows: Vec<String>,
    /// The numbers, a row at a time; nothing where nothing is known.
    pub values: Vec<Vec<Option<f64>>>,
}
