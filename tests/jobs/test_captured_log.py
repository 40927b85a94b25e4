"""Log lines of a run, as they are stored: bounded, and without sensitive values."""

import logging

import pytest

import tests.app.tasks as app
from django_pgqueue.jobs import captured_log
from django_pgqueue.jobs.captured_log import FIRST_LINES, LAST_LINES, LONGEST_LINE, MOST_BYTES, CapturedLog, split
from django_pgqueue.jobs.direct_run import make_job


def record(text: str, *args: object, level: int = logging.INFO, created: float = 1e9, **more) -> logging.LogRecord:
    made = logging.LogRecord("shop.tasks", level, __file__, 1, text, args, more.get("exc_info"))
    made.created = created
    return made


def log_of(*records: logging.LogRecord, **job) -> CapturedLog:
    made = CapturedLog(make_job(app.noop, attempt=1, run_at=0.0, **job))
    for one in records:
        made.add(one)
    return made


def test_a_line_has_its_time_level_logger_and_text():
    log = log_of(record("order %d", 7, created=1e9 + 0.25), record("done", level=logging.WARNING))
    assert log.text() == (
        "2001-09-09 01:46:40.250Z INFO shop.tasks: order 7\n2001-09-09 01:46:40.000Z WARNING shop.tasks: done"
    )
    assert bool(log) is True
    assert not log_of()


def test_a_traceback_follows_its_line():
    try:
        raise ValueError("no luck")
    except ValueError as error:
        log = log_of(record("failed", exc_info=(type(error), error, error.__traceback__)))
    assert "shop.tasks: failed\nTraceback (most recent call last):\n" in log.text()
    assert log.text().endswith("ValueError: no luck")


def failed(line: str, error: str) -> logging.LogRecord:
    raised = ValueError(error)
    return record(line, exc_info=(ValueError, raised, None))


def test_the_end_of_a_long_traceback_is_kept_below_a_long_line():
    text = log_of(failed("x" * 5000, "y" * 5000 + "no luck")).text()
    assert "x" * LONGEST_LINE + "…\n" in text
    assert text.endswith("y" * (LONGEST_LINE - 7) + "no luck")


@pytest.mark.parametrize("more", [0, 1, 500])
def test_the_first_and_the_last_lines_are_kept(more, monkeypatch):
    monkeypatch.setattr(captured_log, "MOST_BYTES", 10**6)
    number = FIRST_LINES + LAST_LINES + more
    lines = log_of(*(record("n%d", one) for one in range(number))).text().splitlines()
    kept = [line.rpartition(" ")[2] for line in lines]
    assert kept[:FIRST_LINES] == [f"n{one}" for one in range(FIRST_LINES)]
    assert kept[-LAST_LINES:] == [f"n{one}" for one in range(number - LAST_LINES, number)]
    assert lines[FIRST_LINES:-LAST_LINES] == ([f"[… {more} lines left out …]"] if more else [])


def test_all_lines_together_are_bounded_in_bytes():
    text = log_of(*(record("ä" * 500) for _ in range(100)), record("the end")).text()
    assert len(text.encode()) <= MOST_BYTES + 50
    assert text.startswith("2001")
    assert "\n[… left out …]\n" in text
    assert text.endswith("the end")
    assert log_of(record("x" * 5000)).text().endswith("x" * LONGEST_LINE + "…")


def test_text_that_the_database_refuses_is_replaced():
    assert log_of(record("a\0b\ud800c")).text().endswith("a\ufffdb?c")


def test_sensitive_values_are_left_out(registry_of):
    def login(password):
        pass

    task = registry_of(login)

    def log(secret, text, error=""):
        made = CapturedLog(make_job(task, attempt=1, run_at=0.0, args=f'["{secret}"]'))
        made.add(failed(text, error) if error else record(text))
        return made.text()

    assert log("hunter22", "trying hunter22").endswith("trying [redacted]")
    long = "s" * (captured_log.SPARE + 1)
    assert log(long, "x" * LONGEST_LINE + long).endswith("tasks: [redacted]")
    end = "y" * (LONGEST_LINE - 4)
    assert log("hunter22", "failed", "y" * 5000 + "hunter22" + end).endswith(f"failed\n[redacted]{end}")
    assert log(long, "failed", long + end).endswith("failed\n[redacted]")


def test_progress_and_lines_are_told_apart():
    assert split(None) == (None, "")
    assert split({"done": 1}) == ({"done": 1}, "")
    assert split({"log": "a", "attempt": 1}) == (None, "a")
    assert split({"done": 1, "log": "a"}) == ({"done": 1}, "a")
    assert split([1]) == ([1], "")


def test_the_level_is_that_of_the_task_or_of_all_tasks(settings, registry_of):
    def one():
        pass

    def other():
        pass

    def third():
        pass

    warned, silent, default = (
        registry_of(one, capture_logs="WARNING"), registry_of(other, capture_logs=False), registry_of(third)
    )  # fmt: skip
    assert list(map(captured_log.level_of, (warned, silent, default))) == [logging.WARNING, 0, 0]
    settings.PGQUEUE = {"TASK_DEFAULTS": {"capture_logs": "INFO"}}
    assert list(map(captured_log.level_of, (warned, silent, default))) == [logging.WARNING, 0, logging.INFO]
