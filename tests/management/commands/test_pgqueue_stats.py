"""Output of pgqueue_stats, from real rows; its live view is in tests/processes/test_stats_watch.py."""

import datetime as dt
import json
import re
from io import StringIO

import pytest
from django.core.management import CommandError, call_command
from django.db import connection, transaction

import tests.app.tasks as app
from django_pgqueue import enqueue_many, pause_queue
from django_pgqueue.cli.stats import COLUMNS, Piece, Style, clipped, in_height, painted, rows_of, short, snapshot, table
from django_pgqueue.cli.stats_watch import TerminalSize, view_in
from django_pgqueue.insights import overview
from django_pgqueue.insights.formatting import columns, cut, width
from django_pgqueue.jobs.claim import claim
from django_pgqueue.jobs.stats import BUCKETS
from django_pgqueue.models import Queue, Stat, Worker
from tests.support.plans import nodes_of
from tests.support.worker_rows import forget_others, worker

pytestmark = pytest.mark.django_db(transaction=True)

MANY = 1000


def run(*words, **options) -> str:
    out = StringIO()
    call_command("pgqueue_stats", *words, stdout=out, **options)
    return out.getvalue()


def told(*words) -> dict:
    return json.loads(run("--json", *words))


def stats(sql, queue="default", task="t", *, minutes_ago=1, **values) -> None:
    """Count something in a minute that is over, by the database's clock."""
    columns = ", ".join(values)
    sql(
        f"INSERT INTO pgqueue_stats (minute, queue, task, {columns}) VALUES (date_trunc('minute', now()) "
        f"- make_interval(mins => %s), %s, %s, {', '.join(['%s'] * len(values))})",
        *(minutes_ago, queue, task, *values.values()),
    )


def up_to_one_second(number: int) -> list[int]:
    return [0] * 9 + [number]


def texts(lines) -> list[str]:
    return [painted(line, has_colours=False) for line in lines]


def cells(line: str) -> list[str]:
    return re.split(r" {2,}", line.strip())


def test_table_tells_how_queues_stand_and_get_on(queue, sql):
    forget_others(sql)
    worker(concurrency=4)
    enqueue_many(app.noop, [()] * 3)
    claim(queue, "default", limit=1, worker_id=Worker.objects.get().pk)
    stats(sql, succeeded=594, failed=6, retried=4, died=2, wait_buckets=up_to_one_second(600))
    headline, *_, group, head, default = run().splitlines()
    assert re.fullmatch(r"\d\d:\d\d:\d\d  1 worker alive, 1 process, 1 of 4 slots busy\. All is well\.", headline)
    assert cells(group) == ["per minute", "wait", "run"]
    shown = dict(zip(cells(head)[:15], cells(default)[:15], strict=True))
    assert shown == {
        "queue": "default",
        "queued": "2",
        "scheduled": "0",
        "waiting": "0",
        "running": "1",
        "dead": "0",
        "oldest": shown["oldest"],
        "workers": "1",
        "succeeded": shown["succeeded"],
        "failed": shown["failed"],
        "retried": shown["retried"],
        "died": shown["died"],
        "lost": "-",
        "stale": "-",
        "p50": "750ms",
    }
    assert 99.0 <= float(shown["succeeded"]) <= 119.0, "594 in five minutes and a part of one"
    assert 0.9 <= float(shown["failed"]) <= 1.3


def test_json_tells_numbers(queue, sql):
    forget_others(sql)
    worker(concurrency=4)
    enqueue_many(app.noop, [()] * 3)
    claim(queue, "default", limit=1, worker_id=Worker.objects.get().pk)
    buckets = up_to_one_second(600)
    stats(sql, succeeded=600, lost=3, stale=2, wait_seconds=300.0, wait_buckets=buckets, run_buckets=buckets)
    said = told()
    assert said["workers"] == {"commands": 1, "processes": 1, "slots": 4, "busy": 1}
    assert dt.datetime.fromisoformat(said["at"]).tzinfo is not None
    assert said["findings"] == []
    seconds = said["window_seconds"]
    assert 300 <= seconds <= 361
    [default] = said["queues"]
    assert default["counts"] == {"succeeded": 600, "failed": 0, "retried": 0, "died": 0, "lost": 3, "stale": 2}
    assert default["per_minute"]["succeeded"] == pytest.approx(600 * 60 / seconds, rel=1e-3)
    assert default["wait_seconds"] == {"mean": 0.5, "p50": 0.75, "p95": 0.975, "p99": 0.995}
    assert default["run_seconds"]["mean"] == 0.0
    assert default["drain_seconds"] == pytest.approx(2 * seconds / 600, rel=1e-3)
    assert {name: default[name] for name in ("queued", "running", "dead", "workers", "at_least")} == {
        "queued": 2,
        "running": 1,
        "dead": 0,
        "workers": 1,
        "at_least": [],
    }
    assert default["oldest_runnable_seconds"] >= 0
    assert "tasks" not in default


def test_tasks_are_told_below_their_queue_the_one_that_took_most_time_first(sql):
    Queue.objects.create(name="mail")
    stats(sql, "mail", "quick", succeeded=10, run_seconds=1.0)
    stats(sql, "mail", "slow", succeeded=1, run_seconds=60.0, run_buckets=[0] * 14 + [1])
    names = [cells(line)[0] for line in run("--tasks").splitlines()[-3:]]
    assert names == ["mail", "slow", "quick"]
    [mail] = told("--tasks")["queues"]
    assert [task["name"] for task in mail["tasks"]] == ["slow", "quick"]
    assert mail["tasks"][0]["run_seconds"]["p50"] == 45.0


def test_numbers_that_stopped_counting_say_so(monkeypatch):
    monkeypatch.setattr(overview, "CAPS", (3,))
    enqueue_many(app.noop, [()] * 5)
    assert "3+" in cells(run("--queue", "default").splitlines()[-1])
    [default] = told()["queues"]
    assert (default["queued"], default["at_least"]) == (3, ["queued"])


def test_each_finding_is_told_on_one_line(sql):
    forget_others(sql)
    enqueue_many(app.noop.using(queue="a\x1b[1m\nb"), [()])
    headline, finding, free, *_ = run().splitlines()
    assert headline.endswith("No worker is alive. 1 finding:")
    assert finding == "error   no-workers: No worker is alive, and jobs wait in: a?[1m b."
    assert not free
    assert [one["name"] for one in told()["findings"]] == ["no-workers"]


def test_chosen_queues_are_told_alone(sql):
    for name in ("a", "b", "c"):
        Queue.objects.create(name=name)
    assert [queue["name"] for queue in told("--queue", "c", "--queue", "a")["queues"]] == ["a", "c"]


def test_unknown_queue_is_told_by_name():
    with pytest.raises(CommandError, match=re.escape("No job has been seen on 'no\\x1bne'.")):
        run("--queue", "no\x1bne")


def test_nothing_to_see():
    assert run().splitlines()[-1] == "There are no queues yet."
    assert told()["queues"] == []


def test_names_do_nothing_to_the_terminal_and_wide_ones_keep_the_columns_straight():
    for name in ("plain", "寿司ツナ", "cafe\u0301", "red\x1b[31m", "turn\u202earound"):
        Queue.objects.create(name=name)
    *_, head, _, _, _, _, _ = lines = run().splitlines()
    shown = {line.split()[0]: len(line) - len(head) for line in lines[-5:]}
    assert shown == {"plain": 0, "寿司ツナ": -4, "cafe\u0301": 1, "red?[31m": 0, "turn?around": 0}
    text = run()
    assert not [character for character in text if not character.isprintable() and character != "\n"]
    assert "寿司ツナ" in text


def test_thousand_queues_are_told_in_bounded_time(sql):
    sql("INSERT INTO pgqueue_queues (name) SELECT 'q' || to_char(n, 'FM0000') FROM generate_series(1, %s) AS n", MANY)
    sql(
        "INSERT INTO pgqueue_stats (minute, queue, task, succeeded, wait_buckets) SELECT "
        "date_trunc('minute', now()) - make_interval(mins => m), 'q' || to_char(n, 'FM0000'), 't' || t, 7, '{1,2,4}' "
        "FROM generate_series(1, %s) AS n, generate_series(0, 5) AS m, generate_series(1, 3) AS t",
        MANY,
    )
    lines = run().splitlines()
    assert len(lines) >= MANY + 4
    glance = snapshot()
    assert len(glance.queues) == MANY
    shown = texts(view_in(TerminalSize(100, 30), glance))
    assert len(shown) == 30
    assert shown[-1] == f"… and {MANY - 25 + len(glance.findings):,} more queues"
    assert max(map(width, shown)) <= 100


def test_narrow_terminal_leaves_out_what_matters_least(queue, sql):
    enqueue_many(app.noop.using(queue="a-queue-with-a-rather-long-name-that-no-one-types"), [()] * 3)
    rows = list(rows_of(snapshot()))
    heads = {wide: cells(texts(table(rows, COLUMNS, head="queue", wide=wide))[-2]) for wide in (250, 120, 80, 60)}
    assert len(heads[250]) == 1 + len(COLUMNS)
    assert {"oldest", "queued", "succeeded", "p95"} <= set(heads[120])
    assert {"oldest", "queued", "succeeded", "failed"} <= set(heads[60])
    assert len(heads[60]) < len(heads[80]) < len(heads[120])
    for wide in heads:
        assert all(width(line) <= wide for line in texts(table(rows, COLUMNS, head="queue", wide=wide)))
    assert texts(table(rows, COLUMNS, head="queue", wide=80))[-1].startswith("a-queue…")


def test_low_terminal_shows_the_queues_with_most_to_do(sql):
    for name in ("a", "b", "d"):
        Queue.objects.create(name=name)
    enqueue_many(app.noop.using(queue="c"), [()] * 3)
    shown = in_height(list(rows_of(snapshot())), 1)
    assert [row.name.text for [row] in shown] == ["c"]


@pytest.mark.parametrize("high", range(1, 12))
@pytest.mark.parametrize("wide", [1, 5, 20, 79])
def test_any_terminal_is_enough(wide, high, sql):
    enqueue_many(app.noop.using(queue="寿司"), [()])
    pause_queue("寿司", by="eve")
    lines = texts(view_in(TerminalSize(wide, high), snapshot()))
    assert len(lines) <= high
    assert all(width(line) <= wide for line in lines)


def test_colours_are_only_where_they_are_wanted(sql):
    enqueue_many(app.noop, [()])
    assert "\x1b[" not in run()
    assert "\x1b[1;31merror" in run("--force-color")
    assert "\x1b[" not in run("--no-color")


def test_reading_that_takes_too_long_is_stopped_and_says_what_helps(settings, queue):
    settings.PGQUEUE = {**settings.PGQUEUE, "ADMIN_TIMEOUT_SECONDS": 0.2}
    with queue.autocommit().transaction():
        queue.autocommit().execute("LOCK TABLE pgqueue_jobs IN ACCESS EXCLUSIVE MODE")
        with pytest.raises(CommandError, match=r"took longer than 0\.2 s and was stopped"):
            run()


def test_no_statement_reads_a_table_of_jobs_to_its_end(queue, sql):
    """A tenth of what is there is more than enough for whatever is counted up to a limit."""
    statements = []

    def record(execute, text, parameters, many, context):
        statements.append((str(text), parameters))
        return execute(text, parameters, many, context)

    sql(
        "INSERT INTO pgqueue_jobs (task, queue, run_at, status) "
        "SELECT 't', 'default', now() - interval '1 hour', 'queued' FROM generate_series(1, 50000)"
    )
    sql("ANALYZE pgqueue_jobs")
    with connection.execute_wrapper(record):
        snapshot()
    read = 0
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET LOCAL enable_seqscan = off; SET LOCAL enable_bitmapscan = off; SET LOCAL enable_sort = off")
        for text, parameters in statements:
            if "pgqueue_jobs" in text and text.lstrip().startswith(("SELECT", "WITH", "--")):
                cursor.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {text}", parameters)
                [(plan,)] = cursor.fetchall()
                plan = plan if isinstance(plan, list) else json.loads(plan)
                read += sum(
                    node["Actual Rows"] * node["Actual Loops"]
                    for node in nodes_of(plan)
                    if node.get("Relation Name") == "pgqueue_jobs"
                )
    assert 10_000 < read < 30_000


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--minutes", "0"], "it looks back 1 to 1440 minutes, not 0"),
        (["--minutes", "many"], "it looks back 1 to 1440 minutes, not many"),
        (["--watch", "0.5"], "the pause is 1 to 3600 seconds, not 0.5"),
        (["--database", "nowhere"], "'nowhere' is not in DATABASES"),
    ],
)
def test_words_that_cannot_work_are_told(words, message):
    with pytest.raises(CommandError, match=re.escape(message)):
        run(*words)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        *((0.0004, "<1ms"), (0.012, "12ms"), (1.24, "1.2s"), (59.4, "59s"), (60, "1m"), (75, "1m15s")),
        *((3725, "1h2m"), (90_000, "1d1h"), (86_400, "1d")),
    ],
)
def test_durations_are_short(seconds, text):
    assert short(seconds) == text


def test_text_is_cut_by_its_width():
    assert width("寿司") == 4
    assert width("e\u0301") == 1
    assert cut("寿司寿司寿司", 7) == "寿…寿司" or width(cut("寿司寿司寿司", 7)) <= 7
    assert cut("shop.tasks.send_receipt", 11) == "shop.…ceipt"
    assert columns(["name", "n"], [["寿司", 1], ["ab", 2]]).splitlines() == ["name  n", "寿司  1", "ab    2"]
    line = [Piece("寿司", Style.BAD), Piece("abcdef")]
    assert painted(clipped(line, 7), has_colours=False) == "寿司ab…"


def test_what_was_not_counted_has_no_percentile(sql):
    Queue.objects.create(name="idle")
    Stat.objects.all().delete()
    [idle] = told()["queues"]
    assert idle["wait_seconds"] == {"mean": None, "p50": None, "p95": None, "p99": None}
    assert idle["drain_seconds"] == 0.0


def test_what_took_longer_than_the_last_bucket_is_only_known_to_be_longer(sql):
    Queue.objects.create(name="slow")
    stats(sql, "slow", succeeded=1, run_buckets=[0] * (BUCKETS - 1) + [1])
    assert "4h+" in run()
