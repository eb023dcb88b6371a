-- The tables of a memman store, version 1. Every statement may be run again.
CREATE TABLE IF NOT EXISTS memman_store (
    version integer NOT NULL,
    first_epoch bigint NOT NULL,
    one boolean PRIMARY KEY DEFAULT true CHECK (one)
);
INSERT INTO memman_store (version, first_epoch) VALUES (1, 0) ON CONFLICT DO NOTHING;

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
    ledger bytea NOT NULL
) WITH (fillfactor = 70);  -- an append changes no indexed column, so there is room for it on the same page

-- Payloads are bytes of JSON: text and jsonb cannot hold a NUL, and tool output does.
CREATE TABLE IF NOT EXISTS memman_record (
    session bigint NOT NULL,
    seq bigint NOT NULL,
    payload bytea NOT NULL,
    PRIMARY KEY (session, seq)
);

-- A record by its id, and a compression by the ids of its replacements.
CREATE TABLE IF NOT EXISTS memman_name (
    session bigint NOT NULL,
    id text NOT NULL,
    seq bigint NOT NULL,
    PRIMARY KEY (session, id)
);
