//! Answers to "why?" and "what if?".

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::widget::Unit;

/// Why something is as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Explanation {
    /// What was asked about.
    pub subject: String,
    /// The answer in a sentence.
    pub summary: String,
    /// What the answer rests on, the most important first.
    pub facts: Vec<Fact>,
}

/// One thing that an explanation rests on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Fact {
    /// What it is called.
    pub name: String,
    /// What it is, in words.
    pub value: String,
}

/// A setting that a what-if question changes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Change {
    /// The setting's key, as in the configuration file without the section.
    pub key: String,
    /// What it would be.
    pub value: Value,
}

/// What would be different.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WhatIf {
    /// The answer in a sentence.
    pub summary: String,
    /// Numbers now and then.
    pub compared: Vec<Comparison>,
}

/// A number as it is and as it would be.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Comparison {
    /// What it is called.
    pub name: String,
    /// What it counts.
    pub unit: Unit,
    /// As it is.
    pub now: f64,
    /// As it would be.
    pub then: f64,
}
