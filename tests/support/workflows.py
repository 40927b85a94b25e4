"""Workflows in any state, without a worker."""

from collections.abc import Iterable

from django_pgqueue import batch, workflow
from django_pgqueue.db.connections import CallerConnection
from django_pgqueue.jobs import kill
from django_pgqueue.models import DeadJob, Job, Stage
from django_pgqueue.testing import run_jobs
from django_pgqueue.workflows.advance import advance
from django_pgqueue.workflows.handle import WorkflowHandle
from tests.app.tasks import die_unless, noop, record


def stuck(**options) -> WorkflowHandle:
    """Begin a workflow of which two members succeed and one dies."""
    handle = batch(
        [record.bind("a"), record.bind("b"), die_unless.bind("c")], then=record.bind("then"), **options
    ).enqueue()
    run_jobs(errors="collect")
    return handle


def stage_of(handle: WorkflowHandle, name: str) -> Stage:
    return Stage.objects.get(pk__gte=handle.id << 16, pk__lt=handle.id + 1 << 16, name=name)


def finish(handle: WorkflowHandle, name: str, number: int) -> None:
    """Let members of a stage succeed, those that were enqueued first."""
    Job.objects.filter(pk__in=_first(stage_of(handle, name), number)).delete()


def die(handle: WorkflowHandle, name: str, number: int = 1) -> None:
    ids = _first(stage_of(handle, name), number)
    kill(ids, by="eve")
    error = {"kind": "failed", "error": "ValueError", "message": "no luck", "at": "2026-01-02T03:04:05+00:00"}
    DeadJob.objects.filter(pk__in=ids).update(reason="exhausted", errors=[error])


def look(handle: WorkflowHandle, *names: str, deaths: Iterable[str] = ()) -> None:
    """Close what is over, as a worker does behind its outcomes."""
    ids = {name: stage_of(handle, name).pk for name in names}
    advance(CallerConnection(), ids.values(), [ids[name] for name in deaths])


def plain(*names: str, **options) -> WorkflowHandle:
    """Begin a workflow with a stage of one member for each name, one after the other."""
    with workflow(**{"name": "plain", **options}) as flow:
        last = None
        for name in names:
            last = flow.add(noop.bind(), name=name, after=last)
    return flow.handle


def _first(stage: Stage, number: int) -> list[int]:
    return list(Job.objects.filter(stage_id=stage.pk).order_by("id").values_list("pk", flat=True)[:number])
