"""manage.py pgqueue_workflows: workflows are listed, shown, killed, retried, and their stages skipped and sealed."""

import json
import re
from io import StringIO

import pytest
from django.core.management import CommandError, call_command
from django.db import connections

from django_pgqueue import batch, chain, group
from django_pgqueue.management.commands import pgqueue_workflows as module
from django_pgqueue.models import Job, Workflow
from django_pgqueue.testing import run_jobs
from django_pgqueue.workflows import get
from tests.app.models import Mark
from tests.app.tasks import die_unless, record

pytestmark = pytest.mark.django_db


def run(*words) -> str:
    out = StringIO()
    call_command("pgqueue_workflows", *map(str, words), stdout=out)
    return out.getvalue()


@pytest.mark.parametrize("number", [-2, 0, 10_001])
def test_limit_that_cannot_be_is_refused(number):
    with pytest.raises(CommandError, match=f"1 to 10000 are listed at once, not {number}"):
        run("list", f"--limit={number}")


def listed(*words) -> list[list[str]]:
    return [line.split() for line in run("list", *words).splitlines()[1:]]


def ids_in(text: str) -> list[int]:
    return [int(line.split()[0]) for line in text.splitlines() if line[:1].isdigit()]


def refused(*words) -> str:
    with pytest.raises(CommandError) as raised:
        run(*words)
    return str(raised.value)


@pytest.fixture
def stuck():
    """A workflow with a dead member, and one that has not begun to run."""
    handle = chain([die_unless.bind("cause"), record.bind("a")], record.bind("b"), name="import\x1b[1m").enqueue()
    run_jobs(errors="collect")
    return handle


def test_list_has_the_latest_first(stuck):
    ended = group([], name="empty").enqueue()
    head, first, second = run("list").splitlines()
    assert head.split() == ["id", "status", "begun", "ended", "name", "open", "stages"]
    assert first.split()[:2] == [str(ended.id), "succeeded"]
    assert second.split()[:2] == [str(stuck.id), "stuck"]
    assert "import?[1m  die_unless 1/2, 1 dead" in second
    assert listed("--status", "open", "--status", "failed") == [second.split()]
    assert listed("--name", "empty") == [first.split()]
    assert run("list", "--name", "nothing") == "No workflow matches.\n"
    assert listed("--limit", 1) == [first.split(), ["There", "are", "more:", "--before", str(ended.id)]]
    assert listed("--before", ended.id) == [second.split()]
    told = json.loads(run("list", "--limit", 1, "--json"))
    assert (told["before"], [one["id"] for one in told["workflows"]]) == (ended.id, [ended.id])


def test_list_leaves_out_a_workflow_that_is_removed_meanwhile(stuck, monkeypatch):
    ended = group([], name="empty").enqueue()

    def get_late(workflow_id, **options):
        Workflow.objects.filter(pk=ended.id).delete()
        return get(workflow_id, **options)

    monkeypatch.setattr(module, "get", get_late)
    assert ids_in(run("list")) == [stuck.id]


def test_show_has_the_stages(stuck):
    text = run("show", stuck.id)
    assert "die_unless  open     1/2   0     1     -" in text
    assert "record      blocked  0/1   1     0     succeeded: die_unless" in text
    assert f"pgqueue_workflows retry {stuck.id}" in text
    told = json.loads(run("show", stuck.id, "--json"))
    assert (told["is_stuck"], told["stages"][0]["dead"], told["stages"][1]["after"]) == (True, 1, ["die_unless"])
    assert f"There is no workflow {stuck.id + 1}" in refused("show", stuck.id + 1)


def test_show_names_the_way_out_where_a_child_has_failed():
    handle = chain(record.bind("a"), record.bind("b")).enqueue()
    [stage, _] = handle.state().stages
    Job.objects.filter(stage_id=stage.id).delete()
    child = group([record.bind("c")]).enqueue()
    Workflow.objects.filter(pk=child.id).update(parent_stage_id=stage.id)
    child.kill()
    assert f"Go on without it: pgqueue_workflows skip {handle.id} record\n" in run("show", handle.id)
    [told, _] = json.loads(run("show", handle.id, "--json"))["stages"]
    assert (told["is_stuck"], told["dead"]) == (True, 0)


def test_retry_lets_it_go_on(stuck):
    Mark.objects.create(job_id=0, attempt=0, pid=0, label="cause")
    assert (
        run("retry", stuck.id, "--stage", "die_unless", "--by", "ann") == f"{stuck.id}: 1 dead members are retried.\n"
    )
    run_jobs()
    assert stuck.status() == "succeeded"
    assert "No effect" in refused("retry", stuck.id)


def test_kill_ends_it(stuck):
    assert json.loads(run("kill", stuck.id, "--json", "--by", "ann")) == [{"id": stuck.id, "result": True}]
    assert (stuck.state().status, stuck.state().ended_by) == ("killed", "ann")
    assert f"No effect on {stuck.id}" in refused("kill", stuck.id)
    assert "There is no workflow" in refused("kill", stuck.id, 10**9)


def test_workflow_that_is_named_twice_is_killed_once(stuck):
    assert run("kill", stuck.id, stuck.id) == f"{stuck.id}: killed.\n"


def test_child_that_is_killed_with_its_parent_is_done(stuck):
    child = group([record.bind("c")]).enqueue()
    Workflow.objects.filter(pk=child.id).update(parent_stage_id=stuck.state().stages[0].id)
    assert run("kill", stuck.id, child.id) == f"{stuck.id}: killed.\n{child.id}: killed.\n"
    assert f"No effect on {stuck.id}, {child.id}." in refused("kill", stuck.id, child.id)


def test_kill_of_a_stage(stuck):
    assert run("kill", stuck.id, "--stage", "record", "--by", "ann") == f"{stuck.id}: killed record.\n"
    assert "record      skipped (killed by ann)" in run("show", stuck.id)
    assert "No effect" in refused("kill", stuck.id, "--stage", "record")
    assert "has no stage 'nowhere'" in refused("kill", stuck.id, "--stage", "nowhere")


def test_rerun():
    handle = chain(record.bind("a"), record.bind("b"), keep_calls=True).enqueue()
    run_jobs()
    assert run("rerun", handle.id, "record 2", "--by", "ann") == f"{handle.id}: 1 members run again.\n"
    assert "record 2  open (run again by ann)" in run("show", handle.id)
    assert "'record' of workflow" not in refused("rerun", handle.id, "record 2")
    run_jobs()
    assert json.loads(run("rerun", handle.id, "record", "record 2", "--json")) == [{"id": handle.id, "result": 2}]
    assert "has no stage 'nowhere'" in refused("rerun", handle.id, "nowhere")


def test_skip_and_seal(stuck):
    assert run("skip", stuck.id, "die_unless") == f"{stuck.id}: skipped die_unless.\n"
    assert re.search(r"die_unless +skipped +-/2 ", run("show", stuck.id))
    assert "No effect" in refused("skip", stuck.id, "die_unless")
    assert "has no stage 'nowhere'" in refused("skip", stuck.id, "nowhere")
    handle = batch([], sealed=False).enqueue()
    assert "open (not sealed)" in run("show", handle.id)
    assert run("seal", handle.id, "members") == f"{handle.id}: sealed members.\n"
    assert handle.status() == "succeeded"


@pytest.mark.django_db(transaction=True, databases=["default", "other"])
def test_ids_name_the_database_of_their_workflows(shard):
    handle = batch([record.using(database=shard).bind("a")], name="there", database=shard).enqueue()
    assert "there" in run("show", handle.id)
    assert run("kill", handle.id) == f"{handle.id}: killed.\n"
    here = batch([record.bind("a")]).enqueue()
    assert "The workflows are on 'other' and 'default'" in refused("kill", handle.id, here.id)


@pytest.mark.django_db(transaction=True, databases=["default", "other"])
def test_list_has_those_of_each_database(shard):
    here = batch([record.bind("a")]).enqueue()
    there = [
        batch([record.using(database=shard).bind("a")], name="there", database=shard).enqueue().id for _ in range(3)
    ]
    one, other = run("list").split("\n\nOn other:\n\n")
    assert one.startswith("On default:\n\n")
    assert ids_in(one) == [here.id]
    assert ids_in(other) == there[::-1]
    assert "No workflow matches." in run("list", "--name", "there")
    *_, last = run("list", "--limit", 2).splitlines()
    assert last == f"There are more: --before {there[1]}"
    assert ids_in(run("list", "--before", there[1])) == there[:1]
    told = json.loads(run("list", "--limit", 2, "--json"))
    assert [(page["database"], len(page["workflows"]), page["before"]) for page in told] == [
        ("default", 1, None),
        (shard, 2, there[1]),
    ]
    [last] = json.loads(run("list", "--before", there[1], "--json"))
    assert (last["database"], len(last["workflows"]), last["before"]) == (shard, 1, None)


@pytest.mark.django_db(transaction=True, databases=["default", "other"])
def test_database_that_is_away_keeps_no_other_from_being_listed(far, other_server):
    here = batch([record.bind("a")], database="default").enqueue()
    other_server.stop()
    connections[far].close()
    out = StringIO()
    with pytest.raises(CommandError, match="Not on all databases of the queue: The database of alias") as raised:
        call_command("pgqueue_workflows", "list", stdout=out)
    assert raised.value.returncode == 2
    assert ids_in(out.getvalue()) == [here.id]
