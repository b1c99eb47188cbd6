//! Usage ledger: counters by tenant and class, quotas by calendar day and month, and rows for the
//! usage file.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use headworks_core::Class;
use headworks_fleet::{BootInstant, NodeToken};
use parking_lot::Mutex;

use super::batch::{Booked, TenantTotal, UsageBatch, month};
use super::spent::Spent;
use super::{UsageRow, UsageStore};
use crate::config::TenantSettings;
use crate::error::Error;
use crate::time_rules::Period;
use crate::wire::Usage;

/// A node of a fleet is cut off when the store did not answer for this long. It answers once per
/// second.
const CUT_OFF_AFTER: Duration = Duration::from_secs(3);

/// Why a quota permits no request now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QuotaRefusal {
    /// It is used up until the period ends.
    Exhausted(Period),
    /// This node cannot reach the store, and used up its slice of the rest.
    SliceUsed(Period),
    /// This node cannot reach the store, and does not know what was used.
    Unknown,
}

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
    today: Spent,
    this_month: Spent,
    /// Whether the store was asked for its totals.
    is_known: bool,
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
        if month(day) != month(self.day) {
            self.this_month = Spent::default();
        }
        (self.day, self.today) = (day, Spent::default());
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
    store: Arc<dyn UsageStore>,
    /// The answer of a store that several nodes use.
    connected: Option<Mutex<Connected>>,
    /// Locked before rows are taken: otherwise a query could run between the two steps and miss
    /// them.
    outbox: tokio::sync::Mutex<Outbox>,
}

/// Contact of this node with the store, and through it with the other nodes.
#[derive(Debug, Default)]
struct Connected {
    /// When the last batch was sent that was answered.
    sent: Option<BootInstant>,
    /// Whether the latest batch was not answered.
    failed: bool,
    nodes: u32,
}

impl Connected {
    fn is_cut_off(&self, now: BootInstant) -> bool {
        let age = self.sent.map(|sent| now.since(sent));
        self.failed || age.is_none_or(|age| age >= CUT_OFF_AFTER)
    }
}

/// The batch on its way to the store.
#[derive(Debug)]
struct Outbox {
    process: NodeToken,
    /// Number of the last batch.
    seq: u64,
    /// A batch that may not have been booked. It is sent again as it is.
    batch: Option<UsageBatch>,
}

impl UsageLedger {
    /// Creates the ledger with what was used in the current period. `is_shared` says whether other
    /// nodes use the store.
    pub(crate) fn new(
        store: Arc<dyn UsageStore>,
        is_shared: bool,
        totals: Option<&[TenantTotal]>,
        today: u32,
    ) -> UsageLedger {
        let outbox = Outbox {
            process: NodeToken::random(),
            seq: 0,
            batch: None,
        };
        let mut connected = Connected::default();
        let mut tenants: HashMap<Arc<str>, TenantUsage> = HashMap::new();
        if let Some(totals) = totals {
            connected.sent = Some(BootInstant::now());
            for total in totals {
                let usage = tenants.entry(total.tenant.as_str().into()).or_default();
                (usage.day, usage.is_known) = (today, true);
                if total.period == today {
                    usage.today = Spent::known(total.tokens);
                } else if total.period == month(today) {
                    usage.this_month = Spent::known(total.tokens);
                }
            }
        }
        UsageLedger {
            tenants: Mutex::new(tenants),
            store,
            connected: is_shared.then(|| Mutex::new(connected)),
            outbox: tokio::sync::Mutex::new(outbox),
        }
    }

    /// Whether the tenant's quota permits a request.
    pub(crate) fn check_quota(
        &self,
        tenant: &TenantSettings,
        day: u32,
    ) -> Result<(), QuotaRefusal> {
        // Number of the nodes, while this one is cut off from them.
        let cut_off = self.connected.as_ref().and_then(|connected| {
            let connected = connected.lock();
            connected
                .is_cut_off(BootInstant::now())
                .then_some(connected.nodes)
        });
        let mut tenants = self.tenants.lock();
        let Some(usage) = tenants.get_mut(tenant.name.as_str()) else {
            return cut_off.map_or(Ok(()), |_| Err(QuotaRefusal::Unknown));
        };
        usage.roll_over(day);
        let quotas = [
            (Period::Day, tenant.tokens_per_day, usage.today),
            (Period::Month, tenant.tokens_per_month, usage.this_month),
        ];
        for (period, limit, spent) in quotas {
            let Some(limit) = limit else { continue };
            if spent.total() >= limit {
                return Err(QuotaRefusal::Exhausted(period));
            }
            match cut_off {
                Some(_) if !usage.is_known => return Err(QuotaRefusal::Unknown),
                Some(nodes) if spent.exceeds_slice(limit, nodes) => {
                    return Err(QuotaRefusal::SliceUsed(period));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Tokens that a tenant used today and this month.
    pub(crate) fn used(&self, tenant: &Arc<str>, day: u32) -> (u64, u64) {
        // The entry makes the next batch ask for the tenant's totals.
        let mut tenants = self.tenants.lock();
        let usage = tenants.entry(tenant.clone()).or_default();
        usage.roll_over(day);
        (usage.today.total(), usage.this_month.total())
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
        tenant_usage.today.add(input + output);
        tenant_usage.this_month.add(input + output);
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

    /// Sends rows to the store. Rows that it does not confirm are sent again by the next call, as
    /// the same batch. `budgeted` are the tenants with quotas, whose totals a fleet needs.
    pub(crate) async fn flush(&self, budgeted: Vec<String>, day: u32) -> Result<(), Error> {
        let mut outbox = self.outbox.lock().await;
        self.send_all(&mut outbox, budgeted, day).await
    }

    async fn send_all(
        &self,
        outbox: &mut Outbox,
        budgeted: Vec<String>,
        day: u32,
    ) -> Result<(), Error> {
        // An earlier batch has to be repeated before later usage can be sent.
        if outbox.batch.is_some() {
            self.send(outbox, Vec::new(), day).await?;
        }
        self.send(outbox, budgeted, day).await
    }

    async fn send(
        &self,
        outbox: &mut Outbox,
        budgeted: Vec<String>,
        day: u32,
    ) -> Result<(), Error> {
        let tenants = match &self.connected {
            Some(_) => self.with_known_tenants(budgeted),
            None => Vec::new(),
        };
        let sent = BootInstant::now();
        // Kept until it is confirmed: this future may be dropped at any time.
        let batch = match outbox.batch.take() {
            Some(batch) => batch,
            None => {
                outbox.seq += 1;
                UsageBatch::new(outbox.process, outbox.seq, self.take_rows())
            }
        };
        let batch = &*outbox.batch.insert(batch);
        if batch.rows.is_empty() && self.connected.is_none() {
            outbox.batch = None;
            return Ok(());
        }
        let booked = self.store.book(batch, &tenants, day).await;
        if let Some(connected) = &self.connected {
            let mut connected = connected.lock();
            connected.failed = booked.is_err();
            if let Ok(booked) = &booked {
                (connected.sent, connected.nodes) = (Some(sent), booked.nodes);
            }
        }
        self.confirm(&booked?, &tenants, day);
        outbox.batch = None;
        Ok(())
    }

    /// Tenants whose totals are needed: those with quotas and those that this node knows.
    fn with_known_tenants(&self, budgeted: Vec<String>) -> Vec<String> {
        let known = self.tenants.lock();
        let mut tenants: BTreeSet<String> = known.keys().map(ToString::to_string).collect();
        tenants.extend(budgeted);
        tenants.into_iter().collect()
    }

    fn take_rows(&self) -> Vec<UsageRow> {
        let mut tenants = self.tenants.lock();
        let take = |usage: &mut TenantUsage| {
            usage.today.send();
            usage.this_month.send();
            let mut rows: Vec<UsageRow> = std::mem::take(&mut usage.past);
            rows.extend(usage.rows.drain().map(|(_, row)| row));
            rows
        };
        tenants.values_mut().flat_map(take).collect()
    }

    fn confirm(&self, booked: &Booked, asked: &[String], day: u32) {
        let totals: HashMap<(&str, u32), u64> = booked
            .totals
            .iter()
            .map(|total| ((total.tenant.as_str(), total.period), total.tokens))
            .collect();
        let mut tenants = self.tenants.lock();
        for tenant in asked {
            if !tenants.contains_key(tenant.as_str()) {
                tenants.insert(tenant.as_str().into(), TenantUsage::default());
            }
        }
        let asked: HashSet<&str> = asked.iter().map(String::as_str).collect();
        for (name, usage) in tenants.iter_mut() {
            if !asked.contains(&**name) {
                usage.today.confirm(None);
                usage.this_month.confirm(None);
                continue;
            }
            if usage.day == 0 {
                usage.roll_over(day);
            }
            // A new day can have begun while the batch was on its way.
            let total = |period| totals.get(&(&**name, period)).copied().unwrap_or(0);
            let same_day = (usage.day == day).then(|| total(day));
            let same_month = (month(usage.day) == month(day)).then(|| total(month(day)));
            usage.today.confirm(same_day);
            usage.this_month.confirm(same_month);
            usage.is_known = true;
        }
    }

    /// Rows of these days, including all usage of this node up to now.
    pub(crate) async fn rows(&self, from: u32, to: u32, day: u32) -> Result<Vec<UsageRow>, Error> {
        let mut outbox = self.outbox.lock().await;
        self.send_all(&mut outbox, Vec::new(), day).await?;
        self.store.rows(from, to).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::usage::SqliteUsageStore;
    use futures_util::FutureExt;
    use futures_util::future::BoxFuture;

    fn usage(output: u64) -> Usage {
        Usage {
            input: None,
            output: Some(output),
        }
    }

    #[tokio::test]
    async fn quotas_end_with_their_day_and_month_and_survive_a_restart() {
        let path = std::env::temp_dir().join(format!("headworks-quota-{}.db", std::process::id()));
        let tenant = TenantSettings {
            name: "t".into(),
            tokens_per_day: Some(10),
            tokens_per_month: Some(15),
            ..TenantSettings::default()
        };
        let open = |today| {
            let store = SqliteUsageStore::open(Some(&path)).unwrap();
            let totals = store.month_totals(today).unwrap();
            UsageLedger::new(Arc::new(store), false, Some(&totals), today)
        };
        let ledger = open(20_261_129);
        let name: Arc<str> = "t".into();
        assert_eq!(ledger.check_quota(&tenant, 20_261_129), Ok(()));
        ledger.ended(&name, Class(3), "m", usage(10), 20_261_129);
        assert_eq!(
            ledger.check_quota(&tenant, 20_261_129),
            Err(QuotaRefusal::Exhausted(Period::Day))
        );
        ledger.flush(Vec::new(), 20_261_129).await.unwrap();
        let ledger = open(20_261_129);
        assert_eq!(
            ledger.check_quota(&tenant, 20_261_129),
            Err(QuotaRefusal::Exhausted(Period::Day))
        );
        assert_eq!(ledger.check_quota(&tenant, 20_261_130), Ok(()));
        ledger.ended(&name, Class(3), "m", usage(5), 20_261_130);
        assert_eq!(
            ledger.check_quota(&tenant, 20_261_130),
            Err(QuotaRefusal::Exhausted(Period::Month))
        );
        assert_eq!(ledger.check_quota(&tenant, 20_261_201), Ok(()));
        drop(ledger);
        for suffix in ["", "-wal", "-shm"] {
            let _ = std::fs::remove_file(format!("{}{suffix}", path.display()));
        }
    }

    /// A store that answers as its test says, and remembers what it was sent.
    #[derive(Default)]
    struct Scripted {
        sent: Mutex<Vec<UsageBatch>>,
        answer: Mutex<Option<Booked>>,
    }

    impl UsageStore for Scripted {
        fn book<'a>(
            &'a self,
            batch: &'a UsageBatch,
            _: &'a [String],
            _: u32,
        ) -> BoxFuture<'a, Result<Booked, Error>> {
            self.sent.lock().push(batch.clone());
            let answer = self.answer.lock().clone();
            async move { answer.ok_or_else(|| Error::KeyInvalid("away".into())) }.boxed()
        }

        fn totals(&self, _: u32) -> BoxFuture<'_, Result<Vec<TenantTotal>, Error>> {
            async { Ok(Vec::new()) }.boxed()
        }

        fn rows(&self, _: u32, _: u32) -> BoxFuture<'_, Result<Vec<UsageRow>, Error>> {
            async { Ok(Vec::new()) }.boxed()
        }
    }

    const DAY: u32 = 20_261_129;

    fn budget(tokens: u64) -> TenantSettings {
        TenantSettings {
            name: "t".into(),
            tokens_per_day: Some(tokens),
            ..TenantSettings::default()
        }
    }

    fn answer(tokens: u64, nodes: u32) -> Option<Booked> {
        let total = |period| TenantTotal {
            tenant: "t".into(),
            period,
            tokens,
        };
        Some(Booked {
            totals: vec![total(DAY), total(month(DAY))],
            nodes,
        })
    }

    fn shared_ledger() -> (Arc<Scripted>, UsageLedger) {
        let store = Arc::new(Scripted::default());
        let ledger = UsageLedger::new(store.clone(), true, None, DAY);
        (store, ledger)
    }

    #[tokio::test]
    async fn a_batch_is_repeated_as_it_is_until_it_is_confirmed() {
        let (store, ledger) = shared_ledger();
        let name: Arc<str> = "t".into();
        ledger.ended(&name, Class(3), "m", usage(1), DAY);
        assert!(ledger.flush(Vec::new(), DAY).await.is_err());
        ledger.ended(&name, Class(3), "m", usage(2), DAY);
        assert!(ledger.flush(Vec::new(), DAY).await.is_err());
        *store.answer.lock() = answer(3, 1);
        ledger.flush(Vec::new(), DAY).await.unwrap();
        let sent = store.sent.lock().clone();
        let numbers: Vec<_> = sent
            .iter()
            .map(|batch| (batch.seq, batch.rows[0].output_tokens))
            .collect();
        assert_eq!(numbers, [(1, 1), (1, 1), (1, 1), (2, 2)]);
        assert_eq!(ledger.used(&name, DAY), (3, 3));
    }

    #[tokio::test]
    async fn quotas_count_what_all_nodes_used() {
        let (store, ledger) = shared_ledger();
        let name: Arc<str> = "t".into();
        *store.answer.lock() = answer(90, 3);
        ledger.flush(vec!["t".into()], DAY).await.unwrap();
        assert_eq!(ledger.check_quota(&budget(100), DAY), Ok(()));
        ledger.ended(&name, Class(3), "m", usage(10), DAY);
        let exhausted = Err(QuotaRefusal::Exhausted(Period::Day));
        assert_eq!(ledger.check_quota(&budget(100), DAY), exhausted);
        *store.answer.lock() = answer(170, 3);
        ledger.flush(Vec::new(), DAY).await.unwrap();
        assert_eq!(ledger.check_quota(&budget(180), DAY), Ok(()));
        assert_eq!(
            ledger.used(&name, DAY),
            (170, 170),
            "the batch is in the total"
        );
    }

    #[tokio::test]
    async fn a_node_that_is_cut_off_spends_its_slice() {
        let (store, ledger) = shared_ledger();
        let name: Arc<str> = "t".into();
        let unknown = Err(QuotaRefusal::Unknown);
        assert_eq!(
            ledger.check_quota(&budget(100), DAY),
            unknown,
            "never connected"
        );
        *store.answer.lock() = answer(40, 3);
        ledger.flush(vec!["t".into()], DAY).await.unwrap();
        *store.answer.lock() = None;
        assert!(ledger.flush(Vec::new(), DAY).await.is_err());
        // A third of the remaining 60 tokens.
        ledger.ended(&name, Class(3), "m", usage(19), DAY);
        assert_eq!(ledger.check_quota(&budget(100), DAY), Ok(()));
        assert!(ledger.flush(Vec::new(), DAY).await.is_err());
        ledger.ended(&name, Class(3), "m", usage(1), DAY);
        let used = Err(QuotaRefusal::SliceUsed(Period::Day));
        assert_eq!(ledger.check_quota(&budget(100), DAY), used);
        *store.answer.lock() = answer(60, 3);
        ledger.flush(Vec::new(), DAY).await.unwrap();
        assert_eq!(
            ledger.check_quota(&budget(100), DAY),
            Ok(()),
            "connected again"
        );
    }

    #[test]
    fn a_node_without_an_answer_for_three_seconds_is_cut_off() {
        let now = BootInstant::now();
        let mut connected = Connected {
            sent: Some(now),
            ..Connected::default()
        };
        assert!(!connected.is_cut_off(now + Duration::from_millis(2999)));
        assert!(connected.is_cut_off(now + CUT_OFF_AFTER));
        connected.failed = true;
        assert!(connected.is_cut_off(now));
    }

    #[tokio::test]
    async fn an_answer_for_yesterday_says_nothing_about_today() {
        let (store, ledger) = shared_ledger();
        let name: Arc<str> = "t".into();
        ledger.ended(&name, Class(3), "m", usage(7), DAY);
        *store.answer.lock() = answer(50, 1);
        // The batch is of yesterday, and midnight passed while it was on its way.
        assert_eq!(ledger.used(&name, DAY + 1).0, 0);
        ledger.flush(Vec::new(), DAY).await.unwrap();
        assert_eq!(ledger.used(&name, DAY + 1), (0, 50));
    }
}
