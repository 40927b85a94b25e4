"""manage.py pgqueue_jobs: jobs are listed and shown, and a yes is asked for where nothing brings them back."""

import datetime as dt
import json
import os
import re
import sys

import pytest

import tests.app.tasks as app
from django_pgqueue.models import DeadJob, Job
from tests.support.jobs_command import Terminal, dead, finish, ids_of, jobs, refused
from tests.support.many import enqueued_ids

pytestmark = pytest.mark.django_db


# List


def test_list_is_a_table_and_pages_go_on_behind_the_last(queue):
    ids = enqueued_ids(app.noop, [()] * 5)
    first = jobs("list", "--limit", 3)
    assert [line.split()[:2] for line in first.splitlines()[1:4]] == [[str(one), "queued"] for one in ids[:3]]
    assert first.endswith(f"There are more: --after {ids[2]}\n")
    rest = jobs("list", "--limit", 2, "--after", ids[2])
    assert len(rest.splitlines()) == 3
    assert "There are more" not in rest
    assert jobs("list", "--queue", "mail") == "No job matches.\n"


def test_list_as_json_tells_the_error_and_no_arguments():
    [job_id] = dead()
    answer = json.loads(jobs("list", "--status", "dead", "--json"))
    [row] = answer["jobs"]
    assert (row["id"], row["status"], row["reason"], row["error"]) == (job_id, "dead", "killed", "killed by eve")
    assert answer["after"] is None
    assert not {"args", "kwargs", "metadata", "result"} & set(row)


def test_list_shows_live_jobs_or_dead_or_succeeded_ones(sql):
    [parked] = dead()
    live, later = app.noop.enqueue().id, app.noop.using(delay=dt.timedelta(hours=1)).enqueue().id
    succeeded = finish(sql)

    def listed(*words):
        return [row["id"] for row in json.loads(jobs("list", "--json", *words))["jobs"]]

    assert listed() == [live, later]
    assert listed("--status", "scheduled") == [later]
    assert listed("--status", "dead") == listed("--reason", "killed") == [parked]
    assert listed("--reason", "lost") == []
    assert listed("--status", "succeeded") == [succeeded]
    assert "Live, dead and succeeded jobs are listed apart" in refused("list", "--status", "dead", "--status", "queued")
    assert "only dead ones have a --reason" in refused("list", "--status", "succeeded", "--reason", "lost")


def test_tags_choose_jobs_that_have_all_of_them():
    first, second = (app.noop.using(tags=tags).enqueue().id for tags in (("import", "shop:7"), ("import",)))
    app.noop.enqueue()
    found = json.loads(jobs("list", "--tag", "import", "--json"))["jobs"]
    assert [(row["id"], row["tags"]) for row in found] == [(first, ["import", "shop:7"]), (second, ["import"])]
    assert "Moved to queue other: 1." in jobs("move", "--tag", "import", "--tag", "shop:7", "--to", "other")
    assert "tags:\n    1: import\n" in jobs("show", second)


def test_names_do_nothing_to_the_terminal():
    Job.objects.create(task="x\x1b[2Jy", queue="a\nb")
    assert "x?[2Jy" in jobs("list")
    assert "a?b" in jobs("list")


# Show


def test_show_tells_why_a_job_is_where_it_is_and_what_to_type():
    def why(job_id):
        return json.loads(jobs("show", job_id, "--json"))["why"]

    assert "Start one: manage.py pgqueue_worker\n" in why(app.noop.enqueue().id)
    later = app.noop.using(delay=dt.timedelta(hours=1)).enqueue().id
    assert f"At once: manage.py pgqueue_jobs run-now {later}\n" in why(later)
    [parked] = dead()
    assert "It was killed by eve." in why(parked)
    assert why(parked).endswith(f"manage.py pgqueue_jobs retry {parked}")
    assert re.search(r"why:\n    It was killed by eve\.\n    It stays here until", jobs("show", parked))


def test_show_tells_what_has_happened_step_by_step(sql):
    shown = jobs("show", finish(sql))
    assert re.search(r"timeline:\n    1: \S+ \S+ Enqueued\n", shown)
    assert re.search(r"\n    3: \S+ \S+ Succeeded, .* after it was enqueued", shown)


def test_show_leaves_out_what_is_sensitive_wherever_it_stands():
    job_id = (
        app.log_in.using(metadata={"token": "sesame-1"}, unique_key="user:open-sesame")
        .enqueue("ann", password="open-sesame")
        .id
    )
    Job.objects.filter(pk=job_id).update(
        errors=[{"kind": "failed", "error": "ValueError", "message": "not open-sesame", "attempt": 1}]
    )
    for words in ((), ("--json",)):
        shown = jobs("show", job_id, *words)
        assert "sesame" not in shown
        assert "ann" in shown
        assert "not [redacted]" in shown
    assert "sesame" not in jobs("list") + jobs("list", "--json")


def test_show_says_that_a_job_is_not_there():
    assert refused("show", 17) == "There is no job 17: it was never there, or is not kept any more."


# Asking


def test_without_a_name_it_is_that_of_the_user(monkeypatch):
    monkeypatch.setenv("LOGNAME", "nightshift")
    first, second = enqueued_ids(app.noop, [(), ()])
    assert jobs("kill", first, first) == "Killed: 1.\n"
    monkeypatch.setattr("getpass.getuser", lambda: {}["no such user"])
    jobs("kill", second)
    names = dict(DeadJob.objects.values_list("pk", "killed_by"))
    assert names == {first: "nightshift", second: f"user {os.getuid()}"}


def test_dry_run_says_that_nothing_matches():
    assert jobs("kill", "--queue", "mail", "--dry-run") == "0 jobs match.\n"


@pytest.mark.parametrize("action", ["kill", "purge"])
def test_what_cannot_be_undone_needs_a_yes_without_a_terminal(action):
    assert refused(action, "--all") == f"No terminal to ask at: add --yes to {action} jobs by a filter."


def test_end_of_input_is_no_yes(monkeypatch):
    app.noop.enqueue()

    def end(_question):
        raise EOFError

    monkeypatch.setattr(sys, "stdin", Terminal())
    monkeypatch.setattr("builtins.input", end)
    assert refused("kill", "--all") == "Nothing was changed."


@pytest.mark.parametrize(("answer", "left"), [("y", 0), ("Yes", 0), ("", 3), ("n", 3)])
def test_on_a_terminal_the_user_is_asked(monkeypatch, answer, left):
    app.noop.enqueue_many([()] * 3)
    asked = []
    monkeypatch.setattr(sys, "stdin", Terminal())
    monkeypatch.setattr("builtins.input", lambda text: asked.append(text) or answer)
    if left:
        assert refused("kill", "--all") == "Nothing was changed."
    else:
        jobs("kill", "--all")
    assert asked == ["Kill 3 jobs? [y/N] "]
    assert Job.objects.count() == left


# By unique key


@pytest.mark.django_db(databases=["default", "other", "lite"])
def test_job_is_chosen_by_its_unique_key():
    keyed = app.record.using(unique_key="price 17").enqueue("x").id
    app.record.enqueue("y")
    assert f"id: {keyed}" in jobs("show", "--unique-key", "price 17")
    assert [row["id"] for row in json.loads(jobs("list", "--unique-key", "price 17", "--json"))["jobs"]] == [keyed]
    assert json.loads(jobs("try", "--unique-key", "price 17", "--json"))["result"] == "recorded x"
    assert "Killed: 1." in jobs("kill", "--unique-key", "price 17", "--yes")
    assert ids_of(DeadJob) == [keyed]
    assert "No live job holds the unique key" in refused("show", "--unique-key", "price 17")
    assert json.loads(jobs("list", "--status", "dead", "--unique-key", "price 17", "--json"))["jobs"][0]["id"] == keyed


def test_one_job_is_chosen_by_id_or_key():
    assert "one of them" in refused("show")
    assert "one of them" in refused("show", 17, "--unique-key", "k")
    assert "have no --unique-key" in refused("list", "--status", "succeeded", "--unique-key", "k")
    assert "have no --unique-key" in refused("purge", "--succeeded", "--unique-key", "k", "--yes")


@pytest.mark.django_db(transaction=True, databases=["default", "other"])
def test_job_is_enqueued_where_its_queue_is(shard, settings):
    settings.PGQUEUE = settings.PGQUEUE | {"SHARDS": {shard: {"number": 1, "queues": ["mail"]}}}
    jobs("enqueue", "tests.app.tasks.noop", "--queue", "mail")
    jobs("enqueue", "tests.app.tasks.noop", "--queue", "mail", "--database", "default")
    assert (Job.objects.using(shard).count(), Job.objects.count()) == (1, 1)
