-- From version 2 to 3: an append is a function that gives one value. A worker of version 2 that still runs is refused.
DROP FUNCTION IF EXISTS memman_append(text, text, bigint, bytea);
UPDATE memman_store SET version = 3;
