"""manage.py pgqueue_jobs: what is typed, what is printed, what becomes of the jobs."""

import datetime as dt
import io
import json
import os
import re
import signal
import sys

import pytest
from django.core.management import CommandError, call_command
from django.db import OperationalError
from django.utils import timezone

import tests.app.tasks as app
from django_pgqueue import enqueue_many, kill
from django_pgqueue.cli import actions
from django_pgqueue.jobs.claim import claim
from django_pgqueue.models import DeadJob, FinishedJob, Job

pytestmark = pytest.mark.django_db


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def jobs(*words: object, **streams: io.StringIO) -> str:
    """Run the command; return what it prints."""
    out = io.StringIO()
    call_command("pgqueue_jobs", *map(str, words), stdout=out, **streams)
    return out.getvalue()


def refused(*words: object) -> str:
    """Run the command, which does not do all of it; return its complaint."""
    with pytest.raises(CommandError) as raised:
        jobs(*words)
    return str(raised.value)


@pytest.fixture
def dead():
    def make(number=1, **options) -> list[int]:
        ids = enqueue_many(app.record.using(**options), [("x",)] * number)
        return sorted(kill(ids, by="eve").dead)

    return make


def ids_of(model) -> list[int]:
    return list(model.objects.order_by("pk").values_list("pk", flat=True))


# Enqueue


def test_enqueue_prints_the_id_and_takes_arguments_and_options():
    printed = jobs(
        *("enqueue", "tests.app.tasks.record", "--args", '["ü"]', "--queue", "mail", "--priority", "-7"),
        *("--max-attempts", "2", "--timeout", "90s", "--delay", "2h", "--metadata", '{"by": "cron"}'),
    )
    job = Job.objects.get()
    assert printed == f"{job.pk}\n"
    assert (job.args, job.queue, job.priority, job.max_attempts, job.timeout_seconds) == (["ü"], "mail", -7, 2, 90)
    assert (job.metadata, job.status) == ({"by": "cron"}, "scheduled")
    assert dt.timedelta(hours=1) < job.run_at - timezone.now() <= dt.timedelta(hours=2)


def test_enqueue_takes_arguments_by_name_and_a_time_in_the_zone_of_the_settings():
    jobs("enqueue", "tests.app.tasks.record", "--kwargs", '{"label": "a"}', "--run-at", "2031-05-01T09:00")
    job = Job.objects.get()
    assert (job.kwargs, job.run_at) == ({"label": "a"}, dt.datetime(2031, 5, 1, 7, tzinfo=dt.UTC))


def test_enqueue_prints_the_id_of_the_conflict_and_says_so():
    words = ("enqueue", "tests.app.tasks.noop", "--unique-key", "k", "--unique-for", "1h", "--expires", "1d")
    first, errors = jobs(*words), io.StringIO()
    assert jobs(*words, stderr=errors) == first
    assert errors.getvalue() == "This job had the unique key already.\n"
    job = Job.objects.get()
    assert (job.unique_key, job.unique_for_seconds) == ("k", 3600)


def test_enqueue_takes_concurrency_and_fair_keys():
    jobs("enqueue", "tests.app.tasks.noop", "--concurrency-key", "k", "--concurrency-limit", "3", "--fair-key", "f")
    job = Job.objects.get()
    assert (job.concurrency_key, job.concurrency_limit, job.fair_key, job.status) == ("k", 3, "f", "waiting")


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["tests.app.tasks.recor"], "No task is called 'tests.app.tasks.recor'. Did you mean 'tests.app.tasks.record'"),
        (["tests.app.tasks.log_in"], "missing a required argument: 'user'"),
        (["tests.app.tasks.noop", "--args", "[1"], "argument --args: it is no JSON: Expecting ',' delimiter at char"),
        (["tests.app.tasks.noop", "--args", "{}"], "argument --args: it must be a JSON array of positional arguments"),
        (["tests.app.tasks.noop", "--kwargs", "[]"], "argument --kwargs: it must be a JSON object of names and values"),
        (["tests.app.tasks.noop", "--priority", "101"], "priority is a whole number from -100 to 100, not 101"),
        (["tests.app.tasks.noop", "--priority", "high"], "argument --priority: invalid int value: 'high'"),
        (["tests.app.tasks.noop", "--delay", "2"], "argument --delay: '2' is no duration: write a number and s, m, h"),
        (["tests.app.tasks.noop", "--delay", "36501d"], "'36501d' is no duration: write a number and s, m, h, d or w"),
        (["tests.app.tasks.noop", "--run-at", "2031-13-01"], "argument --run-at: '2031-13-01' is no time: write it as"),
        (["tests.app.tasks.noop", "--run-at", "9999-13-01T00:00", "--delay", "1s"], "is no time"),
        (["tests.app.tasks.noop", "--queue", ""], "queue is a name of 1 to 128 characters, not ''"),
    ],
)
def test_what_cannot_be_enqueued_is_named_with_what_is_wanted(words, complaint):
    assert complaint in refused("enqueue", *words)
    assert not Job.objects.exists()


def test_arguments_that_are_no_json_are_not_repeated():
    assert "hunter2" not in refused("enqueue", "tests.app.tasks.noop", "--args", '["hunter2"')


# List


def test_list_is_a_table_and_pages_go_on_behind_the_last(queue):
    ids = enqueue_many(app.noop, [()] * 5)
    first = jobs("list", "--limit", 3)
    assert [line.split()[:2] for line in first.splitlines()[1:4]] == [[str(one), "queued"] for one in ids[:3]]
    assert first.endswith(f"There are more: --after {ids[2]}\n")
    rest = jobs("list", "--limit", 2, "--after", ids[2])
    assert len(rest.splitlines()) == 3
    assert "There are more" not in rest
    assert jobs("list", "--queue", "mail") == "No job matches.\n"


def test_list_as_json_tells_the_error_and_no_arguments(dead):
    [job_id] = dead()
    answer = json.loads(jobs("list", "--status", "dead", "--format", "json"))
    [row] = answer["jobs"]
    assert (row["id"], row["status"], row["reason"], row["error"]) == (job_id, "dead", "killed", "killed by eve")
    assert answer["after"] is None
    assert not {"args", "kwargs", "metadata", "result"} & set(row)


def test_list_shows_live_jobs_or_dead_or_finished_ones(dead, sql):
    [parked] = dead()
    live, later = app.noop.enqueue().id, app.noop.using(run_at=dt.timedelta(hours=1)).enqueue().id
    finished = finish(sql)

    def listed(*words):
        return [row["id"] for row in json.loads(jobs("list", "--format", "json", *words))["jobs"]]

    assert listed() == [live, later]
    assert listed("--status", "scheduled") == [later]
    assert listed("--status", "dead") == listed("--reason", "killed") == [parked]
    assert listed("--reason", "lost") == []
    assert listed("--status", "finished") == [finished]
    assert "Live, dead and finished jobs are listed apart" in refused("list", "--status", "dead", "--status", "queued")
    assert "only dead ones have a --reason" in refused("list", "--status", "finished", "--reason", "lost")


def finish(sql) -> int:
    job_id = app.noop.enqueue().id
    sql(
        "INSERT INTO pgqueue_finished_jobs (id, task, queue, run_at, enqueued_at, first_started_at, started_at, "
        "worker_id, run_seconds, priority, attempts, lost, backend, args, kwargs, metadata, errors) "
        "SELECT id, task, queue, run_at, now(), now(), now(), 1, 0.25, 0, 1, 0, '', args, kwargs, metadata, errors "
        "FROM pgqueue_jobs WHERE id = %s",
        job_id,
    )
    Job.objects.filter(pk=job_id).delete()
    return job_id


@pytest.mark.parametrize("limit", [0, 10_001, -1])
def test_limit_of_a_list_that_cannot_be_is_named(limit):
    assert f"1 to 10000 jobs are listed at once, not {limit}" in refused("list", f"--limit={limit}")


def test_names_do_nothing_to_the_terminal():
    Job.objects.create(task="x\x1b[2Jy", queue="a\nb")
    assert "x?[2Jy" in jobs("list")
    assert "a?b" in jobs("list")


# Show


def test_show_tells_why_a_job_is_where_it_is_and_what_to_type(dead):
    def why(job_id):
        return json.loads(jobs("show", job_id, "--format", "json"))["why"]

    assert "Start one: manage.py pgqueue_worker\n" in why(app.noop.enqueue().id)
    later = app.noop.using(run_at=dt.timedelta(hours=1)).enqueue().id
    assert f"At once: manage.py pgqueue_jobs run-now {later}\n" in why(later)
    [parked] = dead()
    assert "It was killed by eve." in why(parked)
    assert why(parked).endswith(f"manage.py pgqueue_jobs retry {parked}")
    assert re.search(r"why:\n    It was killed by eve\.\n    It stays here until", jobs("show", parked))


def test_show_tells_what_has_happened_step_by_step(sql):
    shown = jobs("show", finish(sql))
    assert re.search(r"timeline:\n    1: \S+ \S+ Enqueued\n", shown)
    assert re.search(r"\n    3: \S+ \S+ Finished, .* after it was enqueued", shown)


def test_show_leaves_out_what_is_sensitive_wherever_it_stands():
    job_id = (
        app.log_in.using(metadata={"token": "sesame-1"}, unique_key="user:open-sesame")
        .enqueue("ann", password="open-sesame")
        .id
    )
    Job.objects.filter(pk=job_id).update(
        errors=[{"kind": "failed", "error": "ValueError", "message": "not open-sesame", "attempt": 1}]
    )
    for words in ((), ("--format", "json")):
        shown = jobs("show", job_id, *words)
        assert "sesame" not in shown
        assert "ann" in shown
        assert "not [redacted]" in shown
    assert "sesame" not in jobs("list") + jobs("list", "--format", "json")


def test_show_says_that_a_job_is_not_there():
    assert refused("show", 17) == "There is no job 17: it was never there, or is not kept any more."


# Acting on many


def test_kill_says_what_became_of_each_job(queue):
    running = app.noop.enqueue().id
    claim(queue, "default", limit=1, worker_id=1)
    waiting = app.noop.enqueue().id
    out = io.StringIO()
    with pytest.raises(CommandError, match=rf"Left alone: 1 \(not here any more.*\), as {waiting + 1000}\."):
        call_command("pgqueue_jobs", "kill", str(waiting), str(running), str(waiting + 1000), by="eve", stdout=out)
    assert out.getvalue() == "Killed: 1. Asked to stop, because it is running: 1.\n"
    buried = DeadJob.objects.get()
    assert (buried.id, buried.reason, buried.cancelled_by) == (waiting, "killed", "eve")
    assert (Job.objects.get().id, Job.objects.get().cancelled_by) == (running, "eve")


def test_without_a_name_it_is_that_of_the_user(monkeypatch):
    monkeypatch.setenv("LOGNAME", "nightshift")
    first, second = enqueue_many(app.noop, [(), ()])
    assert jobs("kill", first, first) == "Killed: 1.\n"
    monkeypatch.setattr("getpass.getuser", lambda: {}["no such user"])
    jobs("kill", second)
    names = dict(DeadJob.objects.values_list("pk", "cancelled_by"))
    assert names == {first: "nightshift", second: f"user {os.getuid()}"}


@pytest.mark.parametrize("verb", ["retry"])
def test_retry_by_filter(dead, verb):
    mail, other = dead(queue="mail"), dead()
    Job.objects.all().delete()
    assert jobs(verb, "--queue", "mail", "--reason", "killed", "--error", "killed by eve") == "Retried: 1.\n"
    assert (ids_of(Job), ids_of(DeadJob)) == (mail, other)
    assert jobs(verb, "--reason", "lost") == "Nothing was changed.\n"


def test_run_now_takes_scheduled_jobs_only():
    ready, later = app.noop.enqueue().id, app.noop.using(run_at=dt.timedelta(hours=1)).enqueue().id
    assert jobs("run-now", "--all") == "Due now: 1.\n"
    assert set(Job.objects.values_list("status", flat=True)) == {"queued"}
    assert "Left alone: 2 (queued already)" in refused("run-now", ready, later)


def test_move_and_priority_by_filter_leave_what_runs_and_say_so(queue):
    running, *others = enqueue_many(app.noop, [()] * 3)
    claim(queue, "default", limit=1, worker_id=1)
    assert f"Left alone: 1 (running already), as {running}." in refused("move", "--to", "new", "--queue", "default")
    assert list(Job.objects.filter(queue="new").values_list("pk", flat=True)) == others
    assert jobs("priority", "--to", "-5", "--queue", "new", "--status", "queued") == "Given priority -5: 2.\n"
    assert dict(Job.objects.values_list("pk", "priority")) == {running: 0, others[0]: -5, others[1]: -5}


def test_purge_takes_dead_jobs_or_finished_ones(dead, sql):
    parked, live, finished = dead(2), app.noop.enqueue().id, finish(sql)
    assert jobs("purge", parked[0]) == "Purged: 1.\n"
    assert jobs("purge", "--all", "--yes") == "Purged: 1.\n"
    assert (ids_of(Job), ids_of(DeadJob), ids_of(FinishedJob)) == ([live], [], [finished])
    assert jobs("purge", "--finished", "--older-than", "1h", "--yes") == "Nothing was changed.\n"
    assert jobs("purge", "--finished", "--all", "--yes") == "Purged: 1.\n"
    assert (ids_of(Job), ids_of(FinishedJob)) == ([live], [])


@pytest.mark.parametrize(
    "words",
    [
        ["retry"],
        ["purge", "--yes"],
        ["kill", "--yes"],
        ["move", "--to", "new"],
        ["priority", "--to", "9"],
        ["run-now"],
    ],
)
@pytest.mark.parametrize("by_ids", [True, False])
def test_dry_run_changes_nothing_and_shows_a_few(dead, words, by_ids):
    dead(12)
    enqueue_many(app.noop.using(run_at=dt.timedelta(hours=1)), [()] * 12)
    before = (list(Job.objects.order_by("pk").values()), list(DeadJob.objects.order_by("pk").values()))
    chosen = ids_of(DeadJob if words[0] in {"retry", "purge"} else Job) if by_ids else ["--all"]
    printed = jobs(*words, *chosen, "--dry-run")
    assert printed.startswith("12 jobs match. The first:\nid ")
    assert len(printed.splitlines()) == 12
    assert (list(Job.objects.order_by("pk").values()), list(DeadJob.objects.order_by("pk").values())) == before


def test_dry_run_says_that_nothing_matches():
    assert jobs("kill", "--queue", "mail", "--dry-run") == "0 jobs match.\n"


@pytest.mark.parametrize("verb", ["kill", "purge"])
def test_what_cannot_be_undone_needs_a_yes_without_a_terminal(verb):
    assert refused(verb, "--all") == f"No terminal to ask at: add --yes to {verb} jobs by a filter."


def test_end_of_input_is_no_yes(monkeypatch):
    app.noop.enqueue()

    def end(_question):
        raise EOFError

    monkeypatch.setattr(sys, "stdin", Terminal())
    monkeypatch.setattr("builtins.input", end)
    assert refused("kill", "--all") == "Nothing was changed."


@pytest.mark.parametrize(("answer", "left"), [("y", 0), ("Yes", 0), ("", 3), ("n", 3)])
def test_on_a_terminal_the_user_is_asked(monkeypatch, answer, left):
    enqueue_many(app.noop, [()] * 3)
    asked = []
    monkeypatch.setattr(sys, "stdin", Terminal())
    monkeypatch.setattr("builtins.input", lambda text: asked.append(text) or answer)
    if left:
        assert refused("kill", "--all") == "Nothing was changed."
    else:
        jobs("kill", "--all")
    assert asked == ["Kill 3 jobs? [y/N] "]
    assert Job.objects.count() == left


def test_2500_jobs_are_moved_in_slices_with_a_line_on_a_terminal():
    enqueue_many(app.noop, [()] * 2500)
    errors = Terminal()
    assert jobs("move", "--to", "new", "--queue", "default", stderr=errors) == "Moved to new: 2,500.\n"
    steps = [line.strip() for line in errors.getvalue().split("\r")[1:]]
    assert steps == [
        "2,500 jobs looked at, 0 done",
        "4,000 jobs looked at, 1,000 done",
        "4,500 jobs looked at, 2,000 done",
    ]
    assert jobs("move", "--to", "new", "--all", "-v", "0", stderr=errors) == "Moved to new: 2,500.\n"
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
    ids = enqueue_many(app.noop, [()] * 2500)
    second_slice(lambda: [signal.raise_signal(signal.SIGINT) for _ in range(times)])
    errors, before = io.StringIO(), signal.getsignal(signal.SIGINT)
    with pytest.raises(SystemExit) as ended:
        jobs("kill", *(ids if by_ids else ["--all", "--yes"]), stderr=errors)
    assert ended.value.code == 130
    assert errors.getvalue() == f"Interrupted. Finished slices stay. Killed: {killed:,}.\n"
    assert (Job.objects.count(), DeadJob.objects.count()) == (2500 - killed, killed)
    assert signal.getsignal(signal.SIGINT) == before


def test_database_that_fails_midway_is_named_with_what_stays(second_slice):
    enqueue_many(app.noop, [()] * 2500)

    def fail():
        raise OperationalError("server closed the connection")

    second_slice(fail)
    complaint = refused("kill", "--all", "--yes")
    assert complaint == "server closed the connection\nFinished slices stay. Killed: 1,000."
    assert Job.objects.count() == 1500


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["kill"], "Say which jobs: give ids, a filter such as --queue or --older-than, or --all."),
        (["kill", 1, "--queue", "a", "--older-than", "1h"], "leave out the ids, or --queue, --older-than."),
        (["kill", 0], "no job has the id 0: ids are 1 to"),
        (["kill", "--", -1], "no job has the id -1: ids are 1 to"),
        (["kill", 2**63], f"no job has the id {2**63}: ids are 1 to"),
        (["kill", 10**30], f"no job has the id {10**30}: ids are 1 to"),
        (["kill", "--all", "--status", "dead"], "argument --status: invalid choice: 'dead'"),
        (["purge", "--finished", "--reason", "lost"], "Finished jobs have no --reason"),
        (["move", 1, "--to", ""], "queue is a name of 1 to 128 characters, not ''"),
        (["move", 1], "the following arguments are required: --to"),
        (["priority", 1, "--to", "101"], "priority is a whole number from -100 to 100, not 101"),
        (["kill", "--queue", "\udcff", "--yes"], r"'\udcff' is not text"),
        (["frob"], "invalid choice: 'frob'"),
        (["list", "--database", "lite"], "'lite' is sqlite"),
        (["list", "--database", "nowhere"], "'nowhere' is not in DATABASES"),
    ],
)
def test_what_cannot_be_done_is_named_with_what_is_wanted(words, complaint):
    job_id = app.noop.enqueue().id
    assert complaint in refused(*words)
    assert ids_of(Job) == [job_id]


@pytest.mark.django_db(transaction=True)
def test_locked_jobs_are_left_and_named(other_queue):
    locked, free = enqueue_many(app.noop, [(), ()])
    with other_queue.transaction():
        other_queue.rows("SELECT id FROM pgqueue_jobs WHERE id = %(id)s FOR UPDATE", {"id": locked})
        complaint = refused("kill", "--all", "--yes")
    assert complaint == f"Left alone: 1 (just being changed by another session; try again), as {locked}."
    assert (ids_of(Job), ids_of(DeadJob)) == ([locked], [free])


def test_job_that_has_begun_since_it_was_chosen_by_its_status_goes_on(queue, monkeypatch):
    first, second = enqueue_many(app.noop, [(), ()])
    act = actions.SelectedJobs._act

    def act_late(self, ids):
        claim(queue, "default", limit=1, worker_id=1)
        return act(self, ids)

    monkeypatch.setattr(actions.SelectedJobs, "_act", act_late)
    assert refused("kill", "--status", "queued", "--yes") == f"Left alone: 1 (running already), as {first}."
    assert (Job.objects.get().pk, Job.objects.get().cancel_requested_at) == (first, None)
    assert ids_of(DeadJob) == [second]
