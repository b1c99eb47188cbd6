//! The tables of a fleet.

use crate::postgres::schema::{Schema, Step, StepKind};

/// The steps that this program knows.
pub const STEPS: &[Step] = &[
    Step {
        version: 1,
        min_compatible: 1,
        kind: StepKind::Expand,
        sql: include_str!("tables/0001.sql"),
    },
    // Keys and usage of the gateway.
    Step {
        version: 2,
        min_compatible: 1,
        kind: StepKind::Expand,
        sql: include_str!("tables/0002.sql"),
    },
];

/// The fleet's schema under the name `name`.
#[must_use]
pub fn schema(name: &str) -> Schema<'_> {
    Schema {
        name,
        fleet: name,
        steps: STEPS,
    }
}
