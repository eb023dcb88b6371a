-- The tables of a memman store, version 3. Every statement may be run again.
-- A feed's positions are transaction ids, counted from behind those that the data brought from another server.
CREATE TABLE IF NOT EXISTS memman_store (
    version integer NOT NULL,
    first_epoch bigint NOT NULL,
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    behind bigint NOT NULL DEFAULT 0
);
INSERT INTO memman_store (version, first_epoch) VALUES (3, 0) ON CONFLICT DO NOTHING;

CREATE TABLE IF NOT EXISTS memman_session (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id text NOT NULL UNIQUE,
    head bigint NOT NULL,
    epoch bigint NOT NULL,
    entries bigint NOT NULL,
    tokens bigint NOT NULL,
    floor bigint NOT NULL,
    places bytea NOT NULL,
    folded bigint NOT NULL,
    ledger bytea NOT NULL,
    position bigint NOT NULL DEFAULT 0,
    lease_holder text,
    lease_from timestamptz,
    lease_until timestamptz
) WITH (fillfactor = 70);  -- an append changes no indexed column, so there is room for it on the same page

-- Payloads are bytes of JSON: text and jsonb cannot hold a NUL, and tool output does.
-- The position is never below the id of the transaction that wrote the row, nor below that of the session's
-- record before: what stands below every transaction that still runs is complete, and in order.
CREATE TABLE IF NOT EXISTS memman_record (
    session bigint NOT NULL,
    seq bigint NOT NULL,
    payload bytea NOT NULL,
    position bigint NOT NULL,
    PRIMARY KEY (session, seq)
) /* PARTITION BY HASH (session) */;
CREATE INDEX IF NOT EXISTS memman_feed ON memman_record (position, session, seq);

-- A record by its id, and a compression by the ids of its replacements.
CREATE TABLE IF NOT EXISTS memman_name (
    session bigint NOT NULL,
    id text NOT NULL,
    seq bigint NOT NULL,
    PRIMARY KEY (session, id)
) /* PARTITION BY HASH (session) */;
