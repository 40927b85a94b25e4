"""Actions on jobs by pgqueue_jobs: those named or those that match, slice by slice, and what was skipped."""

import datetime as dt
import io
import json
import signal

import pytest
from django.core.management import CommandError, call_command
from django.db import OperationalError

import tests.app.tasks as app
from django_pgqueue.cli import actions
from django_pgqueue.jobs.actions import ACTIONS, PRIORITY, QUEUE
from django_pgqueue.jobs.claim import claim
from django_pgqueue.jobs.search import Source
from django_pgqueue.models import DeadJob, Job, SucceededJob
from tests.support.jobs_command import Terminal, dead, finish, ids_of, jobs, refused
from tests.support.many import enqueued_ids

pytestmark = pytest.mark.django_db


def test_kill_says_what_became_of_each_job(queue):
    running = app.noop.enqueue().id
    claim(queue, "default", limit=1, worker_id=1)
    waiting = app.noop.enqueue().id
    out = io.StringIO()
    with pytest.raises(CommandError, match=rf"Left alone: 1 \(not here: .* never such a job\), as {waiting + 1000}\."):
        call_command("pgqueue_jobs", "kill", str(waiting), str(running), str(waiting + 1000), by="eve", stdout=out)
    assert out.getvalue() == "Killed: 1. Asked to stop: 1.\n"
    buried = DeadJob.objects.get()
    assert (buried.id, buried.reason, buried.killed_by) == (waiting, "killed", "eve")
    assert (Job.objects.get().id, Job.objects.get().killed_by) == (running, "eve")


@pytest.mark.parametrize("action", ACTIONS, ids=lambda action: f"{action.name} {action.source.name}")
def test_each_action_is_a_subcommand_named_as_in_python(action):
    words = {QUEUE: ["--to", "new"], PRIORITY: [-5], None: []}[action.param]
    succeeded = ["--succeeded"] if action.source is Source.SUCCEEDED else []
    assert jobs(action.name.replace("_", "-"), *words, *succeeded, "--all", "--dry-run") == "0 jobs match.\n"


def test_numbers_are_told_as_json(queue):
    app.noop.enqueue_many([()] * 3)
    claim(queue, "default", limit=1, worker_id=1)
    assert json.loads(jobs("kill", "--all", "--dry-run", "--json")) == {"matching": 3}
    out = io.StringIO()
    with pytest.raises(CommandError, match="Left alone: 1"):
        call_command("pgqueue_jobs", "set-priority", "9", "--all", "--json", stdout=out)
    assert json.loads(out.getvalue()) == {"done": {"prioritized": 2}, "skipped": {"running": 1}}
    assert "With --json nothing is asked: add --yes to kill jobs" in refused("kill", "--all", "--json")
    told = json.loads(jobs("kill", "--all", "--json", "--yes"))
    assert told == {"done": {"killed": 2, "asked": 1}, "skipped": {}}


@pytest.mark.parametrize("action", ["retry"])
def test_retry_by_filter(action):
    mail, other = dead(queue="mail"), dead()
    Job.objects.all().delete()
    assert jobs(action, "--queue", "mail", "--reason", "killed", "--error", "killed by eve") == "Retried: 1.\n"
    assert (ids_of(Job), ids_of(DeadJob)) == (mail, other)
    assert jobs(action, "--reason", "lost") == "Nothing was changed.\n"


def test_run_now_takes_scheduled_jobs_only():
    ready, later = app.noop.enqueue().id, app.noop.using(delay=dt.timedelta(hours=1)).enqueue().id
    assert jobs("run-now", "--all") == "Made due at once: 1.\n"
    assert set(Job.objects.values_list("status", flat=True)) == {"queued"}
    assert "Left alone: 2 (queued already)" in refused("run-now", ready, later)


def test_move_and_priority_by_filter_leave_what_runs_and_say_so(queue):
    running, *others = enqueued_ids(app.noop, [()] * 3)
    claim(queue, "default", limit=1, worker_id=1)
    assert f"Left alone: 1 (running already), as {running}." in refused("move", "--to", "new", "--queue", "default")
    assert list(Job.objects.filter(queue="new").values_list("pk", flat=True)) == others
    assert jobs("set-priority", "-5", "--queue", "new", "--status", "queued") == "Given priority -5: 2.\n"
    assert dict(Job.objects.values_list("pk", "priority")) == {running: 0, others[0]: -5, others[1]: -5}


def test_purge_takes_dead_jobs_or_finished_ones(sql):
    parked, live, succeeded = dead(2), app.noop.enqueue().id, finish(sql)
    assert jobs("purge", parked[0]) == "Purged: 1.\n"
    assert jobs("purge", "--all", "--yes") == "Purged: 1.\n"
    assert (ids_of(Job), ids_of(DeadJob), ids_of(SucceededJob)) == ([live], [], [succeeded])
    assert jobs("purge", "--succeeded", "--older-than", "1h", "--yes") == "Nothing was changed.\n"
    assert jobs("purge", "--succeeded", "--all", "--yes") == "Purged: 1.\n"
    assert (ids_of(Job), ids_of(SucceededJob)) == ([live], [])


@pytest.mark.parametrize(
    "words",
    [
        ["retry"],
        ["purge", "--yes"],
        ["kill", "--yes"],
        ["move", "--to", "new"],
        ["set-priority", "9"],
        ["run-now"],
    ],
)
@pytest.mark.parametrize("by_ids", [True, False])
def test_dry_run_changes_nothing_and_shows_a_few(words, by_ids):
    dead(12)
    app.noop.using(delay=dt.timedelta(hours=1)).enqueue_many([()] * 12)
    before = (list(Job.objects.order_by("pk").values()), list(DeadJob.objects.order_by("pk").values()))
    chosen = ids_of(DeadJob if words[0] in {"retry", "purge"} else Job) if by_ids else ["--all"]
    printed = jobs(*words, *chosen, "--dry-run")
    assert printed.startswith("12 jobs match. The first:\nid ")
    assert len(printed.splitlines()) == 12
    assert (list(Job.objects.order_by("pk").values()), list(DeadJob.objects.order_by("pk").values())) == before


def test_2500_jobs_are_moved_in_slices_with_a_line_on_a_terminal():
    app.noop.enqueue_many([()] * 2500)
    errors = Terminal()
    assert jobs("move", "--to", "new", "--queue", "default", stderr=errors) == "Moved to queue new: 2,500.\n"
    steps = [line.strip() for line in errors.getvalue().split("\r")[1:]]
    assert steps == [
        "2,500 jobs looked at, 0 done",
        "4,000 jobs looked at, 1,000 done",
        "4,500 jobs looked at, 2,000 done",
    ]
    assert jobs("move", "--to", "new", "--all", "-v", "0", stderr=errors) == "Moved to queue new: 2,500.\n"
    assert Job.objects.filter(queue="new").count() == 2500


@pytest.fixture
def second_slice(monkeypatch):
    """Let something happen in the second slice."""

    def set_up(happen):
        act, slices = actions.SelectedJobs._act, []

        def fail(self, ids):
            done = act(self, ids)
            slices.append(ids)
            if len(slices) == 2:
                happen()
            return done

        monkeypatch.setattr(actions.SelectedJobs, "_act", fail)

    return set_up


@pytest.fixture
def _heeding_ctrl_c():
    """Take SIGINT as Python does; what is started in the background may have inherited that it is ignored."""
    inherited = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, inherited)


@pytest.mark.usefixtures("_heeding_ctrl_c")
@pytest.mark.parametrize(("times", "killed"), [(1, 2000), (2, 1000)])
@pytest.mark.parametrize("by_ids", [True, False])
def test_interrupted_command_says_what_stays(second_slice, by_ids, times, killed):
    ids = enqueued_ids(app.noop, [()] * 2500)
    second_slice(lambda: [signal.raise_signal(signal.SIGINT) for _ in range(times)])
    errors, before = io.StringIO(), signal.getsignal(signal.SIGINT)
    with pytest.raises(SystemExit) as ended:
        jobs("kill", *(ids if by_ids else ["--all", "--yes"]), stderr=errors)
    assert ended.value.code == 130
    assert errors.getvalue() == f"Interrupted. Finished slices stay. Killed: {killed:,}.\n"
    assert (Job.objects.count(), DeadJob.objects.count()) == (2500 - killed, killed)
    assert signal.getsignal(signal.SIGINT) == before


def test_database_that_fails_midway_is_named_with_what_stays(second_slice):
    app.noop.enqueue_many([()] * 2500)

    def fail():
        raise OperationalError("server closed the connection")

    second_slice(fail)
    complaint = refused("kill", "--all", "--yes")
    assert complaint == "server closed the connection\nFinished slices stay. Killed: 1,000."
    assert Job.objects.count() == 1500


@pytest.mark.django_db(transaction=True)
def test_locked_jobs_are_left_and_named(other_queue):
    locked, free = enqueued_ids(app.noop, [(), ()])
    with other_queue.transaction():
        other_queue.rows("SELECT id FROM pgqueue_jobs WHERE id = %(id)s FOR UPDATE", {"id": locked})
        complaint = refused("kill", "--all", "--yes")
    assert complaint == f"Left alone: 1 (just being changed by another session; try again), as {locked}."
    assert (ids_of(Job), ids_of(DeadJob)) == ([locked], [free])


def test_job_that_has_begun_since_it_was_chosen_by_its_status_goes_on(queue, monkeypatch):
    first, second = enqueued_ids(app.noop, [(), ()])
    act = actions.SelectedJobs._act

    def act_late(self, ids):
        claim(queue, "default", limit=1, worker_id=1)
        return act(self, ids)

    monkeypatch.setattr(actions.SelectedJobs, "_act", act_late)
    assert refused("kill", "--status", "queued", "--yes") == f"Left alone: 1 (running already), as {first}."
    assert (Job.objects.get().pk, Job.objects.get().kill_requested_at) == (first, None)
    assert ids_of(DeadJob) == [second]


def test_one_job_matches():
    app.noop.enqueue()
    assert jobs("kill", "--all", "--dry-run").startswith("1 job matches. The first:")
