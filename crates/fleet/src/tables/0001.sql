-- Registered nodes. `seen` is for display only.
CREATE TABLE {schema}.node (
    token uuid PRIMARY KEY,
    name text NOT NULL,
    program int NOT NULL,
    beat bigint NOT NULL DEFAULT 0,
    info bytea NOT NULL DEFAULT '',
    joined timestamptz NOT NULL DEFAULT clock_timestamp(),
    seen timestamptz NOT NULL DEFAULT clock_timestamp()
) WITH (fillfactor = 50);

-- The epoch of the exchange, its allocator, and the fleet clock when it took over. Logged.
CREATE TABLE {schema}.exchange (
    id bool PRIMARY KEY DEFAULT true CHECK (id),
    epoch bigint NOT NULL,
    holder uuid,
    clock_ms bigint NOT NULL
);
INSERT INTO {schema}.exchange (epoch, clock_ms) VALUES (0, 0);

-- Allocations that raised something, as an upper bound of what a node has in force. Logged.
CREATE TABLE {schema}.raised_grant (
    node uuid NOT NULL,
    epoch bigint NOT NULL,
    number bigint NOT NULL,
    body bytea NOT NULL,
    PRIMARY KEY (node, epoch, number)
);

-- Unlogged tables change with every exchange. They are empty after a crash and on a promoted
-- standby; the allocator recognises that by the missing lease.
CREATE UNLOGGED TABLE {schema}.lease (
    id bool PRIMARY KEY DEFAULT true CHECK (id),
    holder uuid,
    epoch bigint NOT NULL,
    number bigint NOT NULL,
    beat bigint NOT NULL,
    clock_ms bigint NOT NULL,
    emptied bool NOT NULL
) WITH (fillfactor = 10);
CREATE UNLOGGED TABLE {schema}.report (
    node uuid PRIMARY KEY,
    name text NOT NULL,
    seq bigint NOT NULL,
    epoch bigint NOT NULL,
    number bigint NOT NULL,
    body bytea NOT NULL
) WITH (fillfactor = 50);
CREATE UNLOGGED TABLE {schema}.allocation (
    node uuid PRIMARY KEY,
    epoch bigint NOT NULL,
    number bigint NOT NULL,
    body bytea NOT NULL
) WITH (fillfactor = 50);

-- Facts that all nodes share. The version is random and changes with every write.
CREATE TABLE {schema}.fact (
    key text PRIMARY KEY,
    body bytea NOT NULL,
    expires_ms bigint,
    lasts_ms bigint
);
CREATE TABLE {schema}.fact_version (
    id bool PRIMARY KEY DEFAULT true CHECK (id),
    version uuid NOT NULL
);
