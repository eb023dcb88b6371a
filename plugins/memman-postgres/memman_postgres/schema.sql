-- The tables of a memman store, version 1. Every statement may be run again.
-- `first_epoch` is later than any epoch of a deleted session. A feed's positions are transaction ids; `behind` is added
-- to them, so that they come behind the positions of data that was restored from another server.
CREATE TABLE IF NOT EXISTS memman_store (
    version integer NOT NULL,
    first_epoch bigint NOT NULL,
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    behind bigint NOT NULL DEFAULT 0
);
INSERT INTO memman_store (version, first_epoch) VALUES (1, 0) ON CONFLICT DO NOTHING;

-- `entries` and `tokens` are the era's totals, `era` the seq of the last clear. The list of sessions shows the times of
-- the first record and of the newest entry, `metadata` (JSON) and the first line of the era's first user message. A
-- commit writes the window up to `floor` (`items`) and the totals up to `folded`, both as JSON. Ids are compared by
-- their bytes, so that the index finds those with a prefix.
CREATE TABLE IF NOT EXISTS memman_session (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id text COLLATE "C" NOT NULL UNIQUE,
    head bigint NOT NULL,
    epoch bigint NOT NULL,
    entries bigint NOT NULL,
    tokens bigint NOT NULL,
    era bigint NOT NULL,
    first_id text NOT NULL DEFAULT '',
    last_active_at timestamptz,
    created_at timestamptz,
    metadata bytea NOT NULL DEFAULT '{}',
    first_line text NOT NULL DEFAULT '',
    floor bigint NOT NULL,
    items bytea NOT NULL,
    folded bigint NOT NULL,
    totals bytea NOT NULL,
    position bigint NOT NULL DEFAULT 0,
    lease_holder text,
    lease_from timestamptz,
    lease_until timestamptz
) WITH (fillfactor = 70);  -- an append changes no indexed column, so the new row fits on the same page

-- Payloads are bytes of JSON. The position is never below the id of the transaction that wrote the row, nor below that
-- of the session's record before: all below the oldest running transaction is complete and in order.
CREATE TABLE IF NOT EXISTS memman_record (
    session bigint NOT NULL,
    seq bigint NOT NULL,
    id text NOT NULL,
    payload bytea NOT NULL,
    position bigint NOT NULL,
    PRIMARY KEY (session, seq)
) /* PARTITION BY HASH (session) */;
CREATE INDEX IF NOT EXISTS memman_record_id ON memman_record (session, id);
CREATE INDEX IF NOT EXISTS memman_feed ON memman_record (position, session, seq);

-- The entries that a record made (`effect` is 1), hid or restored (0), or retracted (2).
CREATE TABLE IF NOT EXISTS memman_mention (
    session bigint NOT NULL,
    id text NOT NULL,
    seq bigint NOT NULL,
    effect smallint NOT NULL,
    PRIMARY KEY (session, id, seq)
) /* PARTITION BY HASH (session) */;
