"""pgqueue_jobs try: the task of a job is run here, and nothing of that stays."""

import io
import json
import re
import sys

import pytest
from django.core import mail
from django.core.mail import send_mail
from django.core.management import CommandError, call_command
from django.db import transaction

import tests.app.contract as framework
import tests.app.tasks as app
from django_pgqueue import Discard, current_job
from django_pgqueue.jobs import kill
from django_pgqueue.models import Job
from tests.app.models import Mark
from tests.support.jobs_command import dead, finish, jobs, refused

pytestmark = pytest.mark.django_db(databases=["default", "other", "lite"])

TABLES = "SELECT relname FROM pg_class WHERE relkind IN ('r', 'p') AND relname ~ '^(pgqueue|app)_' ORDER BY 1"


def contents(sql) -> dict[str, str]:
    """Return all rows of the tables of the package and of the test app."""
    return {name: sql(f"SELECT string_agg(t::text, '|' ORDER BY t::text) FROM {name} t") for (name,) in sql(TABLES)}


def sequences(sql) -> list:
    return sql("SELECT sequencename, last_value FROM pg_sequences WHERE sequencename ~ '^(pgqueue|app)_' ORDER BY 1")


def tried(job_id):
    return json.loads(jobs("try", job_id, "--json"))


def failed(job_id) -> str:
    """Try a job whose task raises; return what is printed."""
    out = io.StringIO()
    with pytest.raises(CommandError):
        call_command("pgqueue_jobs", "try", str(job_id), stdout=out)
    return out.getvalue()


# What stays


@pytest.mark.django_db(databases=["default", "other", "lite"], transaction=True)
@pytest.mark.parametrize("state", ["live", "dead", "succeeded"])
def test_no_row_is_written(state, sql):
    make = {"live": lambda: app.record.enqueue("x").id, "dead": lambda: dead()[0], "succeeded": lambda: finish(sql)}
    job_id = make[state]()
    before = contents(sql)
    assert {"pgqueue_jobs", "pgqueue_dead_jobs", "pgqueue_stats", "app_mark"} <= set(before)
    trial = tried(job_id)
    assert (trial["error"], trial["result"]) == ("", None if state == "succeeded" else "recorded x")
    assert contents(sql) == before


@pytest.mark.django_db(databases=["default", "other", "lite"], transaction=True)
def test_what_it_enqueues_is_rolled_back_and_told(sql, registry_of):
    def parent():
        app.record.enqueue("child")
        app.noop.enqueue_many([(), ()])

    job = registry_of(parent).enqueue()
    before = contents(sql)
    trial = tried(job.id)
    assert trial["enqueued"] == {app.record.name: 1, app.noop.name: 2}
    assert trial["hooks"] == []  # wake-ups are none of its own
    assert contents(sql) == before
    assert "jobs not enqueued: 3 (" in jobs("try", job.id)


def test_a_task_that_only_reads_moves_no_sequence(sql):
    job = framework.echo.enqueue(7)
    before = contents(sql), sequences(sql)
    assert "pgqueue_jobs_id_seq" in dict(before[1])
    assert tried(job.id)["result"] == 7
    assert (contents(sql), sequences(sql)) == before


@pytest.mark.django_db(databases=["default", "other", "lite"], transaction=True)
def test_what_it_writes_to_other_databases_is_rolled_back(registry_of):
    def elsewhere():
        Mark.objects.using("other").create(job_id=1)
        with transaction.atomic(durable=True):
            Mark.objects.create(job_id=2)

    assert tried(registry_of(elsewhere).enqueue().id)["error"] == ""
    assert not Mark.objects.using("other").exists()
    assert not Mark.objects.exists()


def test_hooks_are_not_run_but_named(registry_of):
    called = []

    def tell_others():
        called.append(1)

    def hooked():
        transaction.on_commit(tell_others)
        with transaction.atomic():
            transaction.on_commit(tell_others, robust=True)

    job = registry_of(hooked).enqueue()
    assert len(tried(job.id)["hooks"]) == 2
    assert re.search(r"on_commit hooks not run: 2 \(.*tell_others, .*tell_others\)\n", jobs("try", job.id))
    assert called == []


def test_mails_go_nowhere(registry_of, settings):
    def write():
        send_mail("Hello", "Text", "shop@example.com", ["ada@example.com"])

    job = registry_of(write).enqueue()
    before = list(mail.outbox)
    if hasattr(mail, "mailers"):  # from Django 6.1 on
        settings.MAILERS = {"default": {}}
    else:
        settings.EMAIL_BACKEND = "django.core.mail.backends.smtp.EmailBackend"  # no server answers
    assert tried(job.id)["emails"] == 1
    assert mail.outbox == before
    assert "e-mails not sent: 1\n" in jobs("try", job.id)


# How it is run


def test_it_runs_as_the_next_attempt_of_a_live_job_and_the_last_of_one_that_has_ended(registry_of, sql):
    def answer():
        job = current_job()
        return [job.id, job.attempt, job.max_attempts, job.is_trial, dict(job.metadata)]

    task = registry_of(answer, max_attempts=5)
    live = task.using(metadata={"tenant": 7}, max_attempts=4).enqueue().id
    sql("UPDATE pgqueue_jobs SET attempts = 2 WHERE id = %s", live)
    assert tried(live)["result"] == [live, 3, 4, True, {"tenant": 7}]
    sql("UPDATE pgqueue_jobs SET status = 'running', lease_token = 1, lease_until = now() WHERE id = %s", live)
    assert tried(live)["result"][1] == 2
    sql("UPDATE pgqueue_jobs SET status = 'queued', lease_token = 0 WHERE id = %s", live)
    kill([live])
    assert tried(live)["result"][1:3] == [2, 4]


@pytest.mark.parametrize("task", [app.record, app.arecord, app.record_atomic])
def test_plain_async_and_atomic_tasks_run(task):
    trial = tried(task.enqueue("x").id)
    assert trial["result"] == (None if task.atomic else "recorded x")
    assert trial["queries"] == 1
    assert not Mark.objects.exists()


def test_tasks_of_the_framework_run_with_their_context():
    job = framework.tell.enqueue(1, 2)
    assert tried(int(job.id))["result"] == {
        "attempt": 1, "status": "RUNNING", "id": job.id, "args": [1, 2], "worker_ids": ["unknown"],
    }  # fmt: skip
    assert tried(int(framework.aadd.enqueue(1, 2).id))["result"] == 3


def test_progress_is_not_written(registry_of):
    def slow():
        current_job().set_progress(1, 2)
        current_job().update_metadata(seen=True)
        return dict(current_job().metadata)

    job = registry_of(slow).enqueue()
    assert tried(job.id)["result"] == {"seen": True}
    assert Job.objects.get(pk=job.id).progress is None


# What it raises


def test_it_shows_the_traceback_from_the_task_on(sql):
    job_id = app.fail.enqueue("no luck").id
    told = failed(job_id)
    assert f"Tried job {job_id} ({app.fail.name}) as attempt 1 of 3.\nTraceback (most recent call last):\n" in told
    assert "executor.py" not in told
    assert "ValueError: no luck\n" in told
    assert "The task has raised ValueError." in refused("try", job_id)
    assert not Mark.objects.exists()


def test_an_async_task_and_one_that_decides_itself_show_theirs(registry_of):
    def give_up():
        raise Discard("no such order")

    assert "django_pgqueue.exceptions.Discard: no such order" in failed(registry_of(give_up).enqueue().id)
    told = failed(int(framework.afail.enqueue().id))
    assert "asgiref" not in told
    assert "ValueError: no luck" in told


def test_sensitive_values_are_left_out(registry_of):
    def login(password):
        if password == "fails-now":
            raise ValueError(f"wrong: {password}")
        return {"password": password, "ok": True}

    task = registry_of(login)
    assert "wrong: [redacted]" in failed(task.enqueue("fails-now").id)
    assert tried(task.enqueue("hunter22").id)["result"] == {"password": "[redacted]", "ok": True}


def test_a_result_that_cannot_be_kept_is_told_as_such(registry_of):
    def odd():
        return object()

    assert "(not kept: " in tried(registry_of(odd).enqueue().id)["result"]
    assert "ResultRefused" in failed(int(framework.give_back_a_set.enqueue().id))


def test_the_debugger_sees_what_the_task_has_written(monkeypatch, registry_of):
    def half_done():
        mark = Mark.objects.create(job_id=1)
        raise ValueError(mark.pk)

    monkeypatch.setattr(sys, "stdin", io.StringIO("p 'seen', mark.pk, Mark.objects.count()\nq\n"))
    out = io.StringIO()
    monkeypatch.setattr(sys, "stdout", out)
    refused("try", registry_of(half_done).enqueue().id, "--pdb")
    assert re.search(r"\('seen', \d+, 1\)", out.getvalue())
    assert not Mark.objects.exists()


# What cannot be tried


def test_errors_name_the_job_and_the_reason(sql):
    assert "There is no job 4711" in refused("try", 4711)
    gone = Job.objects.create(task="shop.gone")
    assert "No task is called 'shop.gone'" in refused("try", gone.pk)
    odd = Job.objects.create(task=app.record.name)
    sql("UPDATE pgqueue_jobs SET args = ('[1e5000]')::jsonb WHERE id = %s", odd.pk)
    assert f"The arguments of job {odd.pk} are JSON that Python cannot hold." in refused("try", odd.pk)
    sql("UPDATE pgqueue_jobs SET args = '{}' WHERE id = %s", odd.pk)
    assert "args must be a JSON array" in failed(odd.pk)
    held = app.noop.using(unique_key="k").enqueue()
    sql("UPDATE pgqueue_jobs SET status = 'reserved' WHERE id = %s", held.id)
    assert "only its unique key is left of it" in refused("try", held.id)
