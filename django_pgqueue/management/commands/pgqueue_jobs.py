import json
import pdb  # noqa: T100 - for --pdb
import sys
from collections.abc import Mapping
from typing import Any

from django.core.management.base import CommandError, CommandParser
from django.core.serializers.json import DjangoJSONEncoder
from django.utils.translation import override

from django_pgqueue.cli import arguments
from django_pgqueue.cli.actions import ProgressLine, SelectedJobs, filter_from, typed
from django_pgqueue.cli.arguments import check_database
from django_pgqueue.cli.command import QueueCommand
from django_pgqueue.cli.trial import trial_of
from django_pgqueue.insights.explain import explanation_of, find, text_of
from django_pgqueue.insights.formatting import Row, confirms, plain, rows_of, table, user
from django_pgqueue.jobs.actions import ACTIONS, LIVE
from django_pgqueue.jobs.search import Source, pages
from django_pgqueue.states import DEAD, SUCCEEDED

INTERRUPTED = 130  # as a shell says of Ctrl-C

HELP = """
Enqueue a job; list and show jobs; retry, kill, move or purge many, by ids or by a filter. Many are changed in slices
of up to 1,000, each a transaction of its own. Jobs that another session is just changing are not waited for,
but left alone and named.
"""


class Command(QueueCommand):
    help = HELP

    def add_arguments(self, parser: CommandParser) -> None:
        arguments.tell_our_words(parser)
        actions = parser.add_subparsers(metavar="ACTION", required=True)
        for name, words, add, call in (
            ("enqueue", "enqueue a job and print its id; for cron and CI", arguments.add_enqueue, self._enqueue),
            ("list", "list jobs, the oldest first", arguments.add_list, self._list),
            ("show", "show one job: where it is, and why", arguments.add_show, self._show),
            ("try", "run one job here and roll back its writes", arguments.add_try, self._try),
        ):
            sub = actions.add_parser(name, help=words, description=words)
            arguments.tell_our_words(sub)
            add(sub)
            arguments.add_everywhere(sub, call)
        for action in (one for one in ACTIONS if one.source is not Source.SUCCEEDED):
            sub = actions.add_parser(typed(action), help=action.help, description=action.help)
            arguments.tell_our_words(sub)
            arguments.add_action(sub, action)
            arguments.add_everywhere(sub, self._act, action)

    def handle(self, *args: Any, **options: Any) -> None:
        is_routed = options["call"] == self._enqueue  # its job goes where the task, its queue and its keys say
        if not is_routed:
            options["database"] = options["database"] or arguments.database_of(options)
        try:
            if options["database"]:
                check_database(options["database"])
            options["call"](options)
        except UnicodeEncodeError as error:
            raise CommandError(f"{error.object!r} is not text: write it in the encoding of this terminal.") from error

    def _enqueue(self, options: dict[str, Any]) -> None:
        handle = arguments.enqueue_from(options)
        if options["json"]:
            self._print_json({"id": handle.id, "created": handle.created})
            return
        self.stdout.write(str(handle.id))
        if not handle.created:
            self.stderr.write("This job had the unique key already.")

    def _list(self, options: dict[str, Any]) -> None:
        rows, after = listed(options)
        if options["json"]:
            self._print_json({"jobs": rows, "after": after})
            return
        self.stdout.write(table(rows) if rows else "No job matches.")
        if after is not None:
            self.stdout.write(f"There are more: --after {after}")

    @override("en")
    def _show(self, options: dict[str, Any]) -> None:
        job_id = arguments.job_id_from(options)
        job = find(job_id, options["database"])
        if job is None:
            raise CommandError(f"There is no job {job_id}: it was never there, or is not kept any more.")
        story = explanation_of(job, options["database"])
        if options["json"]:
            self._print_json(story)
        else:
            self.stdout.write("\n".join(map(plain, text_of(story))))

    def _try(self, options: dict[str, Any]) -> None:
        debugger = debug if options["pdb"] else None
        trial = trial_of(arguments.job_id_from(options), options["database"], debugger)
        if options["json"]:
            self._print_json(trial.as_json())
        else:
            self.stdout.write("\n".join(map(plain, trial.lines())))
        if trial.error:
            raise CommandError(f"The task has raised {trial.error}.")

    @override("en")
    def _act(self, options: dict[str, Any]) -> None:
        options["by"] = options["by"] or user()
        progress = ProgressLine(self.stderr, is_silent=not options["verbosity"])
        many = SelectedJobs(options["action"], options, progress)
        try:
            if options["dry_run"]:
                self._show_sample(many, as_json=options["json"])
                return
            self._ask(many, options)
            many.work()
        except KeyboardInterrupt:
            progress.end()
            self.stderr.write(f"Interrupted. Finished slices stay. {many.done()}")
            sys.exit(INTERRUPTED)
        finally:
            progress.end()
        if options["json"]:
            self._print_json(many.as_json())
        else:
            self.stdout.write(many.done())
        if many.tally.skipped:
            raise CommandError(many.skipped())

    def _show_sample(self, many: SelectedJobs, *, as_json: bool = False) -> int:
        count, sample = many.sample()
        if as_json:
            self._print_json({"matching": count})
            return count
        self.stdout.write(
            f"{count:,} {'job matches' if count == 1 else 'jobs match'}." + (f" The first:\n{sample}" if sample else "")
        )
        return count

    def _ask(self, many: SelectedJobs, options: dict[str, Any]) -> None:
        if many.ids or not many.action.is_destructive or options["yes"]:
            return
        if options["json"]:
            raise CommandError(f"With --json nothing is asked: add --yes to {typed(many.action)} jobs by a filter.")
        if sys.stdin is None or not sys.stdin.isatty():
            raise CommandError(f"No terminal to ask at: add --yes to {typed(many.action)} jobs by a filter.")
        count = self._show_sample(many)
        if not count or not confirms(f"{many.action.question % {'count': count}} [y/N] "):
            raise CommandError("Nothing was changed.")

    def _print_json(self, value: Any) -> None:
        self.stdout.write(json.dumps(value, cls=DjangoJSONEncoder, ensure_ascii=False, indent=2))


def debug(error: BaseException) -> None:
    pdb.post_mortem(error.__traceback__)


def listed(options: Mapping[str, Any]) -> tuple[list[Row], int | None]:
    """Return up to ``limit`` jobs that match, the oldest first, and the id behind which there are more, if any.

    Raises:
        CommandError: the statuses are of more than one table.
    """
    source, kinds = _source(options["status"] or [], options["reason"] or [])
    if source is Source.SUCCEEDED and options["unique_key"] is not None:
        raise CommandError("Succeeded jobs have no --unique-key: leave out one of the two.")
    chosen, limit, database = filter_from(options, kinds), options["limit"], options["database"]
    ids: list[int] = []
    for page in pages(source, chosen, after_id=options["after"], database=database):
        ids += page.ids
        if len(ids) > limit:  # one more shows that there are more
            break
    after = ids[limit - 1] if len(ids) > limit else None
    return rows_of(source, ids[:limit], database), after


def _source(statuses: list[str], reasons: list[str]) -> tuple[Source, tuple[str, ...]]:
    apart = {DEAD, SUCCEEDED} & set(statuses)
    if (apart and len(statuses) > 1) or (reasons and statuses not in ([], [DEAD])):
        raise CommandError(
            f"Live, dead and succeeded jobs are listed apart, and only dead ones have a --reason; not --status "
            f"{', '.join(statuses)}{' with --reason' if reasons else ''}."
        )
    if reasons or apart == {DEAD}:
        return Source.DEAD, tuple(reasons)
    return (Source.SUCCEEDED, ()) if apart else (Source.LIVE, tuple(statuses) or LIVE)
