"""pgqueue_bench as its users meet it: real commands, real workers, few jobs."""

import io
import re
import signal

import pytest
from django.core.management import CommandError, call_command
from django.core.management.base import CommandParser, OutputWrapper

from django_pgqueue.bench.report import QUEUE
from django_pgqueue.management.commands.pgqueue_bench import Command, Progress, duration, load_from
from django_pgqueue.models import Job, SucceededJob
from tests.support.benches import ROOT, of_the_bench, real
from tests.support.waiting import eventually


@real
def test_bench_prints_a_table_and_tells_its_steps_beside_workers_of_other_queues(few_pick_ups, register):
    register("mail")
    out, err = io.StringIO(), io.StringIO()
    call_command("pgqueue_bench", jobs=50, sleep="1ms-2ms", stdout=out, stderr=err)
    printed = out.getvalue()
    assert "50 plain jobs that sleep 1 to 2 ms, 0 bytes of arguments, history off; 1 process(es) x 8" in printed
    for name in ("round trip", "claim of 50", "ack of 50", "floor", "pick-up, idle queue", "wait", "WAL"):
        assert re.search(rf"^  {name} .*\d", printed, flags=re.MULTILINE), name
    assert re.search(r"x floor, \d\.\d\d x what the slots could do", printed)
    assert "the wait is that of a backlog" in printed
    assert "Measured together with 1 other worker process(es)" in printed
    assert re.search(r"^  reaped leases +0$", printed, flags=re.MULTILINE)
    steps = [line.removesuffix(" ...") for line in err.getvalue().splitlines() if line.endswith(" ...")]
    assert steps == ["Enqueue for the floor", "Floor", "Start workers", "Idle queue", "Enqueue", "Drain"]


@real
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name)
def test_bench_that_is_interrupted_leaves_nothing(start_bench, number):
    bench = start_bench("--jobs", "2000", "--sleep", "100ms", "--history")

    def is_in_the_middle():
        """the workers run the backlog"""
        assert bench.process.poll() is None, bench.text()
        running = Job.objects.filter(queue=QUEUE, status="running")
        return "Drain" in bench.text() and SucceededJob.objects.filter(queue=QUEUE).exists() and running.exists()

    eventually(is_in_the_middle)
    bench.process.send_signal(number)
    assert bench.wait() == 128 + number, bench.text()
    assert of_the_bench() == [0, 0, 0, 0]
    assert "Interrupted. The bench's jobs are removed." in bench.text()


@pytest.mark.django_db(transaction=True)
def test_bench_refuses_jobs_that_run_where_they_are_enqueued(settings):
    settings.PGQUEUE = {**settings.PGQUEUE, "IMMEDIATE": True}
    with pytest.raises(CommandError, match=r"PGQUEUE\['IMMEDIATE'\] is on"):
        call_command("pgqueue_bench")


@pytest.mark.django_db
def test_bench_refuses_to_run_inside_a_transaction():
    with pytest.raises(CommandError, match="inside a transaction: its workers would not see the jobs"):
        call_command("pgqueue_bench", jobs=10)


def options(**changes) -> dict:
    parser = CommandParser()
    Command().add_arguments(parser)
    return {**vars(parser.parse_args([])), **changes}


def test_all_wrong_options_are_named_at_once():
    wrong = options(jobs=0, processes=0, concurrency=1001, sleep="5ms-2ms", payload_bytes=-1)
    with pytest.raises(CommandError) as caught:
        load_from(wrong)
    for option in (
        "--jobs must be 1 to 1000000, not 0.",
        "--processes must be 1 to 256, not 0.",
        "--concurrency must be 1 to 1000, not 1001.",
        "--sleep must be as 5ms or 2ms-5ms, 1m at most, not 5ms-2ms.",
        "--payload must be 0 to ",
    ):
        assert option in str(caught.value)


def test_history_that_is_not_kept_cannot_be_measured(settings):
    settings.PGQUEUE = {"RETENTION_DAYS": 0}
    with pytest.raises(CommandError, match=r"PGQUEUE\['RETENTION_DAYS'\] is 0"):
        load_from(options(history=True))


@pytest.mark.parametrize(("text", "bounds"), [("0", (0, 0)), ("3ms", (3, 3)), ("0.5ms-2s", (0.5, 2000))])
def test_sleep_is_a_duration_or_two(text, bounds):
    assert load_from(options(sleep=text)).sleep_ms == bounds


@pytest.mark.parametrize("text", ["x", "-1", "2-1", "1-2-3", "1-61"])
def test_sleep_that_cannot_be_is_refused(text):
    with pytest.raises(CommandError, match="--sleep"):
        load_from(options(sleep=text))


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [(0, "0 ms"), (0.0567, "0.057 ms"), (1.234, "1.23 ms"), (12.34, "12.3 ms"), (123.4, "123 ms"), (1234, "1.23 s")],
)
def test_durations_have_about_three_digits(milliseconds, text):
    assert duration(milliseconds) == text


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_is_a_bar_on_a_terminal():
    out = Terminal()
    progress = Progress(OutputWrapper(out), is_silent=False)
    for share in (0.0, 0.5, 0.501, 1.0):
        progress("Drain", share)
    progress.end()
    lines = out.getvalue().split("\r")
    assert [line[-5:] for line in lines[1:]] == ["  0 %", " 50 %", "100 %\n"[-5:]]
    assert lines[2] == f"{'Drain':<22} [{'#' * 15:<30}]  50 %"


def test_progress_can_be_silent():
    out = Terminal()
    progress = Progress(OutputWrapper(out), is_silent=True)
    progress("Drain", 0.5)
    progress.end()
    assert out.getvalue() == ""


def test_page_lists_every_option_with_its_default():
    page = (ROOT / "docs" / "reference" / "bench-command.md").read_text()
    rows = dict(re.findall(r"^\| `(--[\w-]+)` \| ([^|]+) \|", page, flags=re.MULTILINE))
    parser = CommandParser(add_help=False)
    Command().add_arguments(parser)
    actions = {action.option_strings[0]: action for action in parser._actions}
    assert set(rows) == set(actions)
    for option, action in actions.items():
        assert rows[option] == ("off" if action.default is False else f"`{action.default}`"), option
