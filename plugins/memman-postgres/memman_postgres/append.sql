-- Add one entry to a session and return its seq and the epoch, in one round trip. Return NULL if the session does not
-- exist or knows the id; the caller then takes the general way. `said` is the first line of a user message, else NULL.
CREATE OR REPLACE FUNCTION memman_add(to_session text, entry text, cost bigint, body bytea, added_at timestamptz, said text)
RETURNS bigint[] LANGUAGE plpgsql AS $$
DECLARE
    its_number bigint;
    its_position bigint;
    its_head bigint;
    its_epoch bigint;
BEGIN
    SELECT its.number INTO its_number FROM memman_session AS its WHERE its.id = to_session FOR UPDATE;
    IF NOT FOUND
        OR EXISTS (SELECT FROM memman_record AS each WHERE each.session = its_number AND each.id = entry)
        OR EXISTS (SELECT FROM memman_mention AS each WHERE each.session = its_number AND each.id = entry AND effect = 1)
    THEN
        RETURN NULL;
    END IF;
    UPDATE memman_session AS its
    SET head = its.head + 1, entries = its.entries + 1, tokens = its.tokens + cost, last_active_at = added_at,
        first_id = CASE WHEN its.first_id = '' AND said IS NOT NULL THEN entry ELSE its.first_id END,
        first_line = CASE WHEN its.first_id = '' AND said IS NOT NULL THEN said ELSE its.first_line END,
        position = greatest(its.position, pg_current_xact_id()::text::bigint + (SELECT behind FROM memman_store))
    WHERE its.number = its_number
    RETURNING its.position, its.head, its.epoch
    INTO its_position, its_head, its_epoch;
    INSERT INTO memman_record (session, seq, id, payload, position)
    VALUES (its_number, its_head, entry, body, its_position);
    RETURN ARRAY[its_head, its_epoch];
END $$;
