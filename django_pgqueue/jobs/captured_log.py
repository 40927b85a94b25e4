"""Log lines of a run, which are stored with its job: bounded, and without sensitive values.

They are a key of the job's progress, as that is written while a job runs and kept when it ends; and of the entry of a
failed attempt in the history.
"""

import functools
import logging
import time
import traceback
from collections import deque
from collections.abc import Mapping
from typing import Any

from django_pgqueue import registry
from django_pgqueue.jobs.redaction import REDACTED, Scrub, Scrubber, scrub_end, scrubber_of
from django_pgqueue.records import ClaimedJob

LOG = "log"
"""Key in the progress of a job, and in entries of its history."""

FIRST_LINES, LAST_LINES = 40, 160
"""Maximum numbers of lines from the begin and from the end of a run."""

LONGEST_LINE = 1000
"""Maximum number of characters of a line, and of the end of the traceback below it."""

SPARE = 1000
"""Number of characters behind the end of a line, or before that of a traceback, in which sensitive values are found."""

MOST_BYTES = 8 * 1024
"""Maximum size of the lines of a run. A quarter is for its begin."""


NONE = 1000  # a level above all

Line = tuple[float, str, str, str, str]  # seconds since 1970, level, logger, text, traceback


class CapturedLog:
    """Lines of one run. ``add`` is called by its thread, ``text`` by the consumer, too."""

    def __init__(self, job: ClaimedJob) -> None:
        task = registry.find(job.task)
        self.level: int = (level_of(task) if task else 0) or NONE
        self.since: float = 0.0  # when the first line was added
        self._job: ClaimedJob = job
        self._scrub: Scrub | None = None
        self._first: list[Line] = []
        self._last: deque[Line] = deque(maxlen=LAST_LINES)
        self._left_out: int = 0

    def add(self, record: logging.LogRecord) -> None:
        text, trace = record.getMessage()[: LONGEST_LINE + SPARE], ""
        if record.exc_info and record.exc_info[1] is not None:
            trace = "".join(traceback.format_exception(record.exc_info[1])).rstrip()[-LONGEST_LINE - SPARE - 1 :]
        line = record.created, record.levelname, record.name, text, trace
        if len(self._first) < FIRST_LINES:
            self.since = self.since or record.created
            self._first.append(line)
            return
        self._left_out += len(self._last) == LAST_LINES
        self._last.append(line)

    def __bool__(self) -> bool:
        return self.since > 0.0

    def text(self) -> str:
        """Return the lines as one text, which can be stored."""
        if self._scrub is None:
            self._scrub = scrubber_of(registry.find(self._job.task), self._job)
        lines = [_printed(line, self._scrub) for line in self._first]
        if self._left_out:
            lines.append(f"[… {self._left_out:,} lines left out …]")
        lines += [_printed(line, self._scrub) for line in self._last.copy()]
        return _bounded("\n".join(lines))


def _printed(line: Line, scrub: Scrub) -> str:
    created, level, logger, text, trace = line
    longest = max(map(len, scrub.spellings), default=0) if isinstance(scrub, Scrubber) else 0
    text = REDACTED if longest > SPARE and len(text) == LONGEST_LINE + SPARE else scrub(text)
    if len(text) > LONGEST_LINE:
        text = f"{text[:LONGEST_LINE]}…"
    if trace:
        is_cut = len(trace) > LONGEST_LINE + SPARE
        text += "\n" + (REDACTED if longest > SPARE and is_cut else scrub_end(scrub, trace, LONGEST_LINE))
    return f"{_second(int(created))}.{int(created % 1 * 1000):03}Z {level} {logger}: {text}"


@functools.lru_cache(maxsize=16)
def _second(seconds: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(seconds))


def _bounded(text: str) -> str:
    kept = text.replace("\0", "\ufffd").encode(errors="replace")
    if len(kept) > MOST_BYTES:
        kept = kept[: MOST_BYTES // 4] + "\n[… left out …]\n".encode() + kept[-MOST_BYTES * 3 // 4 :]
    return kept.decode(errors="ignore")


def level_of(task: registry.TaskDefinition) -> int:
    """Return the level from which on lines of the task's jobs are captured; 0: none is."""
    name = task.capture_logs_from
    return logging.getLevelNamesMapping()[name] if name else 0


def split(progress: Any) -> tuple[Any, str]:
    """Return the progress of a job without its log lines, None if there is nothing else, and the lines."""
    if not isinstance(progress, Mapping) or LOG not in progress:
        return progress, ""
    told = {name: value for name, value in progress.items() if name != LOG}
    return (told if "done" in told else None), str(progress[LOG])
