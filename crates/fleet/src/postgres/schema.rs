//! The schema and its versions.
//!
//! A schema changes by ordered [`Step`]s, under a lock that ends with its transaction. Nodes of two
//! versions share the database during a rolling upgrade, so a new version first *expands* the
//! schema in a way that the old program can live with. When no older node is registered any more,
//! it *contracts*: what only the old program needed goes.
//!
//! A database with tables of something else is refused and left as it is.

use super::link::Link;
use super::server::Timeouts;
use super::transaction::Transaction;
use crate::error::{Error, Result};
use std::time::Duration;
use tokio_postgres::types::Type;

/// Whether programs of the previous version can live with a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepKind {
    /// They can: new tables, new columns with defaults.
    Expand,
    /// They cannot: the step waits until none of them is registered.
    Contract,
}

/// One change of a schema.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    /// The version of the schema after the step; one more than before it.
    pub version: i32,
    /// The oldest program version that can use the schema after the step.
    pub min_compatible: i32,
    /// Whether older programs can live with it.
    pub kind: StepKind,
    /// The statements, with `{schema}` in place of the schema's quoted name.
    pub sql: &'static str,
}

/// A schema: a name, and the steps that a program knows.
#[derive(Clone, Copy, Debug)]
pub struct Schema<'a> {
    /// The name of the schema: at most 63 of `a` to `z`, `0` to `9`, `_` and `-`.
    pub name: &'a str,
    /// The schema with the table `node`, which names the versions of running programs.
    pub fleet: &'a str,
    /// The steps, in order of their versions, beginning with 1.
    pub steps: &'a [Step],
}

/// The version of a schema in the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SchemaVersion {
    /// The last step that was applied.
    pub version: i32,
    /// The oldest program version that can use it.
    pub min_compatible: i32,
    /// Contracting steps wait for older nodes to end.
    pub contract_pending: bool,
}

/// The content of the database.
struct Inventory {
    has_schema: bool,
    has_version: bool,
    relations: i64,
    foreign: Option<String>,
}

/// Creating indexes takes longer than an ordinary statement.
const TIMEOUTS: (Duration, Duration) = (Duration::from_secs(60), Duration::from_secs(30));

impl Schema<'_> {
    /// The version that this program knows: that of its last step.
    #[must_use]
    pub fn known(&self) -> i32 {
        self.steps.last().map_or(0, |step| step.version)
    }

    /// Brings the schema to the version of this program, as far as older nodes permit.
    ///
    /// # Errors
    /// When the database belongs to something else, needs a newer program, or cannot be upgraded
    /// while older nodes are registered.
    pub async fn apply(&self, link: &mut Link) -> Result<SchemaVersion> {
        self.check_name()?;
        let timeouts = Timeouts {
            lock: TIMEOUTS.1,
            ..Timeouts::default().with_statement(TIMEOUTS.0)
        };
        let server = link.server().name();
        let transaction = link.begin_with(timeouts).await?;
        self.lock(&transaction, true).await?;
        let found = self.inventory(&transaction).await?;
        if !found.has_version {
            self.claim(&transaction, &found, &server).await?;
        }
        let before = self.read(&transaction).await?;
        let after = self.upgrade(&transaction, before).await?;
        if after == before && found.has_version {
            return Ok(after); // Dropped: nothing was changed.
        }
        transaction.commit().await?;
        Ok(after)
    }

    /// Locks the schema against upgrades until the transaction ends, and checks that this program
    /// can use it.
    ///
    /// # Errors
    /// When the schema needs a newer program.
    pub async fn check(&self, transaction: &Transaction<'_>) -> Result<SchemaVersion> {
        self.lock(transaction, false).await?;
        let found = self.read(transaction).await?;
        self.refuse_newer(found)?;
        Ok(found)
    }

    /// Names are written into statements, so they must not contain anything else.
    fn check_name(&self) -> Result<()> {
        let fits = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"_-".contains(&b);
        let valid = |name: &str| (1..=63).contains(&name.len()) && name.bytes().all(fits);
        if valid(self.name) && valid(self.fleet) {
            return Ok(());
        }
        let cause = format!("`{}` cannot be the name of a schema", self.name);
        Err(Error::Setting(cause))
    }

    async fn lock(&self, transaction: &Transaction<'_>, exclusive: bool) -> Result<()> {
        let function = if exclusive {
            "pg_advisory_xact_lock"
        } else {
            "pg_advisory_xact_lock_shared"
        };
        let sql = format!("SELECT {function}(hashtextextended('headworks schema ' || $1, 0))");
        let parameters = [(&self.name as _, Type::TEXT)];
        transaction.query(&sql, &parameters).await?;
        Ok(())
    }

    async fn inventory(&self, transaction: &Transaction<'_>) -> Result<Inventory> {
        let parameters = [(&self.name as _, Type::TEXT)];
        let row = transaction.query_one(INVENTORY, &parameters).await?;
        Ok(Inventory {
            has_schema: transaction.column(&row, "has_schema")?,
            has_version: transaction.column(&row, "has_version")?,
            relations: transaction.column(&row, "relations")?,
            foreign: transaction.column(&row, "foreign_relation")?,
        })
    }

    /// Creates the schema and its version, if nobody else lives there.
    async fn claim(
        &self,
        transaction: &Transaction<'_>,
        found: &Inventory,
        server: &str,
    ) -> Result<()> {
        let name = self.name;
        let foreign = |cause: String| {
            Err(Error::Foreign {
                server: server.to_owned(),
                cause,
            })
        };
        if found.relations > 0 {
            return foreign(format!(
                "its schema `{name}` was not made by Headworks; use another database"
            ));
        }
        // An empty schema of our name is the administrator's permission to share the database.
        if let (false, Some(relation)) = (found.has_schema, &found.foreign) {
            return foreign(format!(
                "it contains `{relation}`; use a database of its own, or permit sharing this one \
                 with `CREATE SCHEMA {name}`"
            ));
        }
        let create = if found.has_schema {
            String::new()
        } else {
            format!("CREATE SCHEMA \"{name}\";")
        };
        transaction
            .batch(&format!(
                "{create} CREATE TABLE \"{name}\".schema_version (id bool PRIMARY KEY DEFAULT true \
                 CHECK (id), version int NOT NULL, min_compatible int NOT NULL); \
                 COMMENT ON TABLE \"{name}\".schema_version IS '{MARK}'; \
                 INSERT INTO \"{name}\".schema_version (version, min_compatible) VALUES (0, 0)"
            ))
            .await
    }

    async fn read(&self, transaction: &Transaction<'_>) -> Result<SchemaVersion> {
        let sql = format!(
            "SELECT version, min_compatible FROM \"{}\".schema_version",
            self.name
        );
        let row = transaction.query_one(&sql, &[]).await?;
        let version = transaction.column(&row, "version")?;
        Ok(SchemaVersion {
            version,
            min_compatible: transaction.column(&row, "min_compatible")?,
            contract_pending: version < self.known(),
        })
    }

    fn refuse_newer(&self, found: SchemaVersion) -> Result<()> {
        if found.min_compatible <= self.known() {
            return Ok(());
        }
        Err(Error::SchemaNewer {
            schema: self.name.to_owned(),
            version: found.version,
            min_compatible: found.min_compatible,
            known: self.known(),
        })
    }

    async fn upgrade(
        &self,
        transaction: &Transaction<'_>,
        mut found: SchemaVersion,
    ) -> Result<SchemaVersion> {
        self.refuse_newer(found)?;
        let mut waits_for = None;
        let before = found.version;
        for step in self.steps.iter().filter(|step| step.version > before) {
            let older = match step.kind {
                StepKind::Expand => String::new(),
                StepKind::Contract => self.older_nodes(transaction, step).await?,
            };
            if !older.is_empty() {
                waits_for = Some(older);
                continue;
            }
            // Steps are ordered: a step behind one that waits has to wait, too.
            if waits_for.is_some() {
                continue;
            }
            self.run(transaction, step).await?;
            found.version = step.version;
            found.min_compatible = step.min_compatible;
        }
        found.contract_pending = waits_for.is_some();
        match waits_for {
            Some(nodes) if found.version < self.needed() => Err(Error::OlderNodes {
                schema: self.name.to_owned(),
                nodes,
            }),
            _ => Ok(found),
        }
    }

    /// The version that the schema must have before this program can use it.
    fn needed(&self) -> i32 {
        let expanding = self.steps.iter().rev();
        expanding
            .filter(|step| step.kind == StepKind::Expand)
            .map(|step| step.version)
            .next()
            .unwrap_or(0)
    }

    async fn run(&self, transaction: &Transaction<'_>, step: &Step) -> Result<()> {
        let sql = step.sql.replace("{schema}", &format!("\"{}\"", self.name));
        transaction.batch(&sql).await?;
        let sql = format!(
            "UPDATE \"{}\".schema_version SET version = $1, min_compatible = $2",
            self.name
        );
        let parameters = [
            (&step.version as _, Type::INT4),
            (&step.min_compatible as _, Type::INT4),
        ];
        transaction.execute(&sql, &parameters).await?;
        tracing::info!(
            schema = self.name,
            version = step.version,
            "schema upgraded"
        );
        Ok(())
    }

    /// The names of registered nodes whose program cannot live with `step`.
    async fn older_nodes(&self, transaction: &Transaction<'_>, step: &Step) -> Result<String> {
        let sql = format!(
            "SELECT coalesce(string_agg(name, ', ' ORDER BY name), '') AS names \
             FROM \"{}\".node WHERE program < $1",
            self.fleet
        );
        let parameters = [(&step.min_compatible as _, Type::INT4)];
        let row = transaction.query_one(&sql, &parameters).await?;
        transaction.column(&row, "names")
    }
}

/// Marks the version table as ours.
const MARK: &str = "Headworks schema version";

/// Relations of extensions belong to nobody, and other schemas of ours have a version table.
const INVENTORY: &str = "
    WITH ours AS (
        SELECT c.relnamespace AS id FROM pg_catalog.pg_class c
        WHERE c.relname = 'schema_version'
          AND obj_description(c.oid, 'pg_class') = 'Headworks schema version'),
    relation AS (
        SELECT n.nspname, c.relname, c.relnamespace FROM pg_catalog.pg_class c
        JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
        WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f', 'S')
          AND n.nspname !~ '^pg_' AND n.nspname <> 'information_schema'
          AND NOT EXISTS (SELECT FROM pg_catalog.pg_depend d
              WHERE d.classid = 'pg_catalog.pg_class'::regclass AND d.objid = c.oid
                AND d.deptype = 'e'))
    SELECT
        EXISTS (SELECT FROM pg_catalog.pg_namespace WHERE nspname = $1) AS has_schema,
        EXISTS (SELECT FROM ours JOIN pg_catalog.pg_namespace n ON n.oid = ours.id
            WHERE n.nspname = $1) AS has_version,
        (SELECT count(*) FROM relation WHERE nspname = $1) AS relations,
        (SELECT min(nspname || '.' || relname) FROM relation
            WHERE relnamespace NOT IN (SELECT id FROM ours)) AS foreign_relation";
