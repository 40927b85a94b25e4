"""The report says what speaks against flipping the flag."""

from io import StringIO

import pytest
from django.core.management import CommandError, call_command
from django.db import DatabaseError

import tests.app.tasks as app
from django_pgqueue.contrib.cutover import Cutover
from django_pgqueue.contrib.cutover.models import CutoverCall
from tests.support.cutover import report, row_of, work

pytestmark = pytest.mark.django_db(transaction=True)


def test_call_is_missing_until_it_has_arrived_and_ended(other, stage, queue):
    stage("new_leads")
    Cutover(new=app.switched, old=other.delay).enqueue("x")
    assert report() == ([row_of("new_leads", sent=1, old_arrived=0, new_arrived=0, new_succeeded=0)], "")
    missing = "Do not flip yet: 1 missing."
    assert report("--missing-after", "0s")[1] == missing
    other.drain()
    assert report("--missing-after", "0s")[1] == missing
    CutoverCall.objects.update(new_arrived_at=CutoverCall.objects.get().enqueued_at)
    assert report("--missing-after", "0s")[1] == missing
    work(queue)
    assert report("--missing-after", "0s") == ([row_of("new_leads", sent=1)], "")


def test_report_for_people(other, stage, queue):
    out = StringIO()
    call_command("pgqueue_cutover", stdout=out)
    assert out.getvalue() == "No calls yet.\n"
    stage("old_leads")
    Cutover(new=app.switched, old=other.delay).enqueue("x", until=2)
    work(queue)
    other.drain()
    out = StringIO()
    call_command("pgqueue_cutover", app.switched.name, stdout=out)
    head, row = out.getvalue().splitlines()
    assert head.split("  ")[0] == "task"
    assert row.split() == [app.switched.name, "old_leads", "1", "1", "0", "1", "1", "0", "0", "0", "0", "0"]


def test_task_of_which_nothing_is_known_is_no_reason_to_flip(transactional_db):
    with pytest.raises(CommandError, match=r"No call of shop.tasks.resize has gone to both sides"):
        call_command("pgqueue_cutover", "shop.tasks.resize", stdout=StringIO())


def test_exit_code_tells_a_deploy_script(other, stage, transactional_db):
    stage("old_leads")
    Cutover(new=app.switched, old=other.delay).enqueue("x")
    with pytest.raises(CommandError) as problem:
        call_command("pgqueue_cutover", "--missing-after", "0s", stdout=StringIO())
    assert problem.value.returncode == 1


def test_prune_removes_old_calls(other, stage, sql, monkeypatch):
    monkeypatch.setattr("django_pgqueue.contrib.cutover.management.commands.pgqueue_cutover.SLICE", 2)
    stage("old_leads")
    for number in range(6):
        Cutover(new=app.switched, old=other.delay).enqueue(str(number))
    keep = CutoverCall.objects.order_by("enqueued_at").last().pk
    sql("UPDATE pgqueue_cutover_calls SET enqueued_at = now() - interval '8 days' WHERE id <> %s", keep)
    out = StringIO()
    call_command("pgqueue_cutover", "--prune", "7d", stdout=out)
    assert out.getvalue() == "Calls removed: 5.\n"
    assert CutoverCall.objects.get().pk == keep


def test_report_says_when_there_is_no_table(transactional_db, monkeypatch):
    def fail(*_):
        raise DatabaseError('relation "pgqueue_cutover_calls" does not exist\nLINE 1')

    monkeypatch.setattr("django_pgqueue.contrib.cutover.management.commands.pgqueue_cutover.counts", fail)
    with pytest.raises(CommandError, match="does not exist"):
        call_command("pgqueue_cutover")
