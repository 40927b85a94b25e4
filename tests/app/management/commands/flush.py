from django.core.management.commands import flush
from django.db import connections

EMPTY = """
DO $$
DECLARE
    one record;
BEGIN
    FOR one IN
        SELECT
            oid::regclass AS name,
            relname = 'pgqueue_jobs' OR relname LIKE 'pgqueue%' AND pg_relation_size(oid) > 65536 AS is_truncated
        FROM pg_class
        WHERE relnamespace = current_schema()::regnamespace AND relkind = 'r'
          AND relname NOT IN ('django_migrations', 'django_content_type', 'auth_permission')
        ORDER BY is_truncated DESC, relname
    LOOP
        EXECUTE 'LOCK TABLE ' || one.name;
        CONTINUE WHEN pg_relation_size(one.name) = 0;
        IF one.is_truncated THEN
            EXECUTE 'TRUNCATE ' || one.name;
        ELSE
            EXECUTE 'DELETE FROM ' || one.name;
        END IF;
    END LOOP;
END $$
"""


class Command(flush.Command):
    """Empty the tables after a test that committed: much sooner than TRUNCATE of all of them does.

    It waits for sessions that still write, as TRUNCATE does, and leaves pgqueue_jobs without a dead row. What was put
    into tables by migrations stays, so it need not be made anew. A file without a page, once the table is locked, has
    no rows: such a table costs its lock, not the plan of a DELETE nor new files for each of its indexes.
    """

    def handle(self, **options) -> None:
        connection = connections[options["database"]]
        if connection.vendor != "postgresql":
            return super().handle(**options)
        with connection.cursor() as cursor:
            cursor.execute(EMPTY)
        return None
