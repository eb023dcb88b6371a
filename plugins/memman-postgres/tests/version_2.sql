-- What made tables of version 2 of those of version 1, as version 2 did.
ALTER TABLE memman_store ADD COLUMN behind bigint NOT NULL DEFAULT 0;
ALTER TABLE memman_session
    ADD COLUMN position bigint NOT NULL DEFAULT 0,
    ADD COLUMN lease_holder text,
    ADD COLUMN lease_from timestamptz,
    ADD COLUMN lease_until timestamptz;
-- What is there stands first. Without a default, a worker of version 1 that still runs is refused: what it
-- writes would stand among what followers have behind them.
ALTER TABLE memman_record ADD COLUMN position bigint NOT NULL DEFAULT 0;
ALTER TABLE memman_record ALTER COLUMN position DROP DEFAULT;
CREATE INDEX memman_feed ON memman_record (position, session, seq);
UPDATE memman_store SET version = 2;
CREATE OR REPLACE FUNCTION memman_append(to_session text, entry text, cost bigint, body bytea)
RETURNS TABLE (new_head bigint, at_epoch bigint) LANGUAGE plpgsql AS $$
DECLARE
    its_number bigint;
    its_position bigint;
BEGIN
    UPDATE memman_session AS its
    SET head = its.head + 1, entries = its.entries + 1, tokens = its.tokens + cost,
        position = greatest(its.position, pg_current_xact_id()::text::bigint + (SELECT behind FROM memman_store))
    WHERE its.id = to_session
    RETURNING its.number, its.position, its.head, its.epoch
    INTO its_number, its_position, new_head, at_epoch;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    INSERT INTO memman_name (session, id, seq) VALUES (its_number, entry, new_head) ON CONFLICT DO NOTHING;
    IF NOT FOUND THEN
        UPDATE memman_session AS its
        SET head = its.head - 1, entries = its.entries - 1, tokens = its.tokens - cost
        WHERE its.number = its_number;
        RETURN;
    END IF;
    INSERT INTO memman_record (session, seq, payload, position)
    VALUES (its_number, new_head, body, its_position);
    RETURN NEXT;
END $$;
