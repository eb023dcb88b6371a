-- Row-level security: a connection sees and changes the sessions of one tenant only, which may have any ids.
-- Run it as the owner after the tables were created; every statement may be run again.
-- This function returns the tenant. Replace its body if the tenant comes from elsewhere, such as current_user: a role
-- that may send its own SQL may change a setting, too.
CREATE OR REPLACE FUNCTION memman_tenant() RETURNS text LANGUAGE sql STABLE
AS $$ SELECT current_setting('memman.tenant') $$;

-- Existing sessions become those of the tenant that is set while this runs.
ALTER TABLE memman_session ADD COLUMN IF NOT EXISTS tenant text;
ALTER TABLE memman_record ADD COLUMN IF NOT EXISTS tenant text;
ALTER TABLE memman_mention ADD COLUMN IF NOT EXISTS tenant text;
ALTER TABLE memman_word ADD COLUMN IF NOT EXISTS tenant text;
ALTER TABLE memman_indexed ADD COLUMN IF NOT EXISTS tenant text;
UPDATE memman_session SET tenant = memman_tenant() WHERE tenant IS NULL;
UPDATE memman_record SET tenant = memman_tenant() WHERE tenant IS NULL;
UPDATE memman_mention SET tenant = memman_tenant() WHERE tenant IS NULL;
UPDATE memman_word SET tenant = memman_tenant() WHERE tenant IS NULL;
UPDATE memman_indexed SET tenant = memman_tenant() WHERE tenant IS NULL;
ALTER TABLE memman_session
    ALTER COLUMN tenant SET DEFAULT memman_tenant(),
    ALTER COLUMN tenant SET NOT NULL,
    DROP CONSTRAINT IF EXISTS memman_session_tenant_check,
    ADD CONSTRAINT memman_session_tenant_check CHECK (tenant <> ''),
    DROP CONSTRAINT IF EXISTS memman_session_id_key,
    DROP CONSTRAINT IF EXISTS memman_session_tenant_id_key,
    ADD CONSTRAINT memman_session_tenant_id_key UNIQUE (tenant, id);
ALTER TABLE memman_record ALTER COLUMN tenant SET DEFAULT memman_tenant(), ALTER COLUMN tenant SET NOT NULL;
ALTER TABLE memman_mention ALTER COLUMN tenant SET DEFAULT memman_tenant(), ALTER COLUMN tenant SET NOT NULL;
ALTER TABLE memman_word ALTER COLUMN tenant SET DEFAULT memman_tenant(), ALTER COLUMN tenant SET NOT NULL;
ALTER TABLE memman_indexed
    ALTER COLUMN tenant SET DEFAULT memman_tenant(),
    ALTER COLUMN tenant SET NOT NULL,
    DROP CONSTRAINT IF EXISTS memman_indexed_pkey,
    ADD CONSTRAINT memman_indexed_pkey PRIMARY KEY (tenant, session);
-- Policies admit no index for the operators of a search, so a tenant's search reads the tenant's rows.
CREATE INDEX IF NOT EXISTS memman_word_tenant ON memman_word (tenant);

-- FORCE binds the owner of the tables, too. Superusers and roles with BYPASSRLS are not bound.
ALTER TABLE memman_session ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
ALTER TABLE memman_record ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
ALTER TABLE memman_mention ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
ALTER TABLE memman_word ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
ALTER TABLE memman_indexed ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
DROP POLICY IF EXISTS memman_own ON memman_session;
DROP POLICY IF EXISTS memman_own ON memman_record;
DROP POLICY IF EXISTS memman_own ON memman_mention;
DROP POLICY IF EXISTS memman_own ON memman_word;
DROP POLICY IF EXISTS memman_own ON memman_indexed;
CREATE POLICY memman_own ON memman_session USING (tenant = memman_tenant());
CREATE POLICY memman_own ON memman_record USING (tenant = memman_tenant());
CREATE POLICY memman_own ON memman_mention USING (tenant = memman_tenant());
CREATE POLICY memman_own ON memman_word USING (tenant = memman_tenant());
CREATE POLICY memman_own ON memman_indexed USING (tenant = memman_tenant());
-- Every tenant sees the version; without a tenant nothing opens.
ALTER TABLE memman_store ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
DROP POLICY IF EXISTS memman_any ON memman_store;
CREATE POLICY memman_any ON memman_store USING (memman_tenant() <> '');
