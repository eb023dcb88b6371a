-- Adds one entry to a session that is there, and gives its seq and the epoch: NULL where the session is not there, or
-- the entry is. Its plans are kept by each connection, behind a pooler too, where a prepared statement would be gone.
CREATE OR REPLACE FUNCTION memman_add(to_session text, entry text, cost bigint, body bytea)
RETURNS bigint[] LANGUAGE plpgsql AS $$
DECLARE
    its_number bigint;
    its_position bigint;
    its_head bigint;
    its_epoch bigint;
BEGIN
    UPDATE memman_session AS its
    SET head = its.head + 1, entries = its.entries + 1, tokens = its.tokens + cost,
        position = greatest(its.position, pg_current_xact_id()::text::bigint + (SELECT behind FROM memman_store))
    WHERE its.id = to_session
    RETURNING its.number, its.position, its.head, its.epoch
    INTO its_number, its_position, its_head, its_epoch;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    INSERT INTO memman_name (session, id, seq) VALUES (its_number, entry, its_head) ON CONFLICT DO NOTHING;
    IF NOT FOUND THEN
        UPDATE memman_session AS its
        SET head = its.head - 1, entries = its.entries - 1, tokens = its.tokens - cost
        WHERE its.number = its_number;
        RETURN NULL;
    END IF;
    INSERT INTO memman_record (session, seq, payload, position)
    VALUES (its_number, its_head, body, its_position);
    RETURN ARRAY[its_head, its_epoch];
END $$;
