"""Words of the command line: each that cannot be is named, with what is wanted instead."""

import pytest

import tests.app.tasks as app
from django_pgqueue.cli.parsing import rate_or_none
from django_pgqueue.insights import formatting
from django_pgqueue.models import Job
from tests.support.jobs_command import ids_of, refused

pytestmark = pytest.mark.django_db


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


@pytest.mark.parametrize("limit", [0, 10_001, -1])
def test_limit_of_a_list_that_cannot_be_is_named(limit):
    assert f"1 to 10000 jobs are listed at once, not {limit}" in refused("list", f"--limit={limit}")


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


@pytest.mark.parametrize("text", ["100/s", "60/m", "5/10s", "1000/h", "3/1.5s", "7/2d", "1/w", "90/90s"])
def test_rates_are_shown_as_they_are_typed(text):
    rate = rate_or_none(text)
    assert formatting.rate(rate.number, rate.period.total_seconds()) == text
