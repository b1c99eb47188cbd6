//! Explanations and what-if results.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::widget::Unit;

/// An explanation of the state of something.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Explanation {
    /// The subject of the question.
    pub subject: String,
    /// The answer in a sentence.
    pub summary: String,
    /// The supporting facts, the most important first.
    pub facts: Vec<Fact>,
}

/// One fact of an explanation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Fact {
    /// The name of the fact.
    pub name: String,
    /// The value, as text.
    pub value: String,
}

/// A setting that a what-if question changes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Change {
    /// The key, as in the configuration file without the section.
    pub key: String,
    /// The hypothetical value.
    pub value: Value,
}

/// The predicted effect of changed settings.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Prediction {
    /// The answer in a sentence.
    pub summary: String,
    /// Figures before and after.
    pub compared: Vec<Comparison>,
}

/// A figure before and after the change.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Comparison {
    /// The name of the figure.
    pub name: String,
    /// The unit.
    pub unit: Unit,
    /// The current value.
    pub now: f64,
    /// The predicted value.
    pub then: f64,
}
