"""Looks at several databases at the same time."""

import threading

import pytest
from django.db import OperationalError, connections, transaction
from django.utils.translation import get_language, override

from django_pgqueue.doctor import findings
from django_pgqueue.insights import side_by_side
from django_pgqueue.insights.side_by_side import SideBySide
from tests.support.proxy import hung
from tests.support.waiting import PATIENCE_SECONDS
from tests.support.workers import until_alone

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "other"])

BOTH = ["other", "default"]


def name_of(alias: str) -> str:
    with connections[alias].cursor() as cursor:
        cursor.execute("SELECT current_database()")
        [(name,)] = cursor.fetchall()
    return name


def test_databases_are_looked_at_at_the_same_time_in_the_language_of_the_caller():
    both = threading.Barrier(2)

    def look(alias):
        both.wait(PATIENCE_SECONDS)
        return name_of(alias), get_language()

    with override("de"):
        found = SideBySide(BOTH, look).results()
    assert list(found) == BOTH
    assert found == {alias: (connections[alias].settings_dict["NAME"], "de") for alias in BOTH}


def test_error_is_the_result_of_its_database_alone():
    def look(alias):
        if alias == "other":
            raise OperationalError("away")
        return name_of(alias)

    found = SideBySide(BOTH, look).results()
    assert (str(found["other"]), found["default"]) == ("away", connections["default"].settings_dict["NAME"])


def test_database_that_does_not_answer_is_waited_for_until_the_deadline(settings, monkeypatch):
    settings.PGQUEUE = settings.PGQUEUE | {"READ_TIMEOUT_SECONDS": 0.25}
    monkeypatch.setattr(side_by_side, "PATIENCE_SECONDS", 0.0)
    go_on = threading.Event()
    looks = SideBySide(["other"], lambda _: go_on.wait(PATIENCE_SECONDS))
    try:
        assert str(looks.results()["other"]) == "the server has not answered for 0.5 s"
    finally:
        go_on.set()
        for thread in looks._threads.values():
            thread.join(PATIENCE_SECONDS)


def test_silent_server_ends_the_look(settings, monkeypatch, sql):
    settings.PGQUEUE = settings.PGQUEUE | {"READ_TIMEOUT_SECONDS": 0.5}
    monkeypatch.setattr(side_by_side, "PATIENCE_SECONDS", 0.0)

    def look(alias):
        connections[alias].cursor().execute("SELECT pg_advisory_lock(4711)")

    sql("SELECT pg_advisory_lock(4711)")
    try:
        looks = SideBySide(["default"], look)
        [thread] = looks._threads.values()
        thread.join(PATIENCE_SECONDS)
        assert not thread.is_alive()
        assert "has not answered" in str(looks.results()["default"])
    finally:
        sql("SELECT pg_advisory_unlock(4711)")
        until_alone(sql)


@pytest.mark.parametrize("alias", BOTH, ids=["database", "outbox"])
def test_pooler_that_answers_no_client_ends_the_look(settings, monkeypatch, alias):
    settings.PGQUEUE = settings.PGQUEUE | {"READ_TIMEOUT_SECONDS": 0.5, "OUTBOXES": {"other": 5}}
    monkeypatch.setattr(side_by_side, "PATIENCE_SECONDS", 0.0)
    connections["other"].close()
    with hung(connections["other"].settings_dict):
        looks = SideBySide([alias], lambda _: name_of("other"))
        [thread] = looks._threads.values()
        thread.join(PATIENCE_SECONDS)
        assert not thread.is_alive()
        assert "has not answered" in str(looks.results()[alias])


def test_findings_are_those_of_a_connection_of_django(filled, settings):
    settings.PGQUEUE = settings.PGQUEUE | {"OUTBOXES": {"other": 5}}  # has no such table
    seen = findings(filled)
    assert "not-looked-at" in {finding.name for finding in seen}
    assert SideBySide([filled], findings).results() == {filled: seen}


def test_look_that_is_under_way_is_shared_in_each_language():
    go_on, languages = threading.Event(), []

    def look(_):
        languages.append(get_language())
        return go_on.wait(PATIENCE_SECONDS) and get_language()

    def begun(language):
        with override(language):
            return SideBySide(["other"], look)

    looks = [begun(language) for language in ("en", "de", "en", "de")]
    go_on.set()
    assert [one.results()["other"] for one in looks] == ["en", "de", "en", "de"]
    assert sorted(languages) == ["de", "en"]
    for one in looks:
        one._threads["other"].join(PATIENCE_SECONDS)
    assert begun("en").results() == {"other": "en"}
    assert sorted(languages) == ["de", "en", "en"]


def test_database_with_a_transaction_is_looked_at_in_it():
    with transaction.atomic():
        found = SideBySide(["default"], lambda _: threading.get_ident()).results()
    assert found == {"default": threading.get_ident()}
