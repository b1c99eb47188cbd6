-- The gateway's keys: hashes only. `number` is the order in which they were added.
CREATE TABLE {schema}.gateway_key (
    id text PRIMARY KEY,
    number bigint GENERATED ALWAYS AS IDENTITY,
    hash bytea NOT NULL UNIQUE CHECK (octet_length(hash) = 32),
    tenant text NOT NULL,
    class smallint,
    max_class smallint,
    models jsonb NOT NULL DEFAULT '[]',
    expires timestamptz
);

-- The gateway's tenants: weights, limits and quotas.
CREATE TABLE {schema}.gateway_tenant (
    name text PRIMARY KEY,
    number bigint GENERATED ALWAYS AS IDENTITY,
    weight bigint,
    max_concurrent bigint,
    max_rps double precision,
    max_tokens_per_sec double precision,
    tokens_per_day bigint,
    tokens_per_month bigint
);

-- Random, and replaced in the transaction of every change of keys or tenants. There is no row
-- before the first one. Its lock orders the changes.
CREATE TABLE {schema}.gateway_key_version (
    id bool PRIMARY KEY DEFAULT true CHECK (id),
    version uuid NOT NULL
) WITH (fillfactor = 50);

-- The audit log of keys and tenants. `at` is for display only.
CREATE TABLE {schema}.gateway_audit (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at timestamptz NOT NULL DEFAULT clock_timestamp(),
    actor text NOT NULL,
    action text NOT NULL,
    subject text NOT NULL,
    detail jsonb NOT NULL
);
CREATE INDEX gateway_audit_subject ON {schema}.gateway_audit (subject);

-- Usage by day, tenant and model.
CREATE TABLE {schema}.gateway_usage (
    day int NOT NULL,
    tenant text NOT NULL,
    model text NOT NULL,
    requests bigint NOT NULL,
    refused bigint NOT NULL,
    input_tokens bigint NOT NULL,
    output_tokens bigint NOT NULL,
    PRIMARY KEY (day, tenant, model)
) WITH (fillfactor = 50);

-- Tokens by tenant and period. A period is a day such as 20261115, or a month such as 202611.
CREATE TABLE {schema}.gateway_usage_total (
    tenant text NOT NULL,
    period int NOT NULL,
    tokens bigint NOT NULL,
    PRIMARY KEY (tenant, period)
) WITH (fillfactor = 50);

-- The last batch of usage that was booked for each process. `seen` tells how many are connected.
CREATE TABLE {schema}.gateway_usage_batch (
    process uuid PRIMARY KEY,
    seq bigint NOT NULL,
    seen timestamptz NOT NULL
) WITH (fillfactor = 50);
