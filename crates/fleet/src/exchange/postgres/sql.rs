//! The statements, with the schema's name filled in.

/// Statements that run often.
#[derive(Debug)]
pub(super) struct Statements {
    pub(super) report: String,
    pub(super) reports: String,
    pub(super) renew: String,
    pub(super) lock_epoch: String,
    pub(super) lock_lease: String,
    pub(super) write_epoch: String,
    pub(super) write_lease: String,
    pub(super) grants: String,
    pub(super) advance_number: String,
    pub(super) allocate: String,
    pub(super) raise: String,
    pub(super) drop_superseded: String,
    pub(super) facts: String,
    pub(super) set_facts: String,
    pub(super) drop_facts: String,
    pub(super) facts_version: String,
    pub(super) status: String,
    pub(super) schema: String,
}

impl Statements {
    pub(super) fn new(schema: &str) -> Statements {
        let fill = |sql: &str| sql.replace("{s}", schema);
        Statements {
            report: fill(REPORT),
            reports: fill("SELECT node, name, seq, epoch, number, body FROM {s}.report"),
            renew: fill(
                "UPDATE {s}.lease SET beat = beat + 1, clock_ms = clock_ms + $3 \
                 WHERE holder = $1 AND epoch = $2",
            ),
            lock_epoch: fill("SELECT epoch, holder, clock_ms FROM {s}.exchange FOR UPDATE"),
            lock_lease: fill(
                "SELECT holder, epoch, number, beat, clock_ms, emptied FROM {s}.lease FOR UPDATE",
            ),
            write_epoch: fill("UPDATE {s}.exchange SET epoch = $1, holder = $2, clock_ms = $3"),
            write_lease: fill(WRITE_LEASE),
            grants: fill("SELECT node, epoch, number, body FROM {s}.raised_grant"),
            advance_number: fill(
                "UPDATE {s}.lease SET number = $3 WHERE holder = $1 AND epoch = $2 AND number < $3",
            ),
            allocate: fill(ALLOCATE),
            raise: fill(RAISE),
            drop_superseded: fill(DROP_SUPERSEDED),
            facts: fill("SELECT key, body, expires_ms, lasts_ms FROM {s}.fact ORDER BY key"),
            set_facts: fill(SET_FACTS),
            drop_facts: fill("DELETE FROM {s}.fact WHERE key = ANY($1) OR expires_ms <= $2"),
            facts_version: fill(
                "INSERT INTO {s}.fact_version (version) VALUES ($1) \
                 ON CONFLICT (id) DO UPDATE SET version = excluded.version",
            ),
            status: fill(STATUS),
            schema: schema.to_owned(),
        }
    }
}

/// Locks the presence of a node. A tick holds it shared, and a removal alone, so that no report
/// appears behind a removal. Advisory locks write no log, as row locks on `node` would.
pub(super) const LOCK_PRESENT: &str =
    "SELECT pg_advisory_xact_lock_shared(hashtextextended('headworks node ' || $1::text, 0))";
pub(super) const LOCK_ALONE: &str =
    "SELECT pg_advisory_xact_lock(hashtextextended('headworks node ' || $1::text, 0))";

/// In the order in which ticks and publications lock rows: report, lease, allocation, grants.
pub(super) fn remove_node(schema: &str) -> [String; 4] {
    [
        format!("DELETE FROM {schema}.report WHERE node = $1"),
        format!("UPDATE {schema}.lease SET holder = NULL, beat = beat + 1 WHERE holder = $1"),
        format!("DELETE FROM {schema}.allocation WHERE node = $1"),
        format!("DELETE FROM {schema}.raised_grant WHERE node = $1"),
    ]
}

/// Stores a report if the node is registered, and reads everything that a node needs.
const REPORT: &str = "
    WITH stored AS (
        INSERT INTO {s}.report AS r (node, name, seq, epoch, number, body)
        SELECT token, name, 1, $2, $3, $4 FROM {s}.node WHERE token = $1
        ON CONFLICT (node) DO UPDATE
            SET seq = r.seq + 1, epoch = excluded.epoch, number = excluded.number,
                body = excluded.body
        RETURNING 1)
    SELECT EXISTS (SELECT FROM stored) AS stored,
        l.id IS NOT NULL AS leased, l.holder, l.epoch AS lease_epoch, l.number AS lease_number,
        l.beat, coalesce(l.clock_ms, e.clock_ms) AS clock_ms, l.emptied,
        a.epoch, a.number, a.body, v.version
    FROM {s}.exchange e
    LEFT JOIN {s}.lease l ON true
    LEFT JOIN {s}.allocation a ON a.node = $1 AND (a.epoch, a.number) > ($2, $3)
    LEFT JOIN {s}.fact_version v ON true";

const WRITE_LEASE: &str = "
    INSERT INTO {s}.lease (holder, epoch, number, beat, clock_ms, emptied)
    VALUES ($1, $2, 0, $3, $4, $5)
    ON CONFLICT (id) DO UPDATE
        SET holder = excluded.holder, epoch = excluded.epoch, number = 0, beat = excluded.beat,
            clock_ms = excluded.clock_ms, emptied = excluded.emptied";

/// Rows are locked in the order of nodes. In different orders, two transactions could each wait for
/// a row that the other has locked: a deadlock.
const ALLOCATE: &str = "
    INSERT INTO {s}.allocation (node, epoch, number, body)
    SELECT p.node, $1, $2, p.body
    FROM unnest($3::uuid[], $4::bytea[]) AS p (node, body)
    JOIN {s}.node n ON n.token = p.node
    ORDER BY p.node
    ON CONFLICT (node) DO UPDATE
        SET epoch = excluded.epoch, number = excluded.number, body = excluded.body";

const RAISE: &str = "
    INSERT INTO {s}.raised_grant (node, epoch, number, body)
    SELECT p.node, $1, $2, p.body
    FROM unnest($3::uuid[], $4::bytea[]) AS p (node, body)
    JOIN {s}.node n ON n.token = p.node
    ORDER BY p.node";

/// A grant is superseded by a newer one that the node has already echoed. The newest echoed one
/// stays: if the report is lost, it bounds what the node has in force.
const DROP_SUPERSEDED: &str = "
    DELETE FROM {s}.raised_grant g USING {s}.report r
    WHERE g.node = r.node AND EXISTS (
        SELECT FROM {s}.raised_grant newer
        WHERE newer.node = g.node AND (newer.epoch, newer.number) > (g.epoch, g.number)
          AND (newer.epoch, newer.number) <= (r.epoch, r.number))";

const SET_FACTS: &str = "
    INSERT INTO {s}.fact (key, body, expires_ms, lasts_ms)
    SELECT key, body, $4 + lasts_ms, lasts_ms
    FROM unnest($1::text[], $2::bytea[], $3::bigint[]) AS p (key, body, lasts_ms)
    ORDER BY key
    ON CONFLICT (key) DO UPDATE
        SET body = excluded.body, expires_ms = excluded.expires_ms, lasts_ms = excluded.lasts_ms";

const STATUS: &str = "
    SELECT coalesce(l.epoch, e.epoch) AS epoch, coalesce(l.number, 0) AS number, l.holder
    FROM {s}.exchange e LEFT JOIN {s}.lease l ON true";
