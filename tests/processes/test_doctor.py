"""pgqueue_doctor as people run it: beside real workers, by other roles, through poolers."""

import os

import pytest

import tests.app.tasks as app
from django_pgqueue.models import SucceededJob
from tests.support import prestarted
from tests.support.needs import PGBOUNCER
from tests.support.pgbouncer import BINARY
from tests.support.ports import free_port
from tests.support.waiting import eventually
from tests.support.worker_rows import forget_counters, worker
from tests.support.workers import database_url

pytestmark = pytest.mark.django_db(transaction=True)


def doctor(*words: str, afresh: bool = False, **environment: str) -> tuple[str, str, int]:
    """Return what the command prints, what it complains of, and its exit code."""
    environment = {**os.environ, "DATABASE_URL": database_url(), **environment}
    done = prestarted.run(["pgqueue_doctor", *words], env=environment, afresh=afresh)
    assert "Traceback" not in done.stderr, done.stderr
    return done.stdout, done.stderr, done.returncode


def found(sql, names: set[str], *words: str, **environment: str) -> tuple[str, str, int]:
    """Return the same once just these findings are told: the last session of an earlier test may tell late."""

    def told() -> tuple[str, str, int] | None:
        forget_counters(sql)
        return answer if named((answer := doctor(*words, **environment))[0]) == names else None

    return eventually(told)


def named(text: str) -> set[str]:
    """Return which findings are told."""
    return {line.split()[1] for line in text.splitlines() if line.startswith(("ERROR ", "WARNING "))}


def test_nothing_is_found_while_a_worker_works_and_it_is_missed_once_it_is_gone(start_worker, sql):
    real = start_worker("--processes", "2", LEASE_SECONDS="3").wait_until_ready()
    app.record.enqueue_many([("x",)] * 50)
    eventually(lambda: SucceededJob.objects.count() == 50)
    assert found(sql, set()) == ("healthy\n", "", 0)
    real.kill_group()
    app.record.enqueue_many([("x",)])
    assert found(sql, {"no-workers"})[1:] == ("CommandError: Found: 1 error.\n", 1)


@pytest.mark.skipif(not BINARY, reason=PGBOUNCER)
def test_pooler_under_listen_is_found_until_there_is_a_direct_way(pooler, sql):
    worker()
    text, _, code = found(sql, {"listen-behind-pooler"}, "--fail-level", "warning", **pooler.environment())
    assert code == 1
    assert "'default' gets no notifications" in text
    assert found(sql, set(), **pooler.environment_to_listen()) == ("healthy\n", "", 0)
    silent = pooler.environment() | {"PGQUEUE": '{"NOTIFY": false}'}
    assert found(sql, set(), **silent) == ("healthy\n", "", 0)


def test_role_with_too_few_connections_is_found_until_it_has_more(login_as, start_worker, sql):
    """It is the role of the workers that counts, whichever role asks."""
    url = login_as("shop_worker")
    sql("ALTER ROLE shop_worker CONNECTION LIMIT 12")
    start_worker("--concurrency", "8", DATABASE_URL=url).wait_until_ready()  # 4 + 1 + 8
    text, _, code = found(sql, {"connections-short"})
    assert "ALTER ROLE shop_worker CONNECTION LIMIT allows it 12" in text
    assert code == 1
    sql("ALTER ROLE shop_worker CONNECTION LIMIT 13")
    assert found(sql, set(), DATABASE_URL=url) == ("healthy\n", "", 0)


def test_role_that_may_not_read_everything_says_so(login_as, sql):
    worker()
    url = login_as("shop_worker")
    sql("REVOKE SELECT ON pgqueue_bulk_actions FROM shop_worker")
    text, complaint, code = found(sql, {"not-looked-at"}, DATABASE_URL=url)
    assert code == 2
    assert "permission denied for table pgqueue_bulk_actions" in text
    assert "Not everything could be looked at" in complaint


def test_database_that_is_away_is_no_finding():
    text, complaint, code = doctor(afresh=True, DATABASE_URL=f"postgresql://stranger@127.0.0.1:{free_port()}/nothing")
    assert (text, code) == ("", 2)
    assert "cannot be reached" in complaint


def test_wrong_settings_keep_it_from_looking():
    text, complaint, code = doctor(afresh=True, PGQUEUE='{"LEASE_SECONDS": 0}')
    assert (text, code) == ("", 2)
    assert "pgqueue.E002" in complaint
