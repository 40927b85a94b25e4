"""Queues of the settings: their limits come into the table, and those that staff have set win."""

import datetime as dt

import pytest
from django.db import IntegrityError

import tests.app.tasks as app
from django_pgqueue import queues
from django_pgqueue.exceptions import InvalidLimit
from django_pgqueue.flow.declared_queues import DeclaredLimits, DeclaredQueue, start_within, undeclared
from django_pgqueue.flow.queue_limits import Limits
from django_pgqueue.models import Queue
from tests.support.queue_limits import take

FAST = {"max_running": 4, "rate": "100/m", "burst": 2}


@pytest.fixture
def declare(settings):
    """Let the code declare queues."""

    def run(**declared):
        settings.PGQUEUE = {**settings.PGQUEUE, "QUEUES": declared}

    return run


def apply_limits(queue) -> list[str]:
    """Do what a worker does that starts."""
    return DeclaredLimits(queue).apply()


def limits_of(name: str) -> Limits:
    return Limits(
        *Queue.objects.values_list("max_running", "rate_limit", "rate_period_seconds", "rate_burst").get(pk=name)
    )


def test_limits_of_the_code_come_into_the_table_and_change_with_it(queue, declare):
    declare(mail=FAST, reports={})
    assert apply_limits(queue) == ["mail"]
    assert limits_of("mail") == (4, 100, 60.0, 2)
    assert not Queue.objects.filter(pk="reports").exists()
    assert apply_limits(queue) == []
    declare(mail={"rate": 5}, reports={"max_running": 1})
    assert apply_limits(queue) == ["mail", "reports"]
    assert limits_of("mail") == (None, 5, 1.0, 1)
    assert limits_of("reports") == (1, None, None, None)


def test_limits_of_the_code_hold(queue, declare):
    app.noop.enqueue_many([()] * 5)
    declare(default={"max_running": 2})
    apply_limits(queue)
    assert len(take(queue)[0]) == 2


def test_queue_that_is_gone_from_the_code_is_not_limited_any_more(queue, declare):
    declare(mail=FAST, reports={"max_running": 1})
    apply_limits(queue)
    declare(reports={"max_running": 1})
    assert apply_limits(queue) == ["mail"]
    assert limits_of("mail") == (None, None, None, None)


def test_code_that_declares_no_queue_leaves_all_limits_alone(queue, declare):
    declare(mail=FAST)
    apply_limits(queue)
    declare()
    assert apply_limits(queue) == []
    assert limits_of("mail").max_running == 4


def test_limits_set_by_hand_win_until_those_of_the_code_are_restored(queue, declare):
    declare(mail=FAST)
    apply_limits(queue)
    queues.limit("mail", max_running=1, by="ann")
    assert apply_limits(queue) == []
    row = Queue.objects.get(pk="mail")
    assert (row.max_running, row.rate_limit, row.limited_by) == (1, 100, "ann")
    assert row.limited_at is not None
    declare(mail={"max_running": 9})
    assert apply_limits(queue) == []
    assert queues.restore("mail", by="ben")
    row = Queue.objects.get(pk="mail")
    assert (row.max_running, row.rate_limit, row.limited_by, row.limited_at) == (9, None, "", None)
    assert not queues.restore("mail")
    declare(mail={"max_running": 3})
    assert apply_limits(queue) == ["mail"]


def test_limit_removed_by_hand_stays_removed(queue, declare):
    declare(mail={"max_running": 4})
    apply_limits(queue)
    queues.limit("mail", max_running=None)
    assert apply_limits(queue) == []
    assert limits_of("mail").max_running is None


def test_limit_set_by_hand_on_another_queue_stays(queue, declare):
    queues.limit("imports", max_running=2)
    declare(mail=FAST)
    assert apply_limits(queue) == ["mail"]
    assert limits_of("imports").max_running == 2


def test_tokens_stay_where_the_rate_of_the_code_does(queue, declare):
    app.noop.enqueue_many([()] * 9)
    declare(default={"rate": "1/1000s", "burst": 3})
    apply_limits(queue)
    assert len(take(queue)[0]) == 3
    declare(default={"rate": "1/1000s", "burst": 3, "max_running": 100})
    assert apply_limits(queue) == ["default"]
    assert take(queue)[0] == []


def test_queue_whose_row_is_locked_is_left_for_the_next_time(queue, other_queue, declare):
    """The pass of a worker waits for no open transaction of staff."""
    declare(mail={"max_running": 1})
    assert apply_limits(queue) == ["mail"]
    declare(mail={"max_running": 2}, reports={"max_running": 1})
    worker = DeclaredLimits(queue)
    with other_queue.transaction():
        other_queue.rows("SELECT FROM pgqueue_queues WHERE name = 'mail' FOR UPDATE", {})
        assert worker.apply() == ["reports"]
    assert worker.apply() == ["mail"]
    assert worker.apply() == []


def test_worker_with_old_code_does_not_undo_what_a_new_one_declares(queue, declare):
    """As in a deploy, where both run for a while."""
    declare(mail={"max_running": 2}, imports={"max_running": 9})
    old = DeclaredLimits(queue)
    assert old.apply() == ["imports", "mail"]
    declare(mail={"max_running": 3}, reports={"max_running": 1})
    assert apply_limits(queue) == ["imports", "mail", "reports"]
    declare(mail={"max_running": 2}, imports={"max_running": 9})
    assert old.apply() == []
    assert [limits_of(name).max_running for name in ("mail", "imports", "reports")] == [3, None, 1]


def test_queue_that_the_code_does_not_declare_has_nothing_to_restore(db, declare):
    declare(mail=FAST)
    queues.limit("imports", max_running=2)
    with pytest.raises(InvalidLimit, match=r"PGQUEUE\['QUEUES'\] does not declare the queue 'imports'"):
        queues.restore("imports")
    with pytest.raises(InvalidLimit, match="by is a text without NUL or a user"):
        queues.restore("mail", by=7)


def test_no_statement_is_sent_where_nothing_is_declared(queue, declare, monkeypatch):
    declare()
    monkeypatch.setattr(queue, "rows", None)
    assert apply_limits(queue) == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (5, "A queue is declared by a dict of max_running, rate, burst, start_within and max_backlog, not 5"),
        ({"max_runing": 4}, "A queue has no 'max_runing'. It may have max_running, rate, burst, start_within"),
        ({"max_running": 0}, "max_running is 1 or more"),
        ({"rate": "fast"}, "A rate is a whole number"),
        ({"burst": 3}, "A burst belongs to a rate, and there is none"),
        ({"max_backlog": 0}, "max_backlog is a whole number from 1 to 1000000, not 0"),
        ({"start_within": 0}, "start_within is a number of seconds above 0"),
    ],
)
def test_declaration_that_cannot_work_is_refused(options, message):
    with pytest.raises(InvalidLimit, match=message):
        DeclaredQueue.of("mail", options)
    with pytest.raises(InvalidLimit, match="1 to 128 characters"):
        DeclaredQueue.of("", {})


def test_time_within_which_jobs_are_to_start_is_seconds(declare):
    declare(mail={"start_within": dt.timedelta(minutes=1)}, reports={"start_within": 30}, imports={})
    assert [start_within(name) for name in ("mail", "reports", "imports", "other")] == [60.0, 30.0, None, None]


def test_names_that_are_not_declared_are_found_with_the_nearest(declare):
    assert undeclared(["emials"]) == {}
    declare(emails={}, reports={})
    assert undeclared(["emails", "emials", "zzz", "default"]) == {"emials": "emails", "zzz": ""}


def test_database_keeps_the_user_of_limits_set_by_hand_alone(sql, db):
    with pytest.raises(IntegrityError, match="pgqueue_queues_limited_by"):
        sql("INSERT INTO pgqueue_queues (name, limited_by) VALUES ('mail', 'ann')")
