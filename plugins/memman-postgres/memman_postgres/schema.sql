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

-- The entries that a record made (`effect` is 1), hid or restored (0), or retracted (2). An empty id marks a session,
-- maybe a deleted one, whose deleted words are still in the full-text index.
CREATE TABLE IF NOT EXISTS memman_mention (
    session bigint NOT NULL,
    id text NOT NULL,
    seq bigint NOT NULL,
    effect smallint NOT NULL,
    PRIMARY KEY (session, id, seq)
) /* PARTITION BY HASH (session) */;

CREATE INDEX IF NOT EXISTS memman_mention_marks ON memman_mention (session) WHERE id = '';

-- The full-text index: the words of each entry, made and continued by searches. `memman_indexed` has the last record of
-- each session that is in it. Its row of session 0 is about all sessions: those with records at an earlier position
-- than `upto` are indexed up to them.
DO $$
BEGIN
    IF NOT EXISTS (
        SELECT FROM pg_ts_config WHERE cfgname = 'memman_english' AND cfgnamespace = current_schema()::regnamespace
    ) THEN
        -- As `english`, but no word is left out.
        CREATE TEXT SEARCH DICTIONARY memman_english (TEMPLATE = pg_catalog.snowball, LANGUAGE = english);
        CREATE TEXT SEARCH CONFIGURATION memman_english (COPY = pg_catalog.english);
        ALTER TEXT SEARCH CONFIGURATION memman_english ALTER MAPPING REPLACE english_stem WITH memman_english;
    END IF;
END $$;
CREATE TABLE IF NOT EXISTS memman_word (
    session bigint NOT NULL,
    seq bigint NOT NULL,
    words tsvector NOT NULL,
    PRIMARY KEY (session, seq)
) /* PARTITION BY HASH (session) */;
CREATE TABLE IF NOT EXISTS memman_indexed (
    session bigint PRIMARY KEY,
    upto bigint NOT NULL,
    entries bigint NOT NULL
);

-- Parts of words need pg_trgm, and an index that begins with the session needs btree_gin. Both belong to the database,
-- and its owner may create them. Without them, only whole words are found.
DO $$
DECLARE
    home text;
    pending text := 'gin_pending_list_limit = 256';  -- kB: a search reads the pending entries one by one
BEGIN
    BEGIN
        IF to_regnamespace('public') IS NOT NULL THEN
            CREATE EXTENSION IF NOT EXISTS pg_trgm SCHEMA public;
            CREATE EXTENSION IF NOT EXISTS btree_gin SCHEMA public;
        ELSE
            CREATE EXTENSION IF NOT EXISTS pg_trgm;
            CREATE EXTENSION IF NOT EXISTS btree_gin;
        END IF;
    EXCEPTION WHEN insufficient_privilege OR undefined_file OR feature_not_supported OR unique_violation THEN
        NULL;  -- searches warn
    END;
    SELECT extnamespace::regnamespace::text INTO home FROM pg_extension
    WHERE extname = 'pg_trgm' AND EXISTS (SELECT FROM pg_extension WHERE extname = 'btree_gin');
    IF home IS NULL THEN
        EXECUTE 'CREATE INDEX IF NOT EXISTS memman_word_words ON memman_word USING gin (words) WITH (' || pending || ')';
    ELSE
        EXECUTE 'CREATE INDEX IF NOT EXISTS memman_word_words ON memman_word USING gin (session, words) WITH ('
            || pending || ')';
        EXECUTE 'CREATE INDEX IF NOT EXISTS memman_word_parts ON memman_word USING gin (session, (words::text) '
            || home || '.gin_trgm_ops) WITH (' || pending || ')';
    END IF;
END $$;
