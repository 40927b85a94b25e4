import contextlib
import shlex
from collections.abc import Sequence
from typing import Any

from django.core.management.base import CommandError, CommandParser
from django.db import transaction
from django.utils.translation import override

from django_pgqueue.cli.arguments import (
    add_by,
    add_database,
    add_json,
    check_database,
    check_failures,
    job_id,
    limit,
    on_each,
    sections,
)
from django_pgqueue.cli.command import QueueCommand
from django_pgqueue.conf import conf
from django_pgqueue.db.queries import bounded
from django_pgqueue.exceptions import WorkflowDoesNotExist
from django_pgqueue.insights.formatting import columns, grouped, json_text, plain, user, when
from django_pgqueue.models import Workflow
from django_pgqueue.states import StageStatus, WorkflowStatus
from django_pgqueue.workflows import StageState, WorkflowState, get

HEAD = ("id", "status", "begun", "ended", "name", "open stages")
STAGE_HEAD = ("stage", "status", "done", "live", "dead", "after")
MOST_NAMED = 3
LIMIT = 50


class Command(QueueCommand):
    help = "List and show workflows; kill them, retry their dead members, skip, seal or rerun their stages."

    def add_arguments(self, parser: CommandParser) -> None:
        actions = parser.add_subparsers(metavar="ACTION", required=True)
        for name, words, call in (
            ("list", "list workflows, the latest first", self._list),
            ("show", "show one workflow with its stages", self._show),
            ("kill", "kill open workflows, or a stage of them, with their members and children", self._kill),
            ("retry", "retry dead members; of stages that were skipped or killed only with --stage", self._retry),
            ("skip", "skip a stage, as if it had succeeded", self._skip),
            ("seal", "let a stage with sealed=False close", self._seal),
            ("rerun", "run stages again, and all after them, of a workflow with keep_calls=True", self._rerun),
        ):
            sub = actions.add_parser(name, help=words, description=words)
            sub.set_defaults(call=call)
            add_json(sub)
            add_database(sub, default="all that hold a queue" if name == "list" else "that of the ids")
            if name == "list":
                add_list(sub)
            elif name in ("kill", "retry"):
                sub.add_argument("ids", nargs="+", type=job_id, metavar="ID")
            else:
                sub.add_argument("id", type=job_id, metavar="ID")
            if name in ("skip", "seal"):
                sub.add_argument("stage", metavar="STAGE", help="its name")
            if name == "rerun":
                sub.add_argument("stages", nargs="+", metavar="STAGE", help="the names of those at which to begin")
            if name in ("kill", "retry"):
                sub.add_argument("--stage", metavar="NAME", help="this stage only")
            if name in ("kill", "retry", "skip", "rerun"):
                add_by(sub)

    @override("en")
    def handle(self, *args: Any, **options: Any) -> None:
        options["call"](options)

    def _list(self, options: dict[str, Any]) -> None:
        before = options["before"]
        chosen = options["database"] or (database_of([before]) if before is not None else None)
        found, failures = on_each(chosen, lambda alias: page(alias, options))
        if options["json"]:
            objects = [
                {"database": alias, "workflows": list(map(as_json, states)), "before": rest}
                for alias, (states, rest) in found.items()
            ]
            is_one = options["database"] or len(conf.databases) == 1  # as on the first page
            self.stdout.write(json_text(objects[0] if is_one else objects))
        elif text := sections({alias: told(*its) for alias, its in found.items()}, failures):
            self.stdout.write(text)
        check_failures(failures)

    def _show(self, options: dict[str, Any]) -> None:
        alias = checked_database(options, [options["id"]])
        with bounded(alias):
            state = get(options["id"], database=alias).state()
        if options["json"]:
            self.stdout.write(json_text(as_json(state)))
            return
        self.stdout.write(columns(HEAD, [cells(state)]))
        self.stdout.write("")
        self.stdout.write(columns(STAGE_HEAD, map(stage_cells, state.stages)))
        if state.is_stuck:
            self.stdout.write(plain(f"\n{remedy(state)}"))

    def _kill(self, options: dict[str, Any]) -> None:
        stage = options["stage"]
        self._each(
            options,
            lambda handle: handle.kill(stage=stage, by=options["by"] or user()),
            *((f"killed {stage}", f"{stage} was over, or killed") if stage else ("killed", "was not open")),
        )

    def _retry(self, options: dict[str, Any]) -> None:
        self._each(
            options,
            lambda handle: handle.retry(stage=options["stage"], by=options["by"] or user()),
            *("dead members are retried", "has no dead member to retry"),
        )

    def _skip(self, options: dict[str, Any]) -> None:
        options["ids"] = [options["id"]]
        self._each(
            options,
            lambda handle: handle.skip(options["stage"], by=options["by"] or user()),
            *(f"skipped {options['stage']}", f"{options['stage']} was over"),
        )

    def _seal(self, options: dict[str, Any]) -> None:
        options["ids"] = [options["id"]]
        self._each(
            options,
            lambda handle: handle.seal(options["stage"]),
            *(f"sealed {options['stage']}", f"{options['stage']} was sealed, or over"),
        )

    def _rerun(self, options: dict[str, Any]) -> None:
        options["ids"] = [options["id"]]
        self._each(
            options,
            lambda handle: handle.rerun(*options["stages"], by=options["by"] or user()),
            *("members run again", "has no member to run again"),
        )

    def _each(self, options: dict[str, Any], act: Any, done: str, not_done: str) -> None:
        """Act on each workflow, in one transaction; name those on which it had no effect."""
        alias = checked_database(options, options["ids"])
        handles = [get(workflow_id, database=alias) for workflow_id in dict.fromkeys(options["ids"])]
        with transaction.atomic(using=alias):
            # Raises if there is none.
            were_open = {handle: handle.status() is WorkflowStatus.OPEN for handle in handles}
            results = {handle.id: act(handle) for handle in handles}
            for handle, was_open in were_open.items():
                if was_open and handle.status() is WorkflowStatus.KILLED:
                    results[handle.id] = True  # also one that was killed with its parent
        if options["json"]:
            self.stdout.write(json_text([{"id": one, "result": result} for one, result in results.items()]))
        else:
            for one, result in results.items():
                number = "" if isinstance(result, bool) else f"{grouped(result)} "
                self.stdout.write(plain(f"{one}: {number}{done}." if result else f"{one}: {not_done}."))
        if not all(results.values()):
            raise CommandError(f"No effect on {', '.join(str(one) for one, result in results.items() if not result)}.")


def checked_database(options: dict[str, Any], ids: Sequence[int]) -> str:
    """Return the alias that is chosen, else that of the workflows' ids; raise CommandError if it cannot be used."""
    alias: str = options["database"] or database_of(ids)
    check_database(alias)
    return alias


def database_of(ids: Sequence[int]) -> str:
    """Return the alias of the database of the workflows with these ids."""
    found = list(dict.fromkeys(get(one).database for one in ids))
    if len(found) > 1:
        raise CommandError(f"The workflows are on {' and '.join(map(repr, found))}: name those of each by themselves.")
    return found[0]


def add_list(parser: CommandParser) -> None:
    parser.add_argument("--status", action="append", choices=list(WorkflowStatus.values), help="may be repeated")
    parser.add_argument("--name", help="of this name")
    parser.add_argument(
        "--limit", type=limit, default=LIMIT, metavar="N", help=f"maximum number, 1 to 10000; default: {LIMIT}"
    )
    parser.add_argument(
        "--before", type=job_id, metavar="ID", help="only those with smaller ids, as the last list says"
    )


def page(alias: str, options: dict[str, Any]) -> tuple[list[WorkflowState], int | None]:
    """Return the latest workflows of a database, and the id before which there are more, if there are."""
    rows, limit = Workflow.objects.using(alias).order_by("-id"), options["limit"]
    if options["status"]:
        rows = rows.filter(status__in=options["status"])
    if options["name"] is not None:
        rows = rows.filter(name=options["name"])
    if options["before"] is not None:
        rows = rows.filter(pk__lt=options["before"])
    with bounded(alias):
        ids = list(rows.values_list("pk", flat=True)[: limit + 1])
        states = [state for workflow_id in ids[:limit] if (state := state_of(workflow_id, alias)) is not None]
    return states, ids[limit - 1] if len(ids) > limit else None


def state_of(workflow_id: int, alias: str) -> WorkflowState | None:
    """Return the state of a workflow; None: it was removed by age after it was found."""
    with contextlib.suppress(WorkflowDoesNotExist):
        return get(workflow_id, database=alias).state()
    return None


def told(states: Sequence[WorkflowState], before: int | None) -> str:
    if not states:
        return "No workflow matches."
    more = f"\nThere are more: --before {before}" if before is not None else ""
    return f"{columns(HEAD, map(cells, states))}{more}"


def cells(state: WorkflowState) -> tuple[str, ...]:
    status = "stuck" if state.is_stuck else state.status
    opened = [stage for stage in state.stages if stage.status is StageStatus.OPEN]
    named = ", ".join(map(progress, opened[:MOST_NAMED])) + (", …" if len(opened) > MOST_NAMED else "")
    times = when(state.begun_at), when(state.ended_at, "-")
    return str(state.id), str(status), *times, state.name, named or "-"


def progress(stage: StageState) -> str:
    dead = f", {grouped(stage.dead)} dead" if stage.dead else ""
    return f"{stage.name} {grouped(stage.done)}/{grouped(stage.members)}{dead}"


def remedy(state: WorkflowState) -> str:
    """Return the way out of a workflow that is stuck."""
    [first, *_] = [stage for stage in state.stages if stage.is_stuck]
    if first.dead:
        return f"It waits for dead members. Fix the cause, then: pgqueue_workflows retry {state.id}"
    return (
        f"The stage {first.name} waits for a workflow of a member that has failed, or was killed. Go on without it: "
        f"pgqueue_workflows skip {state.id} {shlex.quote(first.name)}"
    )


def stage_cells(stage: StageState) -> tuple[str, ...]:
    number = "-" if stage.status is StageStatus.SKIPPED else grouped(stage.done)
    done = f"{number}/{grouped(stage.members)}"
    after = f"{stage.opens_when}: {', '.join(stage.after)}" if stage.after else "-"
    sealed = "" if stage.is_sealed else " (not sealed)"
    killed = f" (killed by {stage.killed_by or 'a user'})" if stage.killed_by is not None else ""
    rerun = f" (run again by {stage.rerun_by or 'a user'})" if stage.rerun_by is not None else ""
    return stage.name, f"{stage.status}{killed or sealed}{rerun}", done, grouped(stage.live), grouped(stage.dead), after


def as_json(state: WorkflowState) -> dict[str, Any]:
    """Return a workflow as the command prints it, without its context."""
    fields = ("id", "name", "status", "on_death", "unique_key", "begun_at", "ended_at", "deadline_at", "ended_by")
    of_stage = (
        *("id", "name", "status", "opens_when", "is_sealed", "collects", "members", "live", "dead", "done", "is_stuck"),
        *("killed_by", "rerun_by"),
    )
    return {
        **{name: getattr(state, name) for name in fields},
        "is_stuck": state.is_stuck,
        "stages": [
            {**{name: getattr(stage, name) for name in of_stage}, "after": list(stage.after)} for stage in state.stages
        ],
    }
