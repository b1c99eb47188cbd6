//! Batches of usage, which are booked once however often they are sent.

use std::collections::BTreeMap;

use headworks_fleet::NodeToken;

use super::row::UsageRow;

/// Longest name in a row. An index of PostgreSQL holds at most 2.7 kB.
const MAX_NAME: usize = 500;

/// Usage to book. Its content is fixed when it is made, so that a batch whose answer was lost can
/// be sent again: the store knows it by its process and number.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct UsageBatch {
    /// The process that made it: 128 random bits, drawn at the start.
    pub process: NodeToken,
    /// Its number, from 1 on.
    pub seq: u64,
    /// The rows, sorted by day, tenant and model, each combination once.
    pub rows: Vec<UsageRow>,
}

impl UsageBatch {
    /// A batch of these rows. Rows of the same day, tenant and model are added up.
    #[must_use]
    pub fn new(
        process: NodeToken,
        seq: u64,
        rows: impl IntoIterator<Item = UsageRow>,
    ) -> UsageBatch {
        let mut sums: BTreeMap<(u32, String, String), UsageRow> = BTreeMap::new();
        for mut row in rows {
            row.tenant = storable(&row.tenant);
            row.model = storable(&row.model);
            let key = (row.day, row.tenant.clone(), row.model.clone());
            match sums.get_mut(&key) {
                Some(sum) => sum.add(&row),
                None => {
                    sums.insert(key, row);
                }
            }
        }
        UsageBatch {
            process,
            seq,
            rows: sums.into_values().collect(),
        }
    }

    /// Tokens by tenant and period, sorted.
    pub(super) fn totals(&self) -> Vec<TenantTotal> {
        let mut sums: BTreeMap<(&str, u32), u64> = BTreeMap::new();
        for row in &self.rows {
            for period in [row.day, month(row.day)] {
                *sums.entry((&row.tenant, period)).or_default() += row.tokens();
            }
        }
        let total = |((tenant, period), tokens): ((&str, u32), u64)| TenantTotal {
            tenant: tenant.to_owned(),
            period,
            tokens,
        };
        sums.into_iter().map(total).collect()
    }
}

/// PostgreSQL stores no NUL. A name that cannot be stored would hold up all usage behind it.
fn storable(name: &str) -> String {
    let mut end = name.len().min(MAX_NAME);
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    name[..end].replace('\0', "\u{fffd}")
}

/// The month of a day: 202611 for 20261115.
pub(super) fn month(day: u32) -> u32 {
    day / 100
}

/// Tokens of a tenant in a period, of all nodes together.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TenantTotal {
    /// The tenant.
    pub tenant: String,
    /// A day such as 20261115, or a month such as 202611.
    pub period: u32,
    /// Tokens of prompts and responses.
    pub tokens: u64,
}

/// The answer to a batch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Booked {
    /// Totals of the tenants that were asked for; those without usage are left out.
    pub totals: Vec<TenantTotal>,
    /// Processes that use the store now, at least 1.
    pub nodes: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_sorted_added_up_and_storable() {
        let row = |day, tenant: &str, model: String, output_tokens| UsageRow {
            day,
            tenant: tenant.into(),
            model,
            requests: 1,
            output_tokens,
            ..UsageRow::default()
        };
        let long = "é".repeat(300);
        let rows = [
            row(2, "a", "m".into(), 1),
            row(1, "b", long.clone(), 2),
            row(1, "b", format!("{long}!"), 3),
            row(1, "a\0", "m".into(), 4),
        ];
        let batch = UsageBatch::new(NodeToken::random(), 1, rows);
        let rows: Vec<_> = batch
            .rows
            .iter()
            .map(|row| {
                (
                    row.day,
                    row.tenant.as_str(),
                    row.requests,
                    row.output_tokens,
                )
            })
            .collect();
        let expected = [(1, "a\u{fffd}", 1, 4), (1, "b", 2, 5), (2, "a", 1, 1)];
        assert_eq!(rows, expected);
        assert_eq!(batch.rows[1].model, "é".repeat(250));
    }
}
