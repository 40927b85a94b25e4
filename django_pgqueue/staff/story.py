"""Everything about one job: where it is and why, what has happened to it, what it was given.

What is sensitive in its arguments is left out of all of it.
"""

from typing import Any

from django.db.models import Model
from django.utils import timezone

from django_pgqueue import tasks
from django_pgqueue.base.served import Served
from django_pgqueue.base.states import NEVER, Reason, Status
from django_pgqueue.lifecycle.redact import scrub_json, scrubber, shown, shown_by_name
from django_pgqueue.models import DeadJob, FinishedJob, Job, Queue, Worker
from django_pgqueue.staff.queues import PAUSED, limits_of, pause_of
from django_pgqueue.staff.rows import local, status_of

Story = dict[str, Any]

TIMES = (
    "enqueued_at",
    "run_at",
    "first_started_at",
    "started_at",
    "lease_until",
    "expires_at",
    "died_at",
    "finished_at",
    "prune_at",
)
OPTIONS = (
    "timeout_seconds",
    "lease_seconds",
    "keep",
    "keep_seconds",
    "lost",
    "run_seconds",
    "unique_key",
    "unique_scope",
    "unique_for_seconds",
    "concurrency_key",
    "concurrency_limit",
    "concurrency_slot",
    "concurrency_strict",
    "fair_key",
    "parent_id",
    "schedule_id",
    "cancelled_by",
    "backend",
)
DIED: dict[str, str] = {
    Reason.EXHAUSTED: "Every attempt has failed.",
    Reason.DISCARDED: "The task raised Discard: there is no point in another attempt.",
    Reason.LOST: "Its workers died, more often than it may be attempted.",
    Reason.KILLED: "It was killed by {by}.",
    Reason.EXPIRED: "It was not started before its deadline.",
    Reason.UNKNOWN_TASK: "No worker knew its task for a day.",
    Reason.SUPERSEDED: "A newer job has its unique key.",
}


def find(job_id: int, alias: str) -> Model | None:
    """Return the job, in whichever table it is; the first is looked at again, for jobs move."""
    for model in (Job, DeadJob, FinishedJob, Job):
        found: Model | None = model.objects.using(alias).filter(pk=job_id).first()
        if found is not None:
            return found
    return None


def story_of(job: Any, alias: str) -> Story:
    """Return all that there is to say, fit for people."""
    task = tasks.find(job.task)
    args, kwargs = shown(task, job.args, job.kwargs)
    story = {
        "id": job.pk,
        "task": job.task,
        "status": status_of(job),
        "why": why(job, alias),
        "queue": job.queue,
        "priority": job.priority,
        "attempts": job.attempts,
        "max_attempts": getattr(job, "max_attempts", None),
        "args": args,
        "kwargs": kwargs,
        "times": {name: at for name in TIMES if (at := getattr(job, name, None)) not in (None, NEVER)},
        "options": {name: value for name in OPTIONS if (value := getattr(job, name, None)) not in (None, "")},
        "metadata": shown_by_name(job.metadata),
        "progress": shown_by_name(job.progress),
        "result": shown_by_name(getattr(job, "result", None)),
        "history": job.errors,
    }
    scrubbed: Story = scrub_json(story, scrubber(task, job.args, job.kwargs))
    return scrubbed


def why(job: Any, alias: str) -> str:
    """Say in a few sentences why it is where it is, and what to do where something can be done."""
    if isinstance(job, DeadJob):
        why_dead = DIED.get(job.reason, job.reason).format(by=job.cancelled_by or "somebody")
        return f"{why_dead} To send it back: manage.py pgqueue_jobs requeue {job.pk}"
    if isinstance(job, FinishedJob):
        return f"Attempt {job.attempts} succeeded after {job.run_seconds:.3g} s."
    return {
        Status.SCHEDULED: _scheduled,
        Status.QUEUED: _queued,
        Status.WAITING: _waiting,
        Status.RUNNING: _running,
        Status.HELD: _held,
    }[Status(job.status)](job, alias)


def _scheduled(job: Job, _alias: str) -> str:
    if job.run_at <= timezone.now():
        return "It is due: any worker queues it within a second."
    if job.attempts:
        return f"Attempt {job.attempts} of {job.max_attempts} has failed; the next is due at {_time(job.run_at)}."
    return f"It is due at {_time(job.run_at)}. At once: manage.py pgqueue_jobs run-now {job.pk}"


def _queued(job: Job, alias: str) -> str:
    if job.run_at > timezone.now():
        return f"It is due at {_time(job.run_at)}."
    gate = Queue.objects.using(alias).annotate(is_paused=PAUSED).filter(name=job.queue).first()
    if gate and gate.is_paused:
        return f"Its queue is paused {pause_of(gate)}."
    workers = Worker.objects.using(alias).filter(lease_until__gt=timezone.now())
    serving = [worker for worker in workers if Served.of(worker.queues).place(job.queue) is not None]
    if not serving:
        return f"No worker that is alive serves the queue {job.queue!r}. Start one: manage.py pgqueue_worker"
    limited = f" It is limited: {limits}." if gate and (limits := limits_of(gate)) else ""
    return f"It may run now, and waits for its turn: {len(serving)} worker process(es) serve the queue.{limited}"


def _waiting(job: Job, alias: str) -> str:
    if job.concurrency_key is None:
        return "It waits to be admitted."
    holders = Job.objects.using(alias).filter(concurrency_key=job.concurrency_key, concurrency_slot__isnull=False)
    ids = list(holders.order_by("concurrency_slot").values_list("pk", flat=True)[:10])
    if len(ids) < min(job.concurrency_limit or 1, 10):
        return f"A slot of its concurrency key {job.concurrency_key!r} is free: it waits for its turn."
    taken = ", ".join(map(str, ids))
    return f"All {job.concurrency_limit} slots of its concurrency key {job.concurrency_key!r} are taken: by {taken}."


def _running(job: Job, alias: str) -> str:
    worker = Worker.objects.using(alias).filter(pk=job.worker_id).first()
    where = str(worker) if worker else f"{job.worker_id}, which is not registered any more: it will be reaped"
    asked = f" {job.cancelled_by} has asked it to stop." if job.cancel_requested_at else ""
    return f"Attempt {job.attempts} of {job.max_attempts} runs since {_time(job.started_at)} on worker {where}.{asked}"


def _held(job: Job, _alias: str) -> str:
    return f"It has finished. Its unique key {job.unique_key!r} is held until {_time(job.run_at)}."


def _time(value: Any) -> str:
    return local(value).isoformat(sep=" ", timespec="seconds")


def text_of(story: Story) -> list[str]:
    """Return the story as lines: one for each value, those of lists and objects below their name."""
    return list(_lines(story, ""))


def _lines(value: Any, indent: str) -> Any:
    pairs = value.items() if isinstance(value, dict) else enumerate(value, 1)
    for name, item in pairs:
        if isinstance(item, dict | list) and item:
            yield f"{indent}{name}:"
            yield from _lines(item, f"{indent}    ")
        elif isinstance(item, str) and "\n" in item:
            yield f"{indent}{name}:"
            yield from (f"{indent}    {line}" for line in item.splitlines())
        elif item not in (None, {}, []):
            yield f"{indent}{name}: {_time(item) if hasattr(item, 'tzinfo') else item}"
