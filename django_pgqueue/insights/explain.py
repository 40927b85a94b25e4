"""Explain why a job is where it is."""

import datetime as dt
from collections.abc import Callable, Iterator
from operator import itemgetter
from typing import Any

from django.db.models import Model
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from django_pgqueue import registry
from django_pgqueue.conf import conf
from django_pgqueue.insights.formatting import Sentence, at, duration, job, named, say, status_of
from django_pgqueue.insights.formatting import text_of as text_of_sentence
from django_pgqueue.insights.history import entries_of, lines, log_of, timeline
from django_pgqueue.insights.position import WorkerSummary, obstacles, slots, turn, unknown, worker_ref
from django_pgqueue.jobs.captured_log import split
from django_pgqueue.jobs.redaction import scrub_json, scrubber, shown, shown_by_name
from django_pgqueue.models import DeadJob, Job, Stage, StageEdge, SucceededJob, Worker
from django_pgqueue.states import MAX_LOST, NEVER, DeathReason, EntryKind, Status, UniqueUntil
from django_pgqueue.stored_values import aware, seconds_between

MOST_NAMED = 5  # stages that a blocked job waits for

# Columns that are shown in other words, or mean nothing to people.
UNTOLD = {"lease_token", "worker_id", "has_waiters", "errors", "cause", "reason", "kill_requested_at"}


def why(one: Any, alias: str) -> list[Sentence]:
    """Return why a job from any of the three tables is where it is, the most important first."""
    if isinstance(one, DeadJob):
        return list(_dead(one, alias))
    if isinstance(one, SucceededJob):
        return list(_succeeded(one))
    return list(BY_STATUS[Status(one.status)](one, alias))


def _scheduled(one: Job, alias: str) -> Iterator[Sentence]:
    pool = WorkerSummary.of(one.queue, alias)
    if one.run_at <= timezone.now():
        yield say(_("It was due at {time}: a worker will queue it within a second."), time=one.run_at)
    else:
        yield _later(one)
    if one.concurrency_strict and one.concurrency_slot is not None:
        key = named("key", one.concurrency_key or "")
        yield say(_("Meanwhile it keeps its slot of the concurrency key {key}, so that none passes it."), key=key)
    yield from obstacles(one, pool, alias)
    yield from _deadline(one)


def _later(one: Job) -> Sentence:
    at_once = {"remedy": _("At once:"), "command": f"manage.py pgqueue_jobs run-now {one.pk}"}
    failed = [entry for entry in entries_of(one.errors) if entry.kind is EntryKind.FAILED]
    started_at = aware(one.started_at)
    if one.attempts and failed and (failed[-1].at is None or started_at <= failed[-1].at):
        return say(
            _("Attempt {number} of {most} has failed with {error}. It backs off; the next is due at {time}."),
            number=one.attempts,
            most=one.max_attempts,
            error=failed[-1].title,
            time=one.run_at,
            **at_once,
        )
    if started_at != NEVER:
        number = one.snoozes
        if registry.find(one.task) is None:
            words = _(
                "It was put back at {since}, by a worker that has no task of that name. It will be retried at {time}."
            )
        elif number:
            words = ngettext(
                "It ran at {since} and snoozed, as it has done {number} time. Due again at {time}.",
                "It ran at {since} and snoozed, as it has done {number} times. Due again at {time}.",
                number,
            )
        else:
            words = _("A worker took it at {since} and put it back; that is no attempt. Due again at {time}.")
        return say(words, since=one.started_at, time=one.run_at, number=number, **at_once)
    return say(_("It is due at {time}, as it was enqueued for."), time=one.run_at, **at_once)


def _queued(one: Job, alias: str) -> Iterator[Sentence]:
    pool = WorkerSummary.of(one.queue, alias)
    if one.run_at > timezone.now():
        yield say(_("It is due at {time}."), time=one.run_at)
    held_up = list(obstacles(one, pool, alias))
    yield from held_up
    if not held_up:
        yield say(_("It may run, and waits for its turn."))
    yield from turn(one, pool, alias, may_run=not held_up)
    yield from _deadline(one)


def _limited(one: Job, alias: str) -> Iterator[Sentence]:
    yield from slots(one, alias)
    yield from obstacles(one, WorkerSummary.of(one.queue, alias), alias)
    yield from _deadline(one)


def _running(one: Job, alias: str) -> Iterator[Sentence]:
    worker = Worker.objects.using(alias).filter(pk=one.worker_id).first()
    now = timezone.now()
    yield say(
        _("Attempt {number} of {most} runs since {since}, for {time}, on worker {worker}."),
        number=one.attempts,
        most=one.max_attempts,
        since=one.started_at,
        time=duration(seconds_between(one.started_at, now)),
        worker=worker_ref(worker) if worker else str(one.worker_id),
    )
    yield _lease(one, worker, now)
    if one.kill_requested_at is not None:
        yield say(
            _("{by} has asked it to stop at {time}: it ends within some seconds, if need be with its process."),
            by=one.killed_by or _("A user"),
            time=one.kill_requested_at,
        )
    if one.timeout_seconds:
        until = one.started_at + dt.timedelta(seconds=one.timeout_seconds)
        yield say(
            _("It may take {time}, and is interrupted at {until}."), time=duration(one.timeout_seconds), until=until
        )
    if one.lost:
        yield say(
            ngettext(
                "Its worker has died {number} time; with {most} it goes to the dead jobs. So it runs alone.",
                "Its worker has died {number} times; with {most} it goes to the dead jobs. So it runs alone.",
                one.lost,
            ),
            number=one.lost,
            most=MAX_LOST,
        )


def _lease(one: Job, worker: Worker | None, now: dt.datetime) -> Sentence:
    if worker is None:
        return say(
            _("That worker is not registered any more. The job is sent back, or dies, soon after {until}."),
            until=one.lease_until,
        )
    silent = duration(seconds_between(worker.heartbeat_at, now))
    if worker.lease_until > now:
        left = duration(seconds_between(now, worker.lease_until))
        return say(
            _("The worker is alive: its last heartbeat was {silent} ago, its lease lasts for {left} more."),
            silent=silent,
            left=left,
        )
    return say(
        _(
            "The worker has been silent for {silent}, and its lease has ended at {until}: another worker sends the "
            "job back, or to the dead jobs. If that does not happen within a minute, no other worker is alive."
        ),
        silent=silent,
        until=max(worker.lease_until, one.lease_until),
    )


def _held(one: Job, _alias: str) -> Iterator[Sentence]:
    yield say(
        _("It has succeeded. Only its unique key {key} is held, until {time}: no other job can have it."),
        key=named("key", one.unique_key or ""),
        time=one.run_at,
    )


def _blocked(one: Job, alias: str) -> Iterator[Sentence]:
    stage = Stage.objects.using(alias).filter(pk=one.stage_id or 0).first()
    if stage is None:
        yield say(_("It is a member of a workflow that is not there any more: kill it."))
        return
    before = StageEdge.objects.using(alias).filter(to_id=stage.pk, outcome=None).values_list("from_id", flat=True)
    names = Stage.objects.using(alias).filter(pk__in=before[:MOST_NAMED]).order_by("pk").values_list("name", flat=True)
    yield say(
        _("Its stage {stage} of workflow {workflow} is not open. Before it come: {stages}."),
        stage=stage.name,
        workflow=str(stage.workflow_id),
        stages=", ".join(names) or _("none"),
    )
    yield from _deadline(one)


def _deadline(one: Job) -> Iterator[Sentence]:
    if one.expires_at is not None:
        yield say(_("If it has not started by {time}, it dies as expired."), time=one.expires_at)


BY_STATUS: dict[Status, Callable[[Job, str], Iterator[Sentence]]] = {
    Status.SCHEDULED: _scheduled,
    Status.QUEUED: _queued,
    Status.LIMITED: _limited,
    Status.RUNNING: _running,
    Status.RESERVED: _held,
    Status.BLOCKED: _blocked,
}


def _dead(one: DeadJob, alias: str) -> Iterator[Sentence]:
    entries = entries_of(one.errors)
    last = entries[-1] if entries else None
    conflict = last.raw.get("conflict") if last else None
    yield say(
        _died(one.reason, is_named=isinstance(conflict, int)),
        by=one.killed_by or _("a user"),
        newer=job(conflict) if isinstance(conflict, int) else "",
        error=failed[-1].title if (failed := [e for e in entries if e.kind is EntryKind.FAILED]) else _("no error"),
        number=one.attempts,
    )
    for entry in entries:
        if isinstance(other := entry.raw.get("retried_as"), int):
            by = str(entry.raw.get("by") or _("A user"))
            yield say(_("{by} has retried it with changed arguments, as job {job}."), by=by, job=job(other))
    yield from unknown(one.task)
    holder = holder_of(one.unique_key, alias)
    if holder is not None:
        yield say(
            _("The live job {job} has its unique key {key}: until that has ended, this one stays dead."),
            job=job(holder),
            key=named("key", one.unique_key or ""),
        )
    if conf.dead_retention_days is not None:
        days = dt.timedelta(days=conf.dead_retention_days)
        yield say(_("It is removed for good after {time}."), time=one.died_at + days)
    if one.reason in (DeathReason.EXHAUSTED, DeathReason.DISCARDED) and registry.find(one.task):
        yield say(
            _("It can be run again in a terminal, in a transaction that is rolled back."),
            remedy=_("To do so:"),
            command=f"manage.py pgqueue_jobs try {one.pk}",
        )
    yield say(
        _("It stays here until it is retried by hand."),
        remedy=_("To do so:"),
        command=f"manage.py pgqueue_jobs retry {one.pk}",
    )


def holder_of(key: str | None, alias: str) -> int | None:
    if key is None:
        return None
    jobs = Job.objects.using(alias).filter(unique_key=key, unique_until__in=[UniqueUntil.END, UniqueUntil.START])
    holder: int | None = jobs.values_list("pk", flat=True).first()
    return holder


def _died(reason: str, *, is_named: bool) -> str:
    superseded = _("When it came back after a start, another job had its unique key, and does its work.")
    if is_named:
        superseded = _("When it came back after a start, job {newer} had its unique key, and does its work.")
    return {
        DeathReason.EXHAUSTED: _(
            "Attempt {number}, its last one, has failed with {error}. Repair what the errors say, and retry it."
        ),
        DeathReason.DISCARDED: _("It ended with {error}, after which there is no point in another attempt."),
        DeathReason.LOST: _(
            "Its worker died while it ran, too often or on its last attempt. Look for crashes and memory limits; "
            "retry it if it is not the cause."
        ),
        DeathReason.KILLED: _("It was killed by {by}."),
        DeathReason.EXPIRED: _(
            "It was not started before its deadline. See why it had to wait; retry it if still wanted."
        ),
        DeathReason.UNKNOWN_TASK: _("No worker knew its task for a day."),
        DeathReason.SUPERSEDED: superseded,
    }.get(DeathReason(reason), reason)


def _succeeded(one: SucceededJob) -> Iterator[Sentence]:
    yield say(_("Attempt {number} succeeded after {time}."), number=one.attempts, time=duration(one.run_seconds))
    if one.prune_at is not None:
        yield say(_("It is kept until {time}."), time=one.prune_at)
    elif conf.retention_days:
        days = dt.timedelta(days=conf.retention_days)
        yield say(_("It is kept until about {time}."), time=one.succeeded_at + days)


# All that is known of a job
#
# Sensitive arguments are left out of all of it.

Story = dict[str, Any]


def find(job_id: int, alias: str) -> Model | None:
    """Return the job, in whichever table it is; the first is looked at again, for jobs move."""
    for model in (Job, DeadJob, SucceededJob, Job):
        found: Model | None = model.objects.using(alias).filter(pk=job_id).first()
        if found is not None:
            return found
    return None


def explanation_of(job: Any, alias: str) -> Story:
    """Return all that there is to say, fit for people."""
    task = registry.find(job.task)
    args, kwargs = shown(task, job.args, job.kwargs)
    story: Story = {
        "id": job.pk,
        "task": job.task,
        "status": status_of(job),
        "why": "\n".join(text_of_sentence(sentence) for sentence in why(job, alias)),
        "queue": job.queue,
        "priority": job.priority,
        "attempts": job.attempts,
        "max_attempts": getattr(job, "max_attempts", None),
        "args": args,
        "kwargs": kwargs,
        "times": {},
        "options": {},
        "tags": job.tags or [],
        "metadata": shown_by_name(job.metadata),
        "progress": shown_by_name(split(job.progress)[0]),
        "log": log_of(job),
        "result": shown_by_name(getattr(job, "result", None)),
        "timeline": lines(timeline(job)),
        "history": job.errors,
    }
    for name in sorted({field.name for field in job._meta.fields} - story.keys() - UNTOLD):  # noqa: SLF001 - Django's own idiom
        value = getattr(job, name)
        if isinstance(value, dt.datetime) and aware(value) == NEVER:
            continue
        if value not in (None, ""):
            story["times" if isinstance(value, dt.datetime) else "options"][name] = value
    story["times"] = dict(sorted(story["times"].items(), key=itemgetter(1)))
    scrubbed: Story = scrub_json(story, scrubber(task, job.args, job.kwargs))
    return scrubbed


def text_of(story: Story) -> list[str]:
    """Return the story as lines: one for each value, those of lists and objects below their name."""
    return list(_lines(story, ""))


def _lines(value: Any, indent: str) -> Iterator[str]:
    pairs = value.items() if isinstance(value, dict) else enumerate(value, 1)
    for name, item in pairs:
        if isinstance(item, dict | list) and item:
            yield f"{indent}{name}:"
            yield from _lines(item, f"{indent}    ")
        elif isinstance(item, str) and "\n" in item:
            yield f"{indent}{name}:"
            yield from (f"{indent}    {line}" for line in item.splitlines())
        elif item not in (None, {}, []):
            yield f"{indent}{name}: {at(item) if hasattr(item, 'tzinfo') else item}"
