"""Commands at the queue's database: one that cannot be is named, and one that is away is waited for."""

from collections.abc import Iterator

import pytest
from django.core.management import CommandError
from django.db import connection

from django_pgqueue.cli import database
from django_pgqueue.cli.database import await_database, check_database
from tests.support.proxy import Detour
from tests.support.retention import run
from tests.support.schedule_command import schedule
from tests.support.waiting import PATIENCE_SECONDS, beside, eventually

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def detour(monkeypatch) -> Iterator[Detour]:
    """The way to the test database, by a port that goes away and comes back."""
    proxy = Detour()
    monkeypatch.setitem(connection.settings_dict, "HOST", "127.0.0.1")
    monkeypatch.setitem(connection.settings_dict, "PORT", str(proxy.port))
    connection.close()
    yield proxy
    connection.close()
    proxy.close()


def test_missing_tables_are_said_with_what_to_do(transactional_db):
    with pytest.raises(CommandError, match="The queue's database 'nowhere' is not in DATABASES"):
        run("--database", "nowhere")
    with connection.cursor() as cursor:
        cursor.execute("CREATE SCHEMA empty")
        cursor.execute("SET search_path = empty")
    try:
        with pytest.raises(CommandError, match=r"Run: manage\.py migrate django_pgqueue --database default"):
            run()
    finally:
        with connection.cursor() as cursor:
            cursor.execute("RESET search_path")
            cursor.execute("DROP SCHEMA empty")


def test_database_without_the_tables_is_named():
    with pytest.raises(CommandError, match="'lite' is sqlite"):
        schedule("list", "--database", "lite")


def test_database_that_is_away_when_it_is_looked_at_is_named(detour):
    check_database()
    connection.close()
    detour.go_away()
    try:
        with pytest.raises(CommandError, match=r"The database of alias 'default' cannot be reached: .*refused"):
            check_database()
    finally:
        detour.come_back()


def test_database_that_is_there_is_not_waited_for(detour, caplog):
    await_database("default", seconds=0)
    assert not caplog.records


def test_database_that_comes_back_is_waited_for_and_a_reason_is_told_once(detour, caplog, monkeypatch):
    failures = []
    monkeypatch.setattr(database, "reconnect_delay", lambda number: failures.append(number) or 0.01)
    detour.go_away()
    with beside(lambda: await_database("default", seconds=PATIENCE_SECONDS)):
        try:
            eventually(lambda: len(failures) >= 3)
        finally:
            detour.come_back()
    [record] = caplog.records
    assert record.getMessage().startswith("Waiting for the database of alias 'default': ")
    assert failures[:3] == [1, 2, 3]


def test_database_that_stays_away_is_an_error_that_says_how_to_wait(detour, caplog):
    detour.go_away()
    try:
        with pytest.raises(CommandError, match=r"cannot be reached: .*refused.* Start with --wait-for-database"):
            await_database("default", seconds=0)
    finally:
        detour.come_back()
    assert not caplog.records


def test_connection_that_can_never_work_is_left_to_the_checks(monkeypatch):
    monkeypatch.setitem(connection.settings_dict, "OPTIONS", {"colour": "red"})
    await_database("default", seconds=PATIENCE_SECONDS)
