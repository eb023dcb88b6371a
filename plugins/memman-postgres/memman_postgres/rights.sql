-- The index has the owner of the records, and the rights on them.
DO $$
DECLARE
    its record;
BEGIN
    FOR its IN
        SELECT format('%s ON memman_word, memman_indexed TO %s', acl.privilege_type,
            CASE acl.grantee WHEN 0 THEN 'PUBLIC' ELSE acl.grantee::regrole::text END) AS granted
        FROM pg_class, aclexplode(relacl) AS acl WHERE oid = 'memman_record'::regclass
    LOOP
        EXECUTE 'GRANT ' || its.granted;
    END LOOP;
    SELECT relowner::regrole::text AS owner INTO its FROM pg_class WHERE oid = 'memman_record'::regclass;
    EXECUTE 'ALTER TABLE memman_word OWNER TO ' || its.owner;
    EXECUTE 'ALTER TABLE memman_indexed OWNER TO ' || its.owner;
END $$;
