"""pgqueue_bench as its users meet it: real commands, real workers, few jobs."""

import datetime as dt
import io
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command
from django.core.management.base import CommandParser, OutputWrapper
from django.utils import timezone

import tests.app.tasks as app
from django_pgqueue import enqueue_many
from django_pgqueue.bench import drain
from django_pgqueue.bench.board import Board
from django_pgqueue.bench.load import QUEUE, Load
from django_pgqueue.bench.report import spread
from django_pgqueue.bench.room import alone, check_others
from django_pgqueue.bench.usage import cpu_seconds, wal_bytes
from django_pgqueue.management.commands.pgqueue_bench import Command, Progress, duration, load_from
from django_pgqueue.models import DeadJob, FinishedJob, Job, Worker
from tests.support.waiting import LONG_PATIENCE_SECONDS, eventually
from tests.support.workers import MANAGE, database_url, parent_of

ROOT = Path(__file__).parent.parent.parent.parent
real = pytest.mark.django_db(transaction=True, databases=["default", "other"])


WHOLE = (str(MANAGE), "pgqueue_bench")
SHORT = ("-m", "tests.support.short_bench")


class Bench:
    """One ``pgqueue_bench`` as a process, what it prints in files."""

    def __init__(self, command: tuple[str, ...], options: tuple[str, ...], folder: Path) -> None:
        self.out, self.err = folder / "bench.out", folder / "bench.err"
        with self.out.open("wb") as out, self.err.open("wb") as err:
            self.process = subprocess.Popen(
                [sys.executable, *command, *options],
                cwd=ROOT,
                env={**os.environ, "DATABASE_URL": database_url(), "TMPDIR": str(folder)},
                stdout=out,
                stderr=err,
            )

    def wait(self) -> int:
        return self.process.wait(LONG_PATIENCE_SECONDS)

    def text(self) -> str:
        return self.out.read_text() + self.err.read_text()


@pytest.fixture
def start_bench(transactional_db, tmp_path):
    started = []

    def start(*options: str, command: tuple[str, ...] = SHORT) -> Bench:
        started.append(Bench(command, options, tmp_path))
        return started[-1]

    yield start
    for bench in started:
        bench.process.kill()
        bench.process.wait()


def of_the_bench() -> list[int]:
    """Return how many rows it has in each table."""
    return [
        *(model.objects.filter(queue=QUEUE).count() for model in (Job, DeadJob, FinishedJob)),
        Worker.objects.filter(name=QUEUE).count(),
    ]


def everything() -> list[list[dict]]:
    return [list(model.objects.order_by("id").values()) for model in (Job, DeadJob, FinishedJob)]


@pytest.fixture
def few_pick_ups(monkeypatch) -> None:
    """Measure few single jobs on the idle queue: between them time passes."""
    monkeypatch.setattr(drain, "PICK_UPS", 3)


@pytest.fixture
def register(transactional_db):
    """Register a worker process of others that serves these queues: of those that run here, a bench sees that row."""

    def registered(*queues: str) -> None:
        until = timezone.now() + dt.timedelta(hours=1)
        Worker.objects.create(
            supervisor_id=1, pid=1, host="x", version="1", concurrency=8, lease_until=until, queues=list(queues)
        )

    return registered


@real
def test_bench_measures_and_leaves_nothing(start_bench):
    bench = start_bench("--jobs", "1000", "--processes", "2", "--concurrency", "2", "--json", command=WHOLE)
    assert bench.wait() == 0, bench.text()
    report = json.loads(bench.out.read_text())
    assert report["load"]["jobs"] == 1000
    assert report["floor"]["jobs_per_second"] > 0
    assert report["floor"]["claim"]["samples"] == report["floor"]["ack"]["samples"] == 2
    assert 0 < report["pick_up"]["samples"] <= 200  # as many as there is time for
    assert report["drained"]["wait"]["samples"] == 1000
    assert 0 < report["drained"]["wait"]["p50_ms"] <= report["drained"]["seconds"] * 1000
    assert report["drained"]["jobs_per_second"] == pytest.approx(1000 / report["drained"]["seconds"], rel=0.01)
    assert report["drained"]["wal_bytes_per_job"] > 0
    assert report["enqueued"]["wal_bytes_per_job"] > 0
    assert report["drained"]["reaped_leases"] == 0
    assert report["ratio_to_slots"] is None
    assert (report["is_beside_jobs"], report["other_workers"]) == (False, 0)
    cpu = report["drained"]["worker_cpu_us_per_job"]
    assert cpu > 0 if Path("/proc/self/stat").exists() else cpu is None, "it is told on Linux only"
    assert of_the_bench() == [0, 0, 0, 0]


@real
def test_bench_prints_a_table_and_tells_its_steps_beside_workers_of_other_queues(few_pick_ups, register):
    register("mail")
    out, err = io.StringIO(), io.StringIO()
    call_command("pgqueue_bench", jobs=50, sleep_ms="1-2", stdout=out, stderr=err)
    printed = out.getvalue()
    assert "50 plain jobs that sleep 1 to 2 ms, 0 bytes of arguments, history off; 1 process(es) x 8" in printed
    for name in ("round trip", "claim of 50", "ack of 50", "floor", "pick-up, idle queue", "wait", "WAL"):
        assert re.search(rf"^  {name} .*\d", printed, flags=re.MULTILINE), name
    assert re.search(r"x floor, \d\.\d\d x what the slots could do", printed)
    assert "the wait is that of a backlog" in printed
    assert "Measured beside 1 other worker process(es)" in printed
    assert re.search(r"^  reaped leases +0$", printed, flags=re.MULTILINE)
    steps = [line.removesuffix(" ...") for line in err.getvalue().splitlines() if line.endswith(" ...")]
    assert steps == ["Enqueue for the floor", "Floor", "Start workers", "Idle queue", "Enqueue", "Drain"]


@real
def test_coroutines_with_arguments_and_history_are_measured_too(few_pick_ups):
    out = io.StringIO()
    options = {"jobs": 40, "is_async": True, "history": True, "payload": 3000, "as_json": True}
    call_command("pgqueue_bench", **options, stdout=out, stderr=io.StringIO())
    report = json.loads(out.getvalue())
    assert report["enqueued"]["wal_bytes_per_job"] > 3000
    assert report["drained"]["wal_bytes_per_job"] > 3000  # the row in the history
    assert of_the_bench() == [0, 0, 0, 0]


@real
def test_bench_refuses_to_start_beside_jobs_of_others():
    app.noop.enqueue()
    before = everything()
    with pytest.raises(CommandError, match=r"There are 1 jobs in pgqueue_jobs of 'test_.*With --yes the bench runs"):
        call_command("pgqueue_bench", jobs=10)
    assert everything() == before


@real
def test_with_yes_the_bench_leaves_the_rows_of_others_alone(few_pick_ups):
    enqueue_many(app.noop, [()] * 5)
    app.noop.using(queue="other", run_at=dt.timedelta(hours=1)).enqueue()
    FinishedJob.objects.create(
        id=10**9,
        worker_id=1,
        run_seconds=0,
        priority=0,
        attempts=1,
        lost=0,
        queue="default",
        **dict.fromkeys(("enqueued_at", "run_at", "first_started_at", "started_at"), "2024-01-01T00:00Z"),
        task="x",
        backend="",
        args=[],
        kwargs={},
        metadata={},
        errors=[],
    )
    DeadJob.objects.create(
        id=10**9 + 1,
        run_at="2024-01-01T00:00Z",
        enqueued_at="2024-01-01T00:00Z",
        reason="exhausted",
        queue="default",
        task="x",
    )
    before = everything()
    out = io.StringIO()
    call_command("pgqueue_bench", jobs=50, history=True, yes=True, stdout=out, verbosity=0)
    assert everything() == before
    assert "Measured beside jobs of other queues" in out.getvalue()


@real
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name)
def test_bench_that_is_interrupted_leaves_nothing(start_bench, number):
    bench = start_bench("--jobs", "2000", "--sleep-ms", "100", "--history")

    def is_in_the_middle():
        """the workers run the backlog"""
        assert bench.process.poll() is None, bench.text()
        running = Job.objects.filter(queue=QUEUE, status="running")
        return "Drain" in bench.text() and FinishedJob.objects.filter(queue=QUEUE).exists() and running.exists()

    eventually(is_in_the_middle)
    bench.process.send_signal(number)
    assert bench.wait() == 128 + number, bench.text()
    assert of_the_bench() == [0, 0, 0, 0]
    assert "Interrupted. The bench's jobs are removed." in bench.text()


@real
def test_worker_of_a_bench_that_was_killed_ends_and_the_next_bench_removes_its_rows(start_bench, few_pick_ups):
    bench = start_bench("--jobs", "2000", "--sleep-ms", "100")
    eventually(lambda: Job.objects.filter(queue=QUEUE, status="running").count() and "Drain" in bench.text())
    bench.process.kill()
    eventually(lambda: not Worker.objects.exists())
    assert Job.objects.filter(queue=QUEUE).count() > 1000
    call_command("pgqueue_bench", jobs=10, stdout=io.StringIO(), verbosity=0)
    assert of_the_bench() == [0, 0, 0, 0]


@real
def test_bench_whose_worker_dies_says_so_and_leaves_nothing(start_bench):
    bench = start_bench("--jobs", "2000", "--sleep-ms", "100")
    eventually(lambda: "Drain" in bench.text())
    [child] = Worker.objects.filter(name=QUEUE).values_list("pid", flat=True)
    os.kill(parent_of(child), signal.SIGKILL)
    assert bench.wait() == 1
    assert "The worker ended with exit code -9. Its last lines:" in bench.text()
    assert of_the_bench()[:3] == [0, 0, 0]


@real
def test_bench_refuses_to_start_beside_workers_that_would_take_its_jobs(register):
    register()  # all queues
    with pytest.raises(CommandError, match=r"Workers that serve all queues would take .*Stop them, or start them with"):
        call_command("pgqueue_bench", jobs=10, yes=True)
    assert of_the_bench() == [0, 0, 0, 0]


@real
def test_one_bench_at_a_time():
    with alone("default"), pytest.raises(CommandError, match="Another pgqueue_bench measures this database"):
        call_command("pgqueue_bench", jobs=10)


@pytest.mark.django_db
def test_bench_refuses_to_run_inside_a_transaction():
    with pytest.raises(CommandError, match="inside a transaction: its workers would not see the jobs"):
        call_command("pgqueue_bench", jobs=10)


def options(**changes) -> dict:
    parser = CommandParser()
    Command().add_arguments(parser)
    return {**vars(parser.parse_args([])), **changes}


def test_all_wrong_options_are_named_at_once():
    wrong = options(jobs=0, processes=0, concurrency=1001, sleep_ms="5-2", payload=-1)
    with pytest.raises(CommandError) as caught:
        load_from(wrong)
    for option in (
        "--jobs must be 1 to 1000000, not 0.",
        "--processes must be 1 to 256, not 0.",
        "--concurrency must be 1 to 1000, not 1001.",
        "--sleep-ms must be as 5 or 2-5, up to 60000 milliseconds, not 5-2.",
        "--payload must be 0 to ",
    ):
        assert option in str(caught.value)


def test_history_that_is_not_kept_cannot_be_measured(settings):
    settings.PGQUEUE = {"RETENTION_DAYS": 0}
    with pytest.raises(CommandError, match=r"PGQUEUE\['RETENTION_DAYS'\] is 0"):
        load_from(options(history=True))


@pytest.mark.parametrize(("text", "bounds"), [("0", (0, 0)), ("3", (3, 3)), ("0.5-2", (0.5, 2))])
def test_sleep_is_a_number_or_two(text, bounds):
    assert load_from(options(sleep_ms=text)).sleep_ms == bounds


@pytest.mark.parametrize("text", ["x", "-1", "2-", "1-2-3", "1-60001"])
def test_sleep_that_cannot_be_is_refused(text):
    with pytest.raises(CommandError, match="--sleep-ms"):
        load_from(options(sleep_ms=text))


def test_slots_are_what_sleeping_handlers_allow():
    assert Load(processes=2, concurrency=4, sleep_ms=(1, 3)).slots_per_second == 4000
    assert Load().slots_per_second is None


def test_tasks_of_the_bench_are_known_to_no_other_process():
    code = "import django; django.setup(); from django_pgqueue import registry; print(registry.known())"
    known = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert "tests.app.tasks.noop" in known
    assert "bench" not in known


@pytest.mark.parametrize(("count", "p50", "p99"), [(1, 1, 1), (2, 1, 2), (100, 50, 99), (101, 51, 100)])
def test_spread_is_the_nearest_rank(count, p50, p99):
    found = spread([number / 1000 for number in range(count, 0, -1)])
    assert (found.p50_ms, found.p99_ms, found.samples) == (p50, p99, count)


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [(0, "0 ms"), (0.0567, "0.057 ms"), (1.234, "1.23 ms"), (12.34, "12.3 ms"), (123.4, "123 ms"), (1234, "1.23 s")],
)
def test_durations_have_about_three_digits(milliseconds, text):
    assert duration(milliseconds) == text


def test_board_keeps_the_last_run_of_each_job(tmp_path):
    board = Board.make(tmp_path / "board", size=200)
    assert board.share_started(range(200)) == 0
    for number in range(100):
        board.note(number, attempt=1)
    Board(tmp_path / "board").note(7, attempt=2)
    runs = list(board.runs(range(6, 8)))
    assert [(run.pid, run.attempt) for run in runs] == [(os.getpid(), 1), (os.getpid(), 2)]
    assert runs[0].started_at <= runs[1].started_at
    assert board.share_started(range(200)) == 0.5
    assert [board.is_started(number) for number in (99, 100)] == [True, False]


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


def test_what_a_server_does_not_tell_is_unknown(sql):
    assert wal_bytes("default") > 0
    sql("CREATE ROLE pgqueue_bench_stranger")
    sql("REVOKE EXECUTE ON FUNCTION pg_current_wal_insert_lsn() FROM PUBLIC")
    sql("SET LOCAL ROLE pgqueue_bench_stranger")
    assert wal_bytes("default") is None
    assert sql("SELECT 1") == [(1,)]


def test_processor_time_of_a_process_that_is_gone_is_unknown():
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    assert cpu_seconds([gone.pid]) is None


def test_jobs_of_the_bench_alone_are_no_jobs_of_others(sql):
    sql("INSERT INTO pgqueue_jobs (task, queue) VALUES ('x', %s)", QUEUE)
    assert check_others("default", beside_others=False) is False
    sql("INSERT INTO pgqueue_jobs (task, queue) VALUES ('x', 'y')")
    assert check_others("default", beside_others=True) is True


def test_page_lists_every_option_with_its_default():
    page = (ROOT / "docs" / "reference" / "bench-command.md").read_text()
    rows = dict(re.findall(r"^\| `(--[\w-]+)` \| ([^|]+) \|", page, flags=re.MULTILINE))
    parser = CommandParser(add_help=False)
    Command().add_arguments(parser)
    actions = {action.option_strings[0]: action for action in parser._actions}
    assert set(rows) == set(actions)
    for option, action in actions.items():
        assert rows[option] == ("off" if action.default is False else f"`{action.default}`"), option
