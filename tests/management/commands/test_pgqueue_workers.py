"""manage.py pgqueue_workers: worker processes are listed, and asked to stop."""

import json
from io import StringIO

import pytest
from django.core.management import CommandError, call_command
from django.db import connections
from django.utils import timezone

import tests.app.tasks as app
from django_pgqueue.jobs.claim import claim
from django_pgqueue.models import Worker
from tests.support.worker_rows import ALIVE, worker

pytestmark = pytest.mark.django_db(transaction=True)


def run(*words) -> str:
    out = StringIO()
    call_command("pgqueue_workers", *map(str, words), stdout=out)
    return out.getvalue()


def refused(*words) -> str:
    with pytest.raises(CommandError) as raised:
        run(*words)
    return str(raised.value)


def asked() -> dict[int, str]:
    return dict(Worker.objects.exclude(stop_requested_at=None).values_list("pk", "stop_requested_by"))


def test_list_tells_how_processes_stand(queue):
    assert run("list") == "There is no worker.\n"
    busy = worker(host="a", concurrency=2, queues=["mail", "default"])
    worker(host="b", name="blue")
    worker(host="c", stop_requested_at=timezone.now(), stop_requested_by="ann")
    worker(host="d", lease_until=timezone.now() - ALIVE)
    app.noop.enqueue_many([()] * 3)
    claim(queue, "default", limit=3, worker_id=busy.pk)
    head, *rows = run("list").splitlines()
    assert head.split() == ["id", "process", "name", "state", "slots", "queues", "up", "heard", "version"]
    assert rows[0].split()[:2] == [str(busy.pk), "a"]
    assert "busy" in rows[0]
    assert "2 of 2" in rows[0]
    assert "mail, default" in rows[0]
    assert "blue  idle" in rows[1]
    assert "stopping (asked by ann)" in rows[2]
    assert "silent" in rows[3]


def test_list_as_json_tells_the_same(queue):
    row = worker(concurrency=1, queues=["mail"], name="blue")
    app.noop.using(queue="mail").enqueue_many([()] * 3)
    claim(queue, "mail", limit=3, worker_id=row.pk)
    [told] = json.loads(run("list", "--json"))
    assert (told["id"], told["host"], told["pid"], told["name"]) == (row.pk, "shop-1", 4711, "blue")
    assert (told["state"], told["concurrency"], told["busy"], told["fetched_ahead"]) == ("busy", 1, 1, 2)
    assert (told["queues"], told["stop_requested_at"], told["memory_bytes"]) == (["mail"], None, None)


def test_list_of_a_queue_has_those_that_serve_it():
    mail, every, others = worker(queues=["mail*"]), worker(), worker(queues=["-mail"])
    ids = [told["id"] for told in json.loads(run("list", "--queue", "mail", "--json"))]
    assert sorted(ids) == [mail.pk, every.pk]
    ids = [told["id"] for told in json.loads(run("list", "--queue", "mail,reports", "--json"))]
    assert sorted(ids) == [mail.pk, every.pk, others.pk]


def test_stop_asks_all_processes_of_the_command():
    one, two = worker(), worker()
    other = worker(supervisor_id=2)
    assert run("stop", one.pk, "--by", "eve") == f"Asked to stop: {one.pk}, {two.pk}.\n"
    assert asked() == {one.pk: "eve", two.pk: "eve"}
    assert refused("stop", one.pk) == (
        f"Left alone: {one.pk}. They were asked before, or another session is just changing them."
    )
    assert refused("stop", other.pk + 1) == (f"There is no worker {other.pk + 1}. See: manage.py pgqueue_workers list")
    assert other.pk not in asked()


def test_quiet_and_resume_ask_the_commands_and_the_list_says_so():
    one, two, other = worker(), worker(), worker(supervisor_id=2)
    assert run("quiet", one.pk, "--by", "eve") == f"Asked to be quiet: {one.pk}, {two.pk}.\n"
    assert run("list").count("quiet (asked by eve)") == 2
    [told, _, _] = json.loads(run("list", "--json"))
    assert (told["state"], told["quiet_by"], bool(told["quiet_since"])) == ("quiet", "eve", True)
    assert "Left alone" in refused("quiet", one.pk)
    assert run("quiet", "--all") == f"Asked to be quiet: {other.pk}.\n"
    assert run("resume", "--all") == f"Asked to claim jobs again: {one.pk}, {two.pk}, {other.pk}.\n"
    assert run("resume", "--all") == "No worker was asked to claim jobs again.\n"
    assert not asked()


def test_quiet_workers_can_be_stopped_with_all():
    one = worker(quiet_since=timezone.now())
    run("stop", "--all")
    assert set(asked()) == {one.pk}


def test_stop_as_json_tells_the_processes_that_were_asked():
    one, two, _other = worker(), worker(), worker(supervisor_id=2)
    told = json.loads(run("stop", one.pk, "--by", "eve", "--json"))
    assert [(state["id"], state["state"], state["stop_requested_by"]) for state in told] == [
        (one.pk, "stopping", "eve"),
        (two.pk, "stopping", "eve"),
    ]


def test_stop_of_a_queue_asks_those_that_serve_it():
    mail, reports = worker(queues=["mail"]), worker(queues=["reports"], supervisor_id=2)
    run("stop", "--queue", "mail")
    assert set(asked()) == {mail.pk}
    run("stop", "--all")
    assert set(asked()) == {mail.pk, reports.pk}
    assert run("stop", "--all") == "No worker was asked to stop.\n"


@pytest.mark.parametrize("words", [(), (1, "--all"), ("--queue", "a", "--all")])
def test_workers_to_stop_are_chosen_in_one_way(words):
    worker()
    assert "Say which workers, in one way" in refused("stop", *words)
    assert not asked()


@pytest.mark.django_db(transaction=True, databases=["default", "other"])
def test_workers_of_all_databases_are_listed_and_asked_each_under_its_own(shard):
    here = worker(host="a")
    there = Worker.objects.using(shard).create(**{name: value for name, value in values(here).items() if name != "id"})
    assert [line for line in run("list").splitlines() if line.startswith("On ")] == ["On default:", "On other:"]
    assert run("list", "--database", shard).splitlines()[1].split()[0] == str(there.pk)
    told = json.loads(run("list", "--json"))
    assert [(one["database"], one["id"]) for one in told] == [("default", here.pk), (shard, there.pk)]
    assert "Say --database with ids of workers: each of default, other" in refused("stop", here.pk)
    assert run("quiet", there.pk, "--database", shard) == f"Asked to be quiet: {there.pk}.\n"
    assert run("stop", "--all", "--by", "eve") == (
        f"On default:\n\nAsked to stop: {here.pk}.\n\nOn other:\n\nAsked to stop: {there.pk}.\n"
    )
    assert asked() == {here.pk: "eve"}
    assert Worker.objects.using(shard).get().stop_requested_by == "eve"


@pytest.mark.django_db(transaction=True, databases=["default", "other"])
def test_database_that_is_away_keeps_no_other_from_being_asked(far, other_server):
    here = worker()
    other_server.stop()
    connections[far].close()
    out = StringIO()
    text = "Not on all databases of the queue: The database of alias 'other' cannot be reached"
    with pytest.raises(CommandError, match=text) as raised:
        call_command("pgqueue_workers", "stop", "--all", stdout=out)
    assert (out.getvalue(), raised.value.returncode) == (f"On default:\n\nAsked to stop: {here.pk}.\n", 2)
    assert set(asked()) == {here.pk}


def values(row: Worker) -> dict[str, object]:
    return {field.attname: getattr(row, field.attname) for field in row._meta.concrete_fields}
