"""Choose jobs on the command line, confirm, and act on them."""

import contextlib
import signal
import threading
from collections.abc import Iterator, Mapping
from typing import Any

from django.core.management.base import CommandError, OutputWrapper
from django.db import Error

from django_pgqueue.exceptions import InvalidOption
from django_pgqueue.insights.formatting import Row, plain, rows_of, table
from django_pgqueue.jobs.actions import ACTIONS, Action, ActionResult, Ids
from django_pgqueue.jobs.bulk_actions import BulkActionResult, in_slices
from django_pgqueue.jobs.search import Filter, Source, pages

Options = Mapping[str, Any]

SLICE = 1000
SAMPLE = 10


def typed(action: Action) -> str:
    """Return the name of an action as it is typed."""
    return action.name.replace("_", "-")


def for_succeeded(action: Action) -> Action | None:
    """Return the action of the same name for succeeded jobs, which ``--succeeded`` chooses; None: there is none."""
    return next((one for one in ACTIONS if one.name == action.name and one.source is Source.SUCCEEDED), None)


def filter_from(options: Mapping[str, Any], kinds: tuple[str, ...] = ()) -> Filter:
    """Return the filter that the options choose; ``kinds`` are statuses or reasons."""
    older_than = options.get("older_than")
    return Filter(
        queues=tuple(options.get("queue") or ()),
        tasks=tuple(options.get("task") or ()),
        tags=tuple(options.get("tag") or ()),
        kinds=kinds,
        older_than_seconds=older_than.total_seconds() if older_than is not None else None,
        error=options.get("error"),
        unique_key=options.get("unique_key"),
    )


def must_choose(options: Mapping[str, Any]) -> None:
    """Raise CommandError unless jobs are chosen by ids, or by a filter, or all of them; by one way only."""
    given = [
        f"--{name.replace('_', '-')}"
        for name in ("queue", "task", "tag", "status", "reason", "older_than", "error", "unique_key", "all")
        if options.get(name) not in (None, False, [])
    ]
    if options["ids"] and given:
        raise CommandError(
            f"Jobs are chosen by ids or by a filter, not both: leave out the ids, or {', '.join(given)}."
        )
    if not options["ids"] and not given:
        raise CommandError("Say which jobs: give ids, a filter such as --queue or --older-than, or --all.")
    if options.get("succeeded") and options["reason"]:
        raise CommandError("Succeeded jobs have no --reason: leave it out, or --succeeded.")
    if options.get("succeeded") and options["unique_key"] is not None:
        raise CommandError("Succeeded jobs have no --unique-key: leave it out, or --succeeded.")


class SelectedJobs:
    def __init__(self, action: Action, options: Options, out: "ProgressLine") -> None:
        must_choose(options)
        self.action = (options.get("succeeded") and for_succeeded(action)) or action
        self.database = options["database"]
        self.source = self.action.source
        self.ids = list(dict.fromkeys(options["ids"]))
        self.tally = BulkActionResult()
        self.is_stopping = False  # Ctrl-C was pressed: begin no other slice
        self._options = options
        self._out = out
        self._statuses = tuple(options.get("status") or ())
        self._params = {action.param.name: options["to"]} if action.param else {}
        self._filter = filter_from(options, self._statuses or tuple(options.get("reason") or action.statuses))

    def slices(self) -> Iterator[Ids]:
        """Yield ids, up to 1,000 at a time; raise KeyboardInterrupt between slices once ``is_stopping``."""
        looked = 0
        for page_ids, page_looked in self._pages():
            looked += page_looked
            self._out.say(f"{looked:,} jobs looked at, {sum(self.tally.done.values()):,} done")
            if page_ids:
                yield page_ids
            if self.is_stopping:
                raise KeyboardInterrupt

    def _pages(self) -> Iterator[tuple[Ids, int]]:
        if self.ids:
            for at in range(0, len(self.ids), SLICE):
                yield self.ids[at : at + SLICE], len(self.ids[at : at + SLICE])
            return
        for page in pages(self.source, self._filter, database=self.database):
            yield page.ids, page.looked

    def sample(self) -> tuple[int, str]:
        count = 0
        rows: list[Row] = []
        for ids in self.slices():
            found = rows_of(self.source, ids, self.database) if self.ids or not rows else []
            count += len(found) if self.ids else len(ids)
            rows += found[: SAMPLE - len(rows)]
        return count, table(rows) if rows else ""

    def work(self) -> None:
        """Do it, a slice at a time; ``tally`` grows with each.

        Raises:
            CommandError: a queue or a priority cannot be, or the database has failed; with the numbers of jobs done.
            KeyboardInterrupt: after the slice that was under way; at once and rolling it back by a second Ctrl-C.
        """
        try:
            with self._patient():
                for _ in in_slices(self.slices(), self._act, tally=self.tally, database=self.database):
                    pass
        except InvalidOption as error:
            raise CommandError(str(error)) from error
        except Error as error:
            raise CommandError(f"{str(error).strip()}\nFinished slices stay. {self.done()}") from error

    @contextlib.contextmanager
    def _patient(self) -> Iterator[None]:
        """Let the first Ctrl-C wait for the end of the slice, so that its result is known."""
        if threading.current_thread() is not threading.main_thread():  # only there it may be said
            yield
            return

        def stop(*_: Any) -> None:
            self.is_stopping = True
            signal.signal(signal.SIGINT, before)

        before = signal.signal(signal.SIGINT, stop) or signal.default_int_handler
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)

    def _act(self, ids: Ids) -> ActionResult:
        return self.action.do(
            ids, by=self._options["by"], params=self._params, statuses=self._statuses, where=self.database
        )

    def done(self) -> str:
        counts = {change.label.format(**self._params): count for change, count in self.tally.done.items() if count}
        parts = [f"{plain(words)}: {count:,}." for words, count in counts.items()]
        return " ".join(parts) or "Nothing was changed."

    def as_json(self) -> dict[str, dict[str, int]]:
        """Return the numbers of jobs by their change, and by the reason why they were left alone."""
        return {
            "done": {change.value: count for change, count in self.tally.done.items() if count},
            "skipped": {why.value: count for why, count in self.tally.skipped.items()},
        }

    def skipped(self) -> str:
        return "\n".join(
            f"Left alone: {count:,} ({why.label}), as {', '.join(map(str, sorted(self.tally.examples[why])))}."
            for why, count in self.tally.skipped.items()
        )


class ProgressLine:
    """A line on a terminal that is written over and over; nothing elsewhere."""

    def __init__(self, out: OutputWrapper, *, is_silent: bool) -> None:
        self._out = out if out.isatty() and not is_silent else None
        self._width = 0

    def say(self, text: str) -> None:
        if self._out is not None:
            self._out.write(f"\r{text:<{self._width}}", style_func=str, ending="")
            self._out.flush()
            self._width = len(text)

    def end(self) -> None:
        if self._out is not None and self._width:
            self._out.write("", style_func=str)
            self._width = 0
