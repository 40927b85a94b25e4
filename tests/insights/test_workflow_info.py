"""The numbers of members of workflows, and the reasons why one does not go on."""

import datetime as dt

import pytest
from django.utils import timezone

import tests.app.tasks as app
from django_pgqueue import batch, group, queues, workflow
from django_pgqueue.admin.workflows import IS_STUCK
from django_pgqueue.db.connections import CallerConnection
from django_pgqueue.db.queries import statement
from django_pgqueue.insights import workflow_info
from django_pgqueue.insights.formatting import text_of
from django_pgqueue.insights.workflow_info import alarms, has_dead_members, line_of, lines_of, why
from django_pgqueue.maintenance.stages import fail_late
from django_pgqueue.models import Job, Stage, Workflow
from django_pgqueue.testing import run_jobs
from tests.support.plans import explain
from tests.support.worker_rows import worker
from tests.support.workflows import die, finish, look, plain, stage_of, stuck

pytestmark = pytest.mark.django_db


def line(handle, **options):
    return line_of(Workflow.objects.get(pk=handle.id), "default", **{"most_stages": 100, **options})


def reasons(handle) -> list[str]:
    return [text_of(sentence) for sentence in why(line(handle), "default")]


def numbers(handle) -> dict[str, tuple[int, int, int, int]]:
    return {one.name: (one.done, one.members, one.live, one.dead) for one in line(handle).stages}


# Numbers


def test_members_are_counted_where_they_are():
    handle = batch([app.noop.bind()] * 10, then=app.noop.bind(), sealed=False).enqueue()
    handle.add_many([app.noop.bind()] * 5, stage="members")
    finish(handle, "members", 7)
    die(handle, "members", 2)
    assert numbers(handle) == {"members": (7, 15, 6, 2), "then": (0, 1, 1, 0)}
    members, then = line(handle).stages
    assert (members.done_text, members.words) == ("7 of 15", "members: 7 of 15 done, 2 dead")
    assert then.words == "then: 0 of 1 done"
    handle.skip("members")
    members = line(handle).stages[0]
    assert (members.done_text, members.short_text) == ("- of 15", "-/15")


def test_counting_stops_and_the_number_of_those_done_is_then_a_lower_bound(monkeypatch):
    monkeypatch.setattr(workflow_info, "CAP", 3)
    handle = group([app.noop.bind()] * 20).enqueue()
    finish(handle, "members", 12)
    [stage] = line(handle).stages
    assert stage.is_capped
    assert (stage.live, stage.live_text, stage.done, stage.done_text) == (4, "3+", 12, "12+ of 20")
    assert stage.short_text == "12+/20"
    assert stage.words == "members: 12+ of 20 done"


def test_stages_that_are_open_share_what_may_be_counted(monkeypatch):
    monkeypatch.setattr(workflow_info, "COUNTED", 40)
    monkeypatch.setattr(workflow_info, "LEAST_CAP", 2)
    with workflow("w") as flow:
        for number in range(10):
            flow.add_many([app.noop.bind()] * 6, name=f"s{number}")
    assert {one.live_text for one in line(flow.handle).stages} == {"4+"}


def test_what_waits_for_what_comes_with_the_outcome():
    handle = plain("a", "b", "c")
    finish(handle, "a", 1)
    look(handle, "a")
    first, second, third = line(handle).stages
    assert [one.status for one in (first, second, third)] == ["ended", "open", "blocked"]
    assert first.edges == ((second.id, "succeeded"),)
    assert second.edges == ((third.id, ""),)
    assert line(handle).names_before(third) == ["b"]


def test_number_of_queries_is_that_of_one(django_assert_num_queries):
    for _ in range(5):
        stuck()
    rows = list(Workflow.objects.order_by("pk"))
    with django_assert_num_queries(3):
        found = lines_of(rows, "default", most_stages=1)
    assert [one.row.pk for one in found] == [row.pk for row in rows]
    assert all(one.has_more and len(one.stages) == 1 and one.is_stuck for one in found)
    with django_assert_num_queries(0):
        assert lines_of([], "default", most_stages=1) == []


def of_dead(on_death: str = "wait"):
    handle = plain("a", "b", on_death=on_death)
    die(handle, "a")
    return handle


def with_live():
    handle = batch([app.noop.bind()] * 2).enqueue()
    die(handle, "members")
    return handle


def with_child(*statuses: str):
    """Begin a workflow whose member has succeeded, and has begun others: now of these statuses."""
    handle = plain("a", "b")
    finish(handle, "a", 1)
    ended_at = timezone.now()
    for status in statuses:
        ended = None if status == "open" else ended_at
        parent = stage_of(handle, "a").pk
        Workflow.objects.create(name="child", parent_stage_id=parent, status=status, ended_at=ended)
    return handle


def far_behind():
    """Begin a workflow of which the last stage is stuck, of more than a list shows."""
    with workflow("w") as flow:
        for number in range(12):
            flow.add(app.noop.bind(), name=f"s{number}")
    die(flow.handle, "s11")
    return flow.handle


def skipped():
    handle = of_dead()
    handle.skip("a")
    return handle


def killed():
    handle = of_dead()
    handle.kill()
    return handle


@pytest.mark.parametrize(
    ("begin", "expected"),
    [
        (of_dead, True),
        (far_behind, True),
        (lambda: with_child("failed"), True),
        (lambda: with_child("killed", "succeeded"), True),
        (lambda: plain("a"), False),
        (lambda: of_dead("stop"), False),
        (lambda: of_dead("go_on"), False),
        (with_live, False),
        (lambda: with_child("failed", "open"), False),
        (lambda: with_child("succeeded"), False),
        (skipped, False),
        (killed, False),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_stuck_is_what_waits_for_people_and_means_the_same_everywhere(begin, expected):
    handle = begin()
    problems = CallerConnection().rows(statement("workflow_problems"), {})
    assert {
        "state": handle.state().is_stuck,
        "line": line(handle, most_stages=8).is_stuck,
        "alarm": alarms("default").stuck == 1,
        "doctor": ("stuck", handle.id) in [(kind, found) for kind, found, _ in problems],
        "list": Workflow.objects.filter(IS_STUCK, pk=handle.id).exists(),
    } == dict.fromkeys(("state", "line", "alarm", "doctor", "list"), expected)


def test_dead_members_of_stages_that_are_not_shown_count():
    handle = plain("a", "b")
    Job.objects.filter(stage_id=stage_of(handle, "b").pk).update(status="queued")
    assert not has_dead_members(line(handle, most_stages=1), "default")
    die(handle, "b")
    assert has_dead_members(line(handle, most_stages=1), "default")
    assert has_dead_members(line(handle), "default")


@pytest.mark.parametrize("end", ["skip", "kill stage", "kill"])
def test_dead_members_that_are_not_retried_with_the_workflow_do_not_count(end):
    handle = stuck()
    assert has_dead_members(line(handle), "default")
    if end == "skip":
        handle.skip("members")
    else:
        handle.kill(stage="members" if end == "kill stage" else None)
    assert handle.state().stage("members").dead
    assert not has_dead_members(line(handle), "default")
    assert not has_dead_members(line(handle, most_stages=1), "default")


def test_alarms_count_what_is_stuck_and_what_is_overdue():
    assert alarms("default") == (0, 0)
    stuck()
    stuck(on_death="go_on")
    Workflow.objects.filter(pk=plain("a").id).update(deadline_at=timezone.now() - dt.timedelta(hours=1))
    assert alarms("default") == (1, 1)


# Why


def test_open_workflow_says_what_it_waits_for():
    handle = batch([app.noop.bind()] * 100, then=app.noop.bind()).enqueue()
    finish(handle, "members", 96)
    die(handle, "members")
    assert reasons(handle) == [
        "Waits for members: 3 of 100 left, 1 dead.",
        "It stays open until its dead member is retried and succeeds, or is purged, or the stage is skipped.",
    ]
    handle = plain("a", on_death="go_on")
    assert reasons(handle)[0] == "Waits for a: 1 of 1 left."


def test_member_that_waits_says_why():
    queues.pause("default", by="eve", reason="disk full")
    said = " ".join(reasons(plain("a")))
    assert "Of a, job" in said
    assert "is paused by eve" in said


def test_sensitive_argument_of_the_next_member_is_not_said():
    with workflow("w") as flow:
        flow.add(app.log_in.bind("ann", password="hunter22"), name="a")
    Job.objects.update(status="limited", concurrency_key="of hunter22", concurrency_limit=1)
    said = " ".join(reasons(flow.handle))
    assert "concurrency key" in said
    assert "hunter22" not in said


def test_stage_that_was_killed_says_by_whom_and_what_it_waits_for():
    handle = plain("a")
    Job.objects.update(status="running", lease_token=1, worker_id=worker().pk)
    handle.kill(stage="a", by="eve")
    said = "a was killed by eve: it is over when its last members have ended."
    assert reasons(handle) == ["Waits for a: 1 of 1 left.", said]
    Job.objects.all().delete()
    look(handle, "a")
    assert reasons(handle)[0].endswith("eve has killed a.")


def test_where_a_member_runs_no_other_one_is_explained():
    handle = plain("a")
    Job.objects.update(status="running", lease_token=1, worker_id=worker().pk)
    assert reasons(handle) == ["Waits for a: 1 of 1 left."]


def test_unsealed_stage_waits_for_more():
    handle = batch([app.noop.bind()], sealed=False).enqueue()
    finish(handle, "members", 1)
    assert reasons(handle) == [
        "Waits for members: no member is left, but it is not sealed. Add more members, or seal it."
    ]


def test_stage_that_is_over_needs_a_worker():
    handle = plain("a", "b")
    finish(handle, "a", 1)
    assert reasons(handle) == [
        "Stage a is over: a worker opens the next ones within a second.",
        "No worker is alive. Start one: manage.py pgqueue_worker",
    ]
    worker()
    assert len(reasons(handle)) == 1


def test_stage_waits_for_workflows_of_its_members():
    handle = plain("a", "b")
    child = plain("x", name="child")
    Workflow.objects.filter(pk=child.id).update(parent_stage_id=stage_of(handle, "a").pk)
    finish(handle, "a", 1)
    assert reasons(handle) == [f"Waits for a: workflow child #{child.id} of a member is open."]
    child.kill()
    assert reasons(handle) == [
        f"Waits for a: workflow child #{child.id} of a member has failed. Skip the stage, or kill this workflow."
    ]
    assert line(handle).is_stuck
    assert alarms("default").stuck == 1


def test_many_open_stages_are_not_all_named():
    with workflow("w") as flow:
        for number in range(8):
            flow.add(app.noop.bind(), name=f"s{number}")
    assert "3 more stages are open." in reasons(flow.handle)


def test_deadline_says_what_happens_then():
    handle = plain("a", deadline=3600)
    assert "it fails, and its members are killed" in reasons(handle)[-1]
    Workflow.objects.update(deadline_at=timezone.now() - dt.timedelta(hours=1))
    assert "Its deadline was" in reasons(handle)[-1]
    assert line(handle).is_overdue(timezone.now())


def test_workflow_that_has_ended_says_how():
    handle = plain("a")
    finish(handle, "a", 1)
    look(handle, "a")
    assert reasons(handle)[0].startswith("It succeeded after")
    handle = plain("a")
    handle.kill(by="eve")
    assert reasons(handle)[0].startswith("It was killed by eve after")
    handle = stuck(on_death="stop")
    assert "members died" in reasons(handle)[0]
    assert reasons(handle)[1] == "Dead members are left in: members (1)."
    Workflow.objects.filter(pk=handle.id).update(deadline_at=timezone.now() - dt.timedelta(hours=1))
    assert "its deadline had passed" in reasons(handle)[0]


def test_child_that_has_ended_by_the_deadline_of_its_parent_says_so():
    parent, child = plain("a", name="parent", deadline=3600), plain("x", name="child")
    Workflow.objects.filter(pk=child.id).update(parent_stage_id=stage_of(parent, "a").pk)
    Workflow.objects.filter(pk=parent.id).update(deadline_at=timezone.now() - dt.timedelta(hours=1))
    assert fail_late(CallerConnection()) == 1
    run_jobs()
    assert f"with workflow parent #{parent.id}." in reasons(child)[0]


@pytest.mark.parametrize("end", ["kill", "die"])
def test_workflow_that_failed_by_a_child_says_so(end):
    handle, child = plain("a", on_death="stop"), plain("x", name="child", on_death="stop")
    Workflow.objects.filter(pk=child.id).update(parent_stage_id=stage_of(handle, "a").pk)
    finish(handle, "a", 1)
    if end == "die":
        die(child, "x")
        look(child, "x")
        assert "members died" in reasons(child)[0]
    else:
        child.kill()
    look(handle, "a")
    assert f"workflow child #{child.id} of a member has failed" in reasons(handle)[0]


def test_what_is_left_of_one_that_has_ended_is_said():
    handle = plain("a", "b")
    Workflow.objects.update(status="failed", ended_at=timezone.now())
    Stage.objects.update(status="skipped", ended_at=timezone.now())
    said = "1 of its members in a still live: they are removed, or killed, in the background."
    assert said in reasons(handle)


# Plans


@pytest.mark.parametrize(
    ("name", "parameters", "indexes"),
    [
        (
            "stages_of_workflows",
            {"workflow_ids": [1, 2], "limit": 9, "edges": 9},
            {"pgqueue_stages_pkey", "pgqueue_stage_edges_once"},
        ),
        (
            "stage_counts",
            {"stage_ids": [65536, 65538], "have_begun": [True, False], "limit": 101},
            {"pgqueue_jobs_stage", "pgqueue_dead_jobs_stage", "pgqueue_stage_additions_stage"},
        ),
    ],
)
def test_workflows_are_found_by_their_indexes(queue, sql, name, parameters, indexes):
    sql(
        "INSERT INTO pgqueue_jobs (task, stage_id) SELECT 'shop.tasks.a', 65536 + 2 * (n % 500) "
        "FROM generate_series(1, 5000) AS n"
    )
    sql("INSERT INTO pgqueue_stages (id, name) SELECT 65536 * n, 'a' FROM generate_series(1, 5000) AS n")
    sql("ANALYZE")
    scans = [node for node in explain(queue, statement(name), parameters) if "Relation Name" in node]
    assert {
        node.get("Index Name") for node in scans if node["Relation Name"] in {"pgqueue_jobs", "pgqueue_stages"}
    } <= indexes
