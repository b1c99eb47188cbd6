//! Usage by tenant, day and model, of all nodes of a fleet.

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use headworks_fleet::postgres::{Link, Postgres, Timeouts, Transaction, Type};
use headworks_fleet::tables;
use tokio::sync::{Mutex, MutexGuard};

use super::UsageStore;
use super::batch::{Booked, TenantTotal, UsageBatch, month};
use super::row::UsageRow;
use crate::error::Error;

/// Attempts of a batch that meets another one.
const ATTEMPTS: usize = 3;
/// A process that was not seen for this long does not count as connected. By the server's clock,
/// and compared with itself only.
const SEEN_WITHIN: &str = "interval '10 seconds'";

/// The usage of a fleet.
pub struct PostgresUsageStore {
    /// Schema of the tables, in quotes.
    schema: String,
    connection: Mutex<Connection>,
}

struct Connection {
    link: Link,
    /// Whether the tables are known to exist.
    is_prepared: bool,
}

impl PostgresUsageStore {
    /// The store in the database `server`. Nothing is connected yet.
    #[must_use]
    pub fn new(server: &Postgres) -> PostgresUsageStore {
        PostgresUsageStore {
            schema: format!("\"{}\"", server.schema()),
            connection: Mutex::new(Connection {
                link: server.link("gateway usage", Timeouts::default()),
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

    async fn try_book(
        &self,
        batch: &UsageBatch,
        tenants: &[String],
        day: u32,
    ) -> Result<Booked, Error> {
        let mut connection = self.connection().await?;
        let transaction = connection.link.begin().await?;
        if self.is_new(&transaction, batch).await? {
            self.add_rows(&transaction, &batch.rows).await?;
            self.add_totals(&transaction, &batch.totals()).await?;
        }
        let totals = self.read_totals(&transaction, Some(tenants), day).await?;
        let sql = format!(
            "SELECT count(*) AS nodes FROM {}.gateway_usage_batch \
             WHERE seen > clock_timestamp() - {SEEN_WITHIN}",
            self.schema
        );
        let row = transaction.query_one(&sql, &[]).await?;
        let nodes: i64 = transaction.column(&row, "nodes")?;
        transaction.commit().await?;
        Ok(Booked {
            totals,
            nodes: u32::try_from(nodes).unwrap_or(u32::MAX).max(1),
        })
    }

    /// Marks a batch as booked, and returns whether it was not. The row's lock makes a retry wait
    /// for an earlier attempt whose connection was lost.
    async fn is_new(
        &self,
        transaction: &Transaction<'_>,
        batch: &UsageBatch,
    ) -> Result<bool, Error> {
        let has_rows = !batch.rows.is_empty();
        let seq = match has_rows {
            true => i64::try_from(batch.seq).unwrap_or(i64::MAX),
            false => 0,
        };
        // A batch without rows only shows that the process is connected.
        let update = match has_rows {
            true => {
                "seq = excluded.seq, seen = excluded.seen WHERE gateway_usage_batch.seq < excluded.seq"
            }
            false => "seen = excluded.seen",
        };
        let sql = format!(
            "INSERT INTO {}.gateway_usage_batch (process, seq, seen) \
             VALUES ($1, $2, clock_timestamp()) ON CONFLICT (process) DO UPDATE SET {update}",
            self.schema
        );
        let parameters = [(&batch.process as _, Type::UUID), (&seq as _, Type::INT8)];
        let changed = transaction.execute(&sql, &parameters).await?;
        Ok(has_rows && changed > 0)
    }

    /// Rows are sorted, so that two nodes lock them in the same order.
    async fn add_rows(
        &self,
        transaction: &Transaction<'_>,
        rows: &[UsageRow],
    ) -> Result<(), Error> {
        let sql = format!(
            "INSERT INTO {}.gateway_usage AS old \
             (day, tenant, model, requests, refused, input_tokens, output_tokens) \
             SELECT day, tenant, model, requests, refused, input, output \
             FROM unnest($1, $2, $3, $4, $5, $6, $7) WITH ORDINALITY \
             AS new (day, tenant, model, requests, refused, input, output, place) ORDER BY place \
             ON CONFLICT (day, tenant, model) DO UPDATE SET \
             requests = old.requests + excluded.requests, \
             refused = old.refused + excluded.refused, \
             input_tokens = old.input_tokens + excluded.input_tokens, \
             output_tokens = old.output_tokens + excluded.output_tokens",
            self.schema
        );
        let days: Vec<i32> = rows.iter().map(|row| period(row.day)).collect();
        let tenants: Vec<&str> = rows.iter().map(|row| row.tenant.as_str()).collect();
        let models: Vec<&str> = rows.iter().map(|row| row.model.as_str()).collect();
        let numbers = |get: fn(&UsageRow) -> u64| -> Vec<i64> {
            rows.iter().map(|row| signed(get(row))).collect()
        };
        let (requests, refused) = (numbers(|row| row.requests), numbers(|row| row.refused));
        let (input, output) = (
            numbers(|row| row.input_tokens),
            numbers(|row| row.output_tokens),
        );
        let parameters = [
            (&days as _, Type::INT4_ARRAY),
            (&tenants as _, Type::TEXT_ARRAY),
            (&models as _, Type::TEXT_ARRAY),
            (&requests as _, Type::INT8_ARRAY),
            (&refused as _, Type::INT8_ARRAY),
            (&input as _, Type::INT8_ARRAY),
            (&output as _, Type::INT8_ARRAY),
        ];
        transaction.execute(&sql, &parameters).await?;
        Ok(())
    }

    async fn add_totals(
        &self,
        transaction: &Transaction<'_>,
        totals: &[TenantTotal],
    ) -> Result<(), Error> {
        let sql = format!(
            "INSERT INTO {}.gateway_usage_total AS old (tenant, period, tokens) \
             SELECT tenant, period, tokens FROM unnest($1, $2, $3) WITH ORDINALITY \
             AS new (tenant, period, tokens, place) ORDER BY place \
             ON CONFLICT (tenant, period) DO UPDATE SET tokens = old.tokens + excluded.tokens",
            self.schema
        );
        let tenants: Vec<&str> = totals.iter().map(|total| total.tenant.as_str()).collect();
        let periods: Vec<i32> = totals.iter().map(|total| period(total.period)).collect();
        let tokens: Vec<i64> = totals.iter().map(|total| signed(total.tokens)).collect();
        let parameters = [
            (&tenants as _, Type::TEXT_ARRAY),
            (&periods as _, Type::INT4_ARRAY),
            (&tokens as _, Type::INT8_ARRAY),
        ];
        transaction.execute(&sql, &parameters).await?;
        Ok(())
    }

    /// Totals of these tenants, or of all.
    async fn read_totals(
        &self,
        transaction: &Transaction<'_>,
        tenants: Option<&[String]>,
        day: u32,
    ) -> Result<Vec<TenantTotal>, Error> {
        let sql = format!(
            "SELECT tenant, period, tokens FROM {}.gateway_usage_total \
             WHERE period = ANY($1) AND ($2 IS NULL OR tenant = ANY($2)) ORDER BY tenant, period",
            self.schema
        );
        let periods = vec![period(day), period(month(day))];
        let parameters = [
            (&periods as _, Type::INT4_ARRAY),
            (&tenants as _, Type::TEXT_ARRAY),
        ];
        let rows = transaction.query(&sql, &parameters).await?;
        let total = |row| -> Result<TenantTotal, Error> {
            Ok(TenantTotal {
                tenant: transaction.column(row, "tenant")?,
                period: u32::try_from(transaction.column::<i32>(row, "period")?).unwrap_or(0),
                tokens: unsigned(transaction.column(row, "tokens")?),
            })
        };
        rows.iter().map(total).collect()
    }

    async fn read_rows(&self, from: u32, to: u32) -> Result<Vec<UsageRow>, Error> {
        let mut connection = self.connection().await?;
        let transaction = connection.link.begin().await?;
        let sql = format!(
            "SELECT day, tenant, model, requests, refused, input_tokens, output_tokens \
             FROM {}.gateway_usage WHERE day BETWEEN $1 AND $2 \
             ORDER BY day, tenant COLLATE \"C\", model COLLATE \"C\"",
            self.schema
        );
        let (from, to) = (period(from), period(to));
        let parameters = [(&from as _, Type::INT4), (&to as _, Type::INT4)];
        let rows = transaction.query(&sql, &parameters).await?;
        let number = |row, column: &str| -> Result<u64, Error> {
            Ok(unsigned(transaction.column(row, column)?))
        };
        let usage = |row| -> Result<UsageRow, Error> {
            Ok(UsageRow {
                day: u32::try_from(transaction.column::<i32>(row, "day")?).unwrap_or(0),
                tenant: transaction.column(row, "tenant")?,
                model: transaction.column(row, "model")?,
                requests: number(row, "requests")?,
                refused: number(row, "refused")?,
                input_tokens: number(row, "input_tokens")?,
                output_tokens: number(row, "output_tokens")?,
            })
        };
        rows.iter().map(usage).collect()
    }
}

impl UsageStore for PostgresUsageStore {
    fn book<'a>(
        &'a self,
        batch: &'a UsageBatch,
        tenants: &'a [String],
        day: u32,
    ) -> BoxFuture<'a, Result<Booked, Error>> {
        async move {
            for _ in 1..ATTEMPTS {
                match self.try_book(batch, tenants, day).await {
                    Err(Error::Fleet(headworks_fleet::Error::Conflict { .. })) => {}
                    done => return done,
                }
            }
            self.try_book(batch, tenants, day).await
        }
        .boxed()
    }

    fn totals(&self, day: u32) -> BoxFuture<'_, Result<Vec<TenantTotal>, Error>> {
        async move {
            let mut connection = self.connection().await?;
            let transaction = connection.link.begin().await?;
            self.read_totals(&transaction, None, day).await
        }
        .boxed()
    }

    fn rows(&self, from: u32, to: u32) -> BoxFuture<'_, Result<Vec<UsageRow>, Error>> {
        self.read_rows(from, to).boxed()
    }
}

fn period(number: u32) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}

// PostgreSQL has signed integers only.
fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}
