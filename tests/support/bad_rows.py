"""Rows of jobs that nothing can change, as where a trigger raises an error or a page is damaged."""

from collections.abc import Callable, Iterator

import pytest

END = "end of the session"

MAKE = (
    "CREATE TABLE pgqueue_bad (id bigint PRIMARY KEY, state text)",
    f"""
    CREATE FUNCTION pgqueue_refuse() RETURNS trigger LANGUAGE plpgsql AS $$
    DECLARE
        found text := (SELECT bad.state FROM pgqueue_bad AS bad WHERE bad.id = OLD.id);
    BEGIN
        IF found = '{END}' THEN
            PERFORM pg_terminate_backend(pg_backend_pid());
        ELSIF found IS NOT NULL THEN
            RAISE EXCEPTION 'as planned' USING ERRCODE = found;
        END IF;
        RETURN CASE TG_OP WHEN 'DELETE' THEN OLD ELSE NEW END;
    END
    $$
    """,
    "CREATE TRIGGER refuse BEFORE DELETE OR UPDATE ON pgqueue_jobs FOR EACH ROW EXECUTE FUNCTION pgqueue_refuse()",
)


@pytest.fixture
def bad_row(transactional_db, sql) -> Iterator[Callable[[int, str | None], None]]:
    """Return a function that lets changes of a job fail with a state of SQL, or end the session; None: no more."""
    for statement in MAKE:
        sql(statement)
    yield lambda job_id, state: sql(
        "INSERT INTO pgqueue_bad VALUES (%s, %s) ON CONFLICT (id) DO UPDATE SET state = EXCLUDED.state", job_id, state
    )
    sql("DROP FUNCTION pgqueue_refuse CASCADE")
    sql("DROP TABLE pgqueue_bad")
