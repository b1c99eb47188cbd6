//! Keys, tenants and the audit log in the database of a fleet.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, SystemTime};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use headworks_fleet::postgres::{
    DatabaseIdentity, FromSql, Link, Postgres, Row, Timeouts, Transaction, Type,
};
use headworks_fleet::{BootInstant, NodeToken, tables};
use jiff::Timestamp;
use serde_json::Value;
use tokio::sync::{Mutex, MutexGuard};

use super::KeyStore;
use super::audit::AuditEntry;
use super::change::{Changed, KeyChange};
use super::table::KeyTable;
use crate::config::{KeySettings, TenantSettings};
use crate::error::Error;

/// Attempts of a change that meets another one.
const ATTEMPTS: usize = 5;

/// The key store of a fleet. Only hashes of keys are stored.
pub struct PostgresKeyStore {
    /// Schema of the tables, in quotes.
    schema: String,
    name: String,
    levels: u8,
    connection: Mutex<Connection>,
}

struct Connection {
    link: Link,
    /// Whether the tables are known to exist.
    is_prepared: bool,
}

/// The version of the stored keys that a node holds.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct KnownVersion {
    /// `None` before the first change.
    version: Option<NodeToken>,
    identity: DatabaseIdentity,
}

/// The result of a comparison with the stored version.
pub(crate) struct Poll {
    /// When the question was sent.
    pub(crate) sent: BootInstant,
    /// The database's clock.
    pub(crate) time: Timestamp,
    pub(crate) known: KnownVersion,
    /// The keys and tenants, if they may have changed.
    pub(crate) table: Option<KeyTable>,
}

impl KnownVersion {
    /// Whether keys were stored at any time.
    pub(crate) fn had_changes(&self) -> bool {
        self.version.is_some()
    }
}

impl PostgresKeyStore {
    /// The store in the database `server`. Nothing is connected yet. `levels` is the number of
    /// classes.
    #[must_use]
    pub fn new(server: &Postgres, levels: u8) -> PostgresKeyStore {
        let mut timeouts = Timeouts::default().with_statement(Duration::from_secs(2));
        timeouts.connect = Duration::from_secs(2);
        PostgresKeyStore {
            schema: format!("\"{}\"", server.schema()),
            name: server.url().to_string(),
            levels,
            connection: Mutex::new(Connection {
                link: server.link("gateway keys", timeouts),
                is_prepared: false,
            }),
        }
    }

    async fn connection(&self) -> Result<MutexGuard<'_, Connection>, Error> {
        let mut connection = self.connection.lock().await;
        if !connection.is_prepared {
            let schema = self.schema.trim_matches('"');
            tables::schema(schema).apply(&mut connection.link).await?;
            connection.is_prepared = true;
        }
        Ok(connection)
    }

    /// Compares the stored version with `known`, and reads keys and tenants if they differ.
    pub(crate) async fn poll(&self, known: Option<&KnownVersion>) -> Result<Poll, Error> {
        let mut connection = self.connection().await?;
        let transaction = connection.link.begin().await?;
        let sent = BootInstant::now();
        // The version is read first, by a statement of its own: keys that are newer than it are
        // read once more at the next poll. The other way around, a change could be missed.
        let sql = format!(
            "SELECT clock_timestamp() AS time, \
             (SELECT version FROM {}.gateway_key_version) AS version",
            self.schema
        );
        let row = transaction.query_one(&sql, &[]).await?;
        let time: SystemTime = transaction.column(&row, "time")?;
        let found = KnownVersion {
            version: transaction.column(&row, "version")?,
            identity: DatabaseIdentity::read_in(&transaction).await?,
        };
        // Another history of the database can have other keys under a version that is known.
        let table = match known == Some(&found) {
            true => None,
            false => Some(self.read(&transaction).await?),
        };
        Ok(Poll {
            sent,
            time: Timestamp::try_from(time).unwrap_or_else(|_| Timestamp::now()),
            known: found,
            table,
        })
    }

    async fn read(&self, transaction: &Transaction<'_>) -> Result<KeyTable, Error> {
        let sql = format!(
            "SELECT id, hash, tenant, class, max_class, models::text AS models, expires \
             FROM {}.gateway_key ORDER BY number",
            self.schema
        );
        let keys = transaction.query(&sql, &[]).await?;
        let keys = keys.iter().map(|row| key(transaction, row));
        let keys = keys.collect::<Result<_, _>>()?;
        let sql = format!(
            "SELECT name, weight, max_concurrent, max_rps, max_tokens_per_sec, tokens_per_day, \
             tokens_per_month FROM {}.gateway_tenant ORDER BY number",
            self.schema
        );
        let tenants = transaction.query(&sql, &[]).await?;
        let tenants = tenants.iter().map(|row| tenant(transaction, row));
        Ok(KeyTable {
            keys,
            tenants: tenants.collect::<Result<_, _>>()?,
        })
    }

    async fn try_change(&self, change: &KeyChange, actor: &str) -> Result<Changed, Error> {
        let mut connection = self.connection().await?;
        let transaction = connection.link.begin().await?;
        tables::schema(self.schema.trim_matches('"'))
            .check(&transaction)
            .await?;
        // The row lock orders all changes: the table is read after it, so it is the latest.
        let sql = format!(
            "INSERT INTO {}.gateway_key_version (id, version) VALUES (true, $1) \
             ON CONFLICT (id) DO UPDATE SET version = excluded.version",
            self.schema
        );
        let version = NodeToken::random();
        let parameters = [(&version as _, Type::UUID)];
        transaction.execute(&sql, &parameters).await?;
        let before = self.read(&transaction).await?;
        let removed = self.removed(&transaction, change).await?;
        let mut after = before.clone();
        let changed = after.apply(change, self.levels, &removed)?;
        self.write_keys(&transaction, &before, &after).await?;
        self.write_tenants(&transaction, &before, &after).await?;
        let entry = AuditEntry::new(change, actor, Timestamp::UNIX_EPOCH);
        self.record(&transaction, &entry).await?;
        transaction.commit().await?;
        Ok(changed)
    }

    /// Ids of an import's keys that were removed earlier.
    async fn removed(
        &self,
        transaction: &Transaction<'_>,
        change: &KeyChange,
    ) -> Result<HashSet<String>, Error> {
        let KeyChange::Import { keys, .. } = change else {
            return Ok(HashSet::new());
        };
        let ids: Vec<&str> = keys.iter().map(|key| key.id.as_str()).collect();
        let sql = format!(
            "SELECT DISTINCT subject FROM {}.gateway_audit \
             WHERE subject = ANY($1) AND action = ANY($2)",
            self.schema
        );
        let actions = KeyChange::REMOVING.to_vec();
        let parameters = [
            (&ids as _, Type::TEXT_ARRAY),
            (&actions as _, Type::TEXT_ARRAY),
        ];
        let rows = transaction.query(&sql, &parameters).await?;
        let subject = |row| Ok(transaction.column::<String>(row, "subject")?);
        rows.iter().map(subject).collect()
    }

    async fn write_keys(
        &self,
        transaction: &Transaction<'_>,
        before: &KeyTable,
        after: &KeyTable,
    ) -> Result<(), Error> {
        let kept: HashSet<&str> = after.keys.iter().map(|key| key.id.as_str()).collect();
        let ids = before.keys.iter().map(|key| key.id.as_str());
        let removed = ids.filter(|id| !kept.contains(id)).collect();
        self.delete(transaction, "gateway_key", "id", removed)
            .await?;
        let known: HashMap<&str, &KeySettings> = before
            .keys
            .iter()
            .map(|key| (key.id.as_str(), key))
            .collect();
        let is_new = |key: &&KeySettings| known.get(key.id.as_str()) != Some(key);
        let keys: Vec<&KeySettings> = after.keys.iter().filter(is_new).collect();
        if keys.is_empty() {
            return Ok(());
        }
        let ids: Vec<&str> = keys.iter().map(|key| key.id.as_str()).collect();
        let hashes: Vec<Vec<u8>> = keys
            .iter()
            .map(|key| hex::decode(key.hash.as_deref().unwrap_or_default()).unwrap_or_default())
            .collect();
        let tenants: Vec<&str> = keys.iter().map(|key| key.tenant.as_str()).collect();
        let classes: Vec<_> = keys.iter().map(|key| key.class.map(i16::from)).collect();
        let highest: Vec<_> = keys
            .iter()
            .map(|key| key.max_class.map(i16::from))
            .collect();
        let models: Vec<String> = keys
            .iter()
            .map(|key| Value::from(key.models.clone()).to_string())
            .collect();
        let expires: Vec<_> = keys
            .iter()
            .map(|key| key.expires.map(SystemTime::from))
            .collect();
        let sql = format!(
            "INSERT INTO {}.gateway_key (id, hash, tenant, class, max_class, models, expires) \
             SELECT id, hash, tenant, class, max_class, models::jsonb, expires \
             FROM unnest($1, $2, $3, $4, $5, $6, $7) WITH ORDINALITY \
             AS new (id, hash, tenant, class, max_class, models, expires, place) ORDER BY place \
             ON CONFLICT (id) DO UPDATE SET tenant = excluded.tenant, class = excluded.class, \
             max_class = excluded.max_class, models = excluded.models, expires = excluded.expires",
            self.schema
        );
        let parameters = [
            (&ids as _, Type::TEXT_ARRAY),
            (&hashes as _, Type::BYTEA_ARRAY),
            (&tenants as _, Type::TEXT_ARRAY),
            (&classes as _, Type::INT2_ARRAY),
            (&highest as _, Type::INT2_ARRAY),
            (&models as _, Type::TEXT_ARRAY),
            (&expires as _, Type::TIMESTAMPTZ_ARRAY),
        ];
        transaction.execute(&sql, &parameters).await?;
        Ok(())
    }

    async fn write_tenants(
        &self,
        transaction: &Transaction<'_>,
        before: &KeyTable,
        after: &KeyTable,
    ) -> Result<(), Error> {
        let kept: HashSet<&str> = after.tenants.iter().map(|one| one.name.as_str()).collect();
        let names = before.tenants.iter().map(|one| one.name.as_str());
        let removed = names.filter(|name| !kept.contains(name)).collect();
        self.delete(transaction, "gateway_tenant", "name", removed)
            .await?;
        let sql = format!(
            "INSERT INTO {}.gateway_tenant (name, weight, max_concurrent, max_rps, \
             max_tokens_per_sec, tokens_per_day, tokens_per_month) \
             VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT (name) DO UPDATE SET \
             weight = excluded.weight, max_concurrent = excluded.max_concurrent, \
             max_rps = excluded.max_rps, max_tokens_per_sec = excluded.max_tokens_per_sec, \
             tokens_per_day = excluded.tokens_per_day, \
             tokens_per_month = excluded.tokens_per_month",
            self.schema
        );
        let known: HashMap<&str, &TenantSettings> = before
            .tenants
            .iter()
            .map(|one| (one.name.as_str(), one))
            .collect();
        let is_new = |tenant: &&TenantSettings| known.get(tenant.name.as_str()) != Some(tenant);
        for tenant in after.tenants.iter().filter(is_new) {
            let whole = |number: Option<u64>| number.map(|n| i64::try_from(n).unwrap_or(i64::MAX));
            let (weight, concurrent) = (
                tenant.weight.map(i64::from),
                tenant.max_concurrent.map(i64::from),
            );
            let (day, month) = (whole(tenant.tokens_per_day), whole(tenant.tokens_per_month));
            let parameters = [
                (&tenant.name as _, Type::TEXT),
                (&weight as _, Type::INT8),
                (&concurrent as _, Type::INT8),
                (&tenant.max_rps as _, Type::FLOAT8),
                (&tenant.max_tokens_per_sec as _, Type::FLOAT8),
                (&day as _, Type::INT8),
                (&month as _, Type::INT8),
            ];
            transaction.execute(&sql, &parameters).await?;
        }
        Ok(())
    }

    async fn delete(
        &self,
        transaction: &Transaction<'_>,
        table: &str,
        column: &str,
        values: Vec<&str>,
    ) -> Result<(), Error> {
        if values.is_empty() {
            return Ok(());
        }
        let sql = format!(
            "DELETE FROM {}.{table} WHERE {column} = ANY($1)",
            self.schema
        );
        let parameters = [(&values as _, Type::TEXT_ARRAY)];
        transaction.execute(&sql, &parameters).await?;
        Ok(())
    }

    async fn record(&self, transaction: &Transaction<'_>, entry: &AuditEntry) -> Result<(), Error> {
        let sql = format!(
            "INSERT INTO {}.gateway_audit (actor, action, subject, detail) \
             VALUES ($1, $2, $3, $4::jsonb)",
            self.schema
        );
        let detail = entry.detail.to_string();
        let parameters = [
            (&entry.actor as _, Type::TEXT),
            (&entry.action as _, Type::TEXT),
            (&entry.subject as _, Type::TEXT),
            (&detail as _, Type::TEXT),
        ];
        transaction.execute(&sql, &parameters).await?;
        Ok(())
    }

    async fn read_audit(&self, limit: usize) -> Result<Vec<AuditEntry>, Error> {
        let mut connection = self.connection().await?;
        let transaction = connection.link.begin().await?;
        let sql = format!(
            "SELECT at, actor, action, subject, detail::text AS detail FROM {}.gateway_audit \
             ORDER BY number DESC LIMIT $1",
            self.schema
        );
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let parameters = [(&limit as _, Type::INT8)];
        let rows = transaction.query(&sql, &parameters).await?;
        let entry = |row| -> Result<AuditEntry, Error> {
            let detail: String = transaction.column(row, "detail")?;
            Ok(AuditEntry {
                at: time(transaction.column(row, "at")?),
                actor: transaction.column(row, "actor")?,
                action: transaction.column(row, "action")?,
                subject: transaction.column(row, "subject")?,
                detail: serde_json::from_str(&detail).unwrap_or_default(),
            })
        };
        rows.iter().rev().map(entry).collect()
    }
}

impl KeyStore for PostgresKeyStore {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn load(&self) -> BoxFuture<'_, Result<KeyTable, Error>> {
        async move { Ok(self.poll(None).await?.table.unwrap_or_default()) }.boxed()
    }

    fn change<'a>(
        &'a self,
        change: &'a KeyChange,
        actor: &'a str,
    ) -> BoxFuture<'a, Result<Changed, Error>> {
        async move {
            for _ in 1..ATTEMPTS {
                match self.try_change(change, actor).await {
                    Err(Error::Fleet(headworks_fleet::Error::Conflict { .. })) => {}
                    done => return done,
                }
            }
            self.try_change(change, actor).await
        }
        .boxed()
    }

    fn audit_log(&self, limit: usize) -> BoxFuture<'_, Result<Vec<AuditEntry>, Error>> {
        self.read_audit(limit).boxed()
    }
}

fn time(at: SystemTime) -> Timestamp {
    Timestamp::try_from(at).unwrap_or(Timestamp::UNIX_EPOCH)
}

fn key(transaction: &Transaction<'_>, row: &Row) -> Result<KeySettings, Error> {
    let hash: &[u8] = transaction.column(row, "hash")?;
    let models: &str = transaction.column(row, "models")?;
    let expires: Option<SystemTime> = transaction.column(row, "expires")?;
    // A list that cannot be read must not become an empty one, which permits all models.
    let models = serde_json::from_str(models)
        .map_err(|cause| Error::KeyInvalid(format!("the stored models of a key: {cause}")))?;
    Ok(KeySettings {
        id: transaction.column(row, "id")?,
        hash: Some(hex::encode(hash)),
        tenant: transaction.column(row, "tenant")?,
        class: narrow::<i16, _>(transaction, row, "class")?,
        max_class: narrow::<i16, _>(transaction, row, "max_class")?,
        models,
        expires: expires.map(time),
        ..KeySettings::default()
    })
}

fn tenant(transaction: &Transaction<'_>, row: &Row) -> Result<TenantSettings, Error> {
    Ok(TenantSettings {
        name: transaction.column(row, "name")?,
        weight: narrow::<i64, _>(transaction, row, "weight")?,
        max_concurrent: narrow::<i64, _>(transaction, row, "max_concurrent")?,
        max_rps: transaction.column(row, "max_rps")?,
        max_tokens_per_sec: transaction.column(row, "max_tokens_per_sec")?,
        tokens_per_day: narrow::<i64, _>(transaction, row, "tokens_per_day")?,
        tokens_per_month: narrow::<i64, _>(transaction, row, "tokens_per_month")?,
    })
}

/// Reads a whole number as the type that settings have. One that does not fit is an error: without
/// it, a limit would not apply.
fn narrow<'r, S, T>(
    transaction: &Transaction<'_>,
    row: &'r Row,
    column: &str,
) -> Result<Option<T>, Error>
where
    S: FromSql<'r>,
    T: TryFrom<S>,
{
    let number: Option<S> = transaction.column(row, column)?;
    let fitting = number.map(T::try_from).transpose();
    fitting.map_err(|_| Error::KeyInvalid(format!("the stored `{column}` is out of range")))
}
