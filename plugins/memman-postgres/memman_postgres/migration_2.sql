-- From version 1 to 2: positions for the feed, and leases. One transaction, the advisory lock held.
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
