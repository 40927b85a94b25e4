"""manage.py pgqueue_queues: queues are listed, paused and limited."""

import json
from io import StringIO

import pytest
from django.core.management import CommandError, call_command
from django.db import connections

import tests.app.tasks as app
from django_pgqueue import queues
from django_pgqueue.insights import overview
from django_pgqueue.jobs.claim import claim
from django_pgqueue.models import Job, Queue

pytestmark = pytest.mark.django_db(transaction=True)


def run(*words) -> str:
    out = StringIO()
    call_command("pgqueue_queues", *words, stdout=out)
    return out.getvalue()


def test_list_tells_how_queues_stand(queue, monkeypatch):
    monkeypatch.setattr(overview, "CAPS", (5,))
    app.noop.enqueue_many([()] * 7)
    claim(queue, "default", limit=1, worker_id=1)
    app.noop.using(queue="mail").enqueue()
    queues.limit("default", max_running=1500, rate="60/m", by="eve")
    queues.pause("mail", by="ann", reason="provider is down")
    app.noop.using(queue="odd\x1b[1m").enqueue()
    head, default, mail, odd = run("list").splitlines()
    assert head.split() == ["queue", "queued", "running", "limited", "limits", "paused"]
    assert default.split(maxsplit=4)[:4] == ["default", "5+", "1", "0"]
    assert "1,500 at once; 60/m, burst 1, by eve since " in default
    assert mail.split(maxsplit=5)[:5] == ["mail", "1", "0", "0", "-"]
    assert mail.split("by ann since ")[1].endswith(": provider is down")
    assert odd.startswith("odd?[1m ")


def test_list_as_json(transactional_db):
    queues.pause("mail", by="ann", reason="x")
    queues.limit("mail", rate=5, by="eve")
    [mail] = json.loads(run("list", "mail", "--json"))
    assert (mail["name"], mail["queued"], mail["is_paused"], mail["paused_by"]) == ("mail", 0, True, "ann")
    assert (mail["limited_at"] is not None, mail["limited_by"]) == (True, "eve")
    assert (mail["rate_limit"], mail["rate_period_seconds"], mail["rate_burst"]) == (5, 1.0, 1)


def test_actions_as_json_tell_how_the_queues_are_now(transactional_db, settings):
    settings.PGQUEUE = {**settings.PGQUEUE, "QUEUES": {"mail": {"max_running": 4}}}
    [mail, other] = json.loads(run("pause", "mail", "other", "--by", "ann", "--json"))
    assert (mail["name"], mail["is_paused"], mail["paused_by"], other["name"]) == ("mail", True, "ann", "other")
    [mail] = json.loads(run("limit", "mail", "--rate", "5/s", "--by", "eve", "--json"))
    assert (mail["is_paused"], mail["rate_limit"], mail["limited_by"]) == (True, 5, "eve")
    [mail] = json.loads(run("restore", "mail", "--json"))
    assert (mail["rate_limit"], mail["max_running"], mail["limited_by"]) == (None, 4, None)
    [mail, new] = json.loads(run("resume", "mail", "new", "--json"))
    assert (mail["is_paused"], mail["paused_by"], new["name"], new["is_paused"]) == (False, None, "new", False)
    listed = json.loads(run("list", "mail", "--json"))[0]
    assert mail.items() <= listed.items()


def test_limits_of_the_code_are_named_and_restored(transactional_db, settings):
    settings.PGQUEUE = {**settings.PGQUEUE, "QUEUES": {"mail": {"max_running": 4}, "reports": {}}}
    assert run("restore", "mail", "reports") == "mail: 4 at once, as before.\nreports: no limit, as before.\n"
    assert "4 at once, from the code" in run("list", "mail")
    run("limit", "mail", "--max-running", "none", "--by", "ann")
    assert "no limit, by ann since " in run("list", "mail")
    assert run("restore", "mail") == "mail: 4 at once.\n"
    with pytest.raises(CommandError, match=r"Nothing was changed.*does not declare the queue 'imports'"):
        run("restore", "mail", "imports")


def test_list_of_nothing(transactional_db):
    assert run("list") == "There are no queues yet.\n"
    with pytest.raises(CommandError, match="No job has been seen on 'mail'"):
        run("list", "mail")


def test_pause_and_resume(transactional_db):
    assert run("pause", "mail", "--reason", "lunch", "--for", "2h", "--by", "ann") == (
        "mail: paused. No job has been seen on it yet.\n"
    )
    row = Queue.objects.get()
    assert (row.paused_by, row.pause_reason, row.resume_at is not None) == ("ann", "lunch", True)
    assert (
        run("pause", "mail", "--until", "2099-05-01T09:00", "--by", "bob")
        == "mail: paused already, and now as you say.\n"
    )
    assert Queue.objects.get().resume_at.year == 2099
    assert run("resume", "mail", "other") == "mail: resumed.\nother: was not paused.\n"
    assert Queue.objects.get().paused_at is None


def test_limits_are_set_and_removed(transactional_db):
    assert run("limit", "a", "b", "--max-running", "3", "--rate", "5/10s", "--burst", "2") == (
        "a: 3 at once; 5/10s, burst 2.\nb: 3 at once; 5/10s, burst 2.\n"
    )
    assert run("limit", "a", "--max-running", "none") == "a: 5/10s, burst 2.\n"
    assert run("limit", "a", "--rate", "none") == "a: no limit.\n"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["limit", "a"], "Say what to limit: --max-running or --rate"),
        (
            ["limit", "a", "--rate", "none", "--burst", "3"],
            "Nothing was changed. A burst belongs",
        ),
        (["limit", "a", "--max-running", "0"], "To let nothing start, pause the queue"),
        (["limit", "a", "--max-running", "few"], "'few' is no limit: write a number, or none"),
        (["limit", "a", "--rate", "fast"], "'fast' is no rate: write it as in 100/s, 60/m or 5/10s, or none"),
        (["limit", "a", "--rate", "5/moon"], "'5/moon' is no rate"),
        (["pause", "x" * 129], "1 to 128 characters"),
        (["pause", "a", "--for", "soon"], "'soon' is no duration"),
        (["pause", "a", "--for", "0s"], "a time from now"),
    ],
)
def test_words_that_cannot_work_change_nothing(transactional_db, words, message):
    with pytest.raises(CommandError) as caught:
        run(*words)
    assert message in str(caught.value)
    assert not Queue.objects.exists()


def numbers() -> dict[str, tuple]:
    found = json.loads(run("list", "--json"))
    return {one["name"]: (one["queued"], one["running"], one["limited"], one["at_least"]) for one in found}


def test_jobs_are_counted_up_to_a_limit(queue, monkeypatch):
    app.noop.enqueue_many([()] * 8)
    claim(queue, "default", limit=3, worker_id=1)
    app.noop.using(queue="mail", limit_key="k").enqueue_many([()] * 4)
    assert Job.objects.filter(status="limited").count() == 4
    for name in ("default", "mail", "none"):
        Queue.objects.create(name=name)
    assert numbers() == {"default": (5, 3, 0, []), "mail": (0, 0, 4, []), "none": (0, 0, 0, [])}
    monkeypatch.setattr(overview, "CAPS", (2,))
    monkeypatch.setattr(overview, "MOST_LOOKED_AT", 3)
    found = numbers()
    assert found["default"] == (2, 3, 0, ["queued", "running", "limited"])
    assert found["mail"] == (0, 0, 3, ["running", "limited"])


@pytest.mark.django_db(transaction=True, databases=["default", "other"])
def test_queue_on_several_databases_is_changed_on_each(far, settings):
    settings.PGQUEUE = settings.PGQUEUE | {"QUEUES": {"spread": {"max_running": 4}}}
    paused = "spread: paused. No job has been seen on it yet."
    assert run("pause", "spread", "--reason", "x") == f"On default:\n\n{paused}\n\nOn other:\n\n{paused}\n"
    assert set(of_each(far).values()) == {(True, None)}
    [here, there] = json.loads(run("limit", "spread", "--max-running", "2", "--json"))
    assert (here["database"], there["database"]) == ("default", far)
    assert {one["max_running"] for one in (here, there)} == {2}
    assert run("resume", "spread", "--database", far) == "spread: resumed.\n"
    assert of_each(far) == {"default": (True, 2), far: (False, 2)}
    run("restore", "spread")
    assert of_each(far) == {"default": (True, 4), far: (False, 4)}
    with pytest.raises(CommandError, match=r"^Nothing was changed\. "):
        run("limit", "spread", "--max-running", "0")
    with pytest.raises(CommandError, match="Say what to limit"):
        run("limit", "spread")


@pytest.mark.django_db(transaction=True, databases=["default", "other"])
def test_name_that_is_refused_lets_no_database_be_changed(far, settings):
    shards = settings.PGQUEUE["SHARDS"]
    settings.PGQUEUE = settings.PGQUEUE | {"SHARDS": shards | {far: shards[far] | {"queues": ["spread", "mail"]}}}
    with pytest.raises(CommandError, match=r"^Nothing was changed\. The name of a queue"):
        run("pause", "mail", "x" * 129)
    assert not Queue.objects.using(far).exists()


def of_each(far: str) -> dict[str, tuple[bool, int | None]]:
    rows = {alias: Queue.objects.using(alias).get(name="spread") for alias in ("default", far)}
    return {alias: (row.paused_at is not None, row.max_running) for alias, row in rows.items()}


@pytest.mark.django_db(transaction=True, databases=["default", "other"])
def test_list_has_the_queues_of_each_database(far):
    Queue.objects.using(far).create(name="there")
    here, there = run("list").split("\n\nOn other:\n\n")
    assert here == "On default:\n\nThere are no queues yet."
    assert there.splitlines()[1].startswith("there ")
    assert [(one["database"], one["name"]) for one in json.loads(run("list", "--json"))] == [(far, "there")]
    assert run("list", "there").startswith("On default:\n\nNone of these queues is here.\n\nOn other:\n")
    with pytest.raises(CommandError, match="No job has been seen on 'nowhere'"):
        run("list", "there", "nowhere")


@pytest.mark.django_db(transaction=True, databases=["default", "other"])
def test_database_that_is_away_keeps_no_other_from_being_paused(far, other_server):
    other_server.stop()
    connections[far].close()
    out = StringIO()
    with pytest.raises(CommandError, match="Not on all databases of the queue: The database of alias") as raised:
        call_command("pgqueue_queues", "pause", "spread", stdout=out)
    assert raised.value.returncode == 2
    assert out.getvalue() == "On default:\n\nspread: paused. No job has been seen on it yet.\n"
    assert Queue.objects.get(name="spread").paused_at
