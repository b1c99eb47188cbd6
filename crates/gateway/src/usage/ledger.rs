//! Usage ledger: counters by tenant and class, quotas by calendar day and month, and rows for the
//! usage file.

use std::collections::HashMap;
use std::sync::Arc;

use headworks_core::Class;
use parking_lot::Mutex;

use super::store::{UsageRow, UsageStore};
use crate::config::TenantSettings;
use crate::error::Error;
use crate::time_rules::Period;
use crate::wire::Usage;

/// Totals of a tenant in one class since the start.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Totals {
    pub(crate) requests: u64,
    pub(crate) refused: u64,
    pub(crate) tokens: u64,
}

/// Usage of one tenant.
#[derive(Debug, Default)]
struct TenantUsage {
    day: u32,
    day_tokens: u64,
    month_tokens: u64,
    classes: Vec<Totals>,
    /// Rows that are not stored yet, by model.
    rows: HashMap<String, UsageRow>,
    /// Rows of earlier days that are not stored yet.
    past: Vec<UsageRow>,
}

impl TenantUsage {
    /// Resets the counters if a new day or month has begun.
    fn roll_over(&mut self, day: u32) {
        if day == self.day {
            return;
        }
        if day / 100 != self.day / 100 {
            self.month_tokens = 0;
        }
        (self.day, self.day_tokens) = (day, 0);
    }

    fn class(&mut self, class: Class) -> &mut Totals {
        let index = usize::from(class.0);
        if self.classes.len() <= index {
            self.classes.resize(index + 1, Totals::default());
        }
        &mut self.classes[index]
    }

    fn row(&mut self, tenant: &str, day: u32, model: &str) -> &mut UsageRow {
        // The `entry` API would allocate a key for every request.
        if !self.rows.contains_key(model) {
            self.rows.insert(model.to_owned(), UsageRow::default());
        }
        let row = self.rows.get_mut(model).expect("it is there");
        // Midnight has passed since the last request for this model, so its old row is complete.
        if row.day != day {
            let new = UsageRow {
                day,
                tenant: tenant.to_owned(),
                model: model.to_owned(),
                ..UsageRow::default()
            };
            let old = std::mem::replace(row, new);
            self.past.extend((old.day != 0).then_some(old));
        }
        row
    }
}

/// Usage of all tenants. The counters are in memory; rows go to the store periodically.
pub(crate) struct UsageLedger {
    tenants: Mutex<HashMap<Arc<str>, TenantUsage>>,
    store: Mutex<UsageStore>,
}

impl UsageLedger {
    /// Creates the ledger, with the usage of the current month loaded from the store.
    pub(crate) fn new(store: UsageStore, today: u32) -> Result<UsageLedger, Error> {
        let mut tenants: HashMap<Arc<str>, TenantUsage> = HashMap::new();
        // Days are numbers such as 20261115, so this range is the month so far.
        for row in store.rows(today / 100 * 100, today)? {
            let tenant_usage = tenants.entry(row.tenant.as_str().into()).or_default();
            tenant_usage.day = today;
            let tokens = row.input_tokens + row.output_tokens;
            tenant_usage.month_tokens += tokens;
            if row.day == today {
                tenant_usage.day_tokens += tokens;
            }
        }
        Ok(UsageLedger {
            tenants: Mutex::new(tenants),
            store: Mutex::new(store),
        })
    }

    /// The quota that is used up, if any.
    pub(crate) fn exhausted_quota(&self, tenant: &TenantSettings, day: u32) -> Option<Period> {
        let mut tenants = self.tenants.lock();
        let tenant_usage = tenants.get_mut(tenant.name.as_str())?;
        tenant_usage.roll_over(day);
        if tenant
            .tokens_per_day
            .is_some_and(|most| tenant_usage.day_tokens >= most)
        {
            return Some(Period::Day);
        }
        let month = tenant
            .tokens_per_month
            .is_some_and(|most| tenant_usage.month_tokens >= most);
        month.then_some(Period::Month)
    }

    pub(crate) fn refused(&self, tenant: &Arc<str>, class: Class, day: u32) {
        let mut tenants = self.tenants.lock();
        let tenant_usage = tenants.entry(tenant.clone()).or_default();
        tenant_usage.class(class).refused += 1;
        tenant_usage.row(tenant, day, "").refused += 1;
    }

    /// Books a request that ended. `model` is empty without a successful response, so that clients
    /// cannot fill the table with invented names.
    pub(crate) fn ended(
        &self,
        tenant: &Arc<str>,
        class: Class,
        model: &str,
        usage: Usage,
        day: u32,
    ) {
        let (input, output) = (usage.input.unwrap_or(0), usage.output.unwrap_or(0));
        let mut tenants = self.tenants.lock();
        let tenant_usage = tenants.entry(tenant.clone()).or_default();
        tenant_usage.roll_over(day);
        tenant_usage.day_tokens += input + output;
        tenant_usage.month_tokens += input + output;
        let totals = tenant_usage.class(class);
        totals.requests += 1;
        totals.tokens += input + output;
        let row = tenant_usage.row(tenant, day, model);
        row.requests += 1;
        row.input_tokens += input;
        row.output_tokens += output;
    }

    /// Totals of every tenant by class, sorted by name.
    pub(crate) fn totals(&self) -> Vec<(Arc<str>, Vec<Totals>)> {
        let tenants = self.tenants.lock();
        let mut totals: Vec<_> = tenants
            .iter()
            .map(|(name, tenant_usage)| (name.clone(), tenant_usage.classes.clone()))
            .collect();
        totals.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        totals
    }

    /// Writes pending rows to the store. Blocks. Rows that cannot be written stay pending.
    pub(crate) fn flush(&self) -> Result<(), Error> {
        // Locked before the rows are taken: otherwise a query could run between the two steps and
        // miss them.
        let mut store = self.store.lock();
        let rows: Vec<UsageRow> = {
            let mut tenants = self.tenants.lock();
            tenants
                .values_mut()
                .flat_map(|tenant_usage| {
                    let rows = tenant_usage.rows.drain().map(|(_, row)| row);
                    tenant_usage.past.drain(..).chain(rows)
                })
                .collect()
        };
        if rows.is_empty() {
            return Ok(());
        }
        store.add(&rows).inspect_err(|_| self.restore_rows(&rows))
    }

    fn restore_rows(&self, rows: &[UsageRow]) {
        let mut tenants = self.tenants.lock();
        for row in rows {
            let tenant_usage = tenants.entry(row.tenant.as_str().into()).or_default();
            let kept = tenant_usage.row(&row.tenant, row.day, &row.model);
            kept.requests += row.requests;
            kept.refused += row.refused;
            kept.input_tokens += row.input_tokens;
            kept.output_tokens += row.output_tokens;
        }
    }

    /// Rows of these days, including all usage up to now. Blocks.
    pub(crate) fn rows(&self, from: u32, to: u32) -> Result<Vec<UsageRow>, Error> {
        self.flush()?;
        self.store.lock().rows(from, to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usage(output: u64) -> Usage {
        Usage {
            input: None,
            output: Some(output),
        }
    }

    #[test]
    fn quotas_end_with_their_day_and_month_and_survive_a_restart() {
        let path = std::env::temp_dir().join(format!("headworks-quota-{}.db", std::process::id()));
        let tenant = TenantSettings {
            name: "t".into(),
            tokens_per_day: Some(10),
            tokens_per_month: Some(15),
            ..TenantSettings::default()
        };
        let open = |today| UsageLedger::new(UsageStore::open(Some(&path)).unwrap(), today).unwrap();
        let ledger = open(20_261_129);
        let name: Arc<str> = "t".into();
        assert_eq!(ledger.exhausted_quota(&tenant, 20_261_129), None);
        ledger.ended(&name, Class(3), "m", usage(10), 20_261_129);
        assert_eq!(
            ledger.exhausted_quota(&tenant, 20_261_129),
            Some(Period::Day)
        );
        ledger.flush().unwrap();
        let ledger = open(20_261_129);
        assert_eq!(
            ledger.exhausted_quota(&tenant, 20_261_129),
            Some(Period::Day)
        );
        assert_eq!(ledger.exhausted_quota(&tenant, 20_261_130), None);
        ledger.ended(&name, Class(3), "m", usage(5), 20_261_130);
        assert_eq!(
            ledger.exhausted_quota(&tenant, 20_261_130),
            Some(Period::Month)
        );
        assert_eq!(ledger.exhausted_quota(&tenant, 20_261_201), None);
        drop(ledger);
        for suffix in ["", "-wal", "-shm"] {
            let _ = std::fs::remove_file(format!("{}{suffix}", path.display()));
        }
    }
}
