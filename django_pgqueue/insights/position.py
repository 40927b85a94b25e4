"""Position of a job in its queue, and what keeps the queue from going on."""

import math
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Self

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from django_pgqueue import registry
from django_pgqueue.db.connections import CallerConnection
from django_pgqueue.db.queries import statement
from django_pgqueue.insights.formatting import Ref, Sentence, at_most, duration, job, list_item, named, say
from django_pgqueue.insights.overview import PAUSED, limits_of, living_workers
from django_pgqueue.jobs.queue_selector import QueueSelector
from django_pgqueue.models import Job, Queue, Worker
from django_pgqueue.states import Status

MOST_WORKERS = 1000
CAP = 1000  # jobs before another one are counted up to here, and those that run in its queue
MOST_NAMED = 10
UNKNOWN_SECONDS = 30  # see jobs.failure


def paused(queue: Queue) -> Sentence:
    words = {
        (False, False): _("Its queue {queue} is paused by {by} since {since}."),
        (False, True): _("Its queue {queue} is paused by {by} since {since}: {reason}."),
        (True, False): _("Its queue {queue} is paused by {by} since {since}, until {until}."),
        (True, True): _("Its queue {queue} is paused by {by} since {since}, until {until}: {reason}."),
    }
    return say(
        words[queue.resume_at is not None, bool(queue.pause_reason)],
        queue=named("queue", queue.name),
        by=queue.paused_by or _("a user"),
        since=queue.paused_at or "",
        until=queue.resume_at or "",
        reason=queue.pause_reason.removesuffix("."),
    )


def _reached(queue: Queue, alias: str) -> Iterator[Sentence]:
    name = named("queue", queue.name)
    if queue.max_running is not None:
        jobs = Job.objects.using(alias).filter(status=Status.RUNNING, queue=queue.name)
        running = jobs[: min(queue.max_running, CAP) + 1].count()
        if running >= min(queue.max_running, CAP):
            yield say(
                ngettext(
                    "Its queue {queue} is limited to {limit} running job, and {number} runs: it waits until that ends.",
                    "Its queue {queue} is limited to {limit} running jobs, and {number} run: it waits until one ends.",
                    queue.max_running,
                ),
                queue=name,
                limit=queue.max_running,
                number=at_most(running, CAP),
            )
    if queue.rate_limit is not None:
        rows = CallerConnection(alias).rows(statement("queue_capacity"), {"queue": queue.name})
        seconds = math.ceil(rows[0][1] * 1000) / 1000 if rows else 0.0
        if seconds > 0:
            words = _("The rate of its queue {queue} is used up ({limits}): the next job may start in {time}.")
            yield say(words, queue=name, limits=limits_of(queue), time=duration(seconds))


# Jobs and workers ahead


@dataclass(frozen=True)
class WorkerSummary:
    all: list[Worker]
    serving: list[Worker]  # a queue, and go on doing so
    leaving: list[Worker]  # served it, and have been asked to stop
    quiet: list[Worker]  # serve it, and have been asked to claim nothing for now

    @classmethod
    def of(cls, queue: str, alias: str) -> Self:
        alive = list(living_workers(alias).order_by("pk")[:MOST_WORKERS])
        serving = [worker for worker in alive if QueueSelector.of(worker.queues).place(queue) is not None]
        leaving = [worker for worker in serving if worker.stop_requested_at is not None]
        quiet = [worker for worker in serving if worker.quiet_since is not None and worker not in leaving]
        return cls(alive, [worker for worker in serving if worker not in (*leaving, *quiet)], leaving, quiet)


def obstacles(waiting: Job, pool: WorkerSummary, alias: str) -> Iterator[Sentence]:
    """Yield the reasons why no job like this can start, in any place of the queue."""
    queue = Queue.objects.using(alias).annotate(is_paused=PAUSED).filter(name=waiting.queue).first()
    if waiting.kill_requested_at is not None:
        yield say(
            _("{by} has asked it to stop while it ran: it is claimed once more, to die without another attempt."),
            by=waiting.killed_by or _("A user"),
        )
    if queue is not None and getattr(queue, "is_paused", False):
        yield paused(queue)
    yield from unknown(waiting.task)
    yield from unserved(waiting.queue, pool)


def turn(waiting: Job, pool: WorkerSummary, alias: str, *, may_run: bool) -> Iterator[Sentence]:
    """Yield what a queued job waits for: limits, jobs before it, a free slot; ``may_run``: there is no obstacle."""
    queue = Queue.objects.using(alias).filter(name=waiting.queue).first()
    if queue is not None and (words := limits_of(queue)):
        reached = list(_reached(queue, alias))
        may_run = may_run and not reached
        yield from reached
        if not reached:
            free = _("Its queue {queue} is limited, which does not hold it up now: {limits}.")
            yield say(free, queue=named("queue", queue.name), limits=words)
    if waiting.fair_key is not None:
        count = _ahead("ahead_in_turn", waiting, alias, name=waiting.fair_key, queue=waiting.queue)
        yield say(
            ngettext(
                "Jobs with different fair keys take turns: {number} with its key {key} comes before it.",
                "Jobs with different fair keys take turns: {number} with its key {key} come before it.",
                count,
            ),
            number=at_most(count, CAP),
            key=named("key", waiting.fair_key),
        )
    before = _ahead("ahead_in_queue", waiting, alias, name=waiting.queue)
    if before:
        words = ngettext(
            "{number} job of its queue comes before it, by priority or time.",
            "{number} jobs of its queue come before it, by priority or time.",
            before,
        )
        yield say(words, number=at_most(before, CAP))
    else:
        yield say(_("It is the next of its queue."))
    if pool.serving:
        yield from free_slots(waiting.queue, pool, alias, is_next=may_run and not before)


def unknown(task: str) -> Iterator[Sentence]:
    """Yield that nothing here has a task of this name, and what workers like that do with its jobs."""
    if registry.find(task) is None:
        yield say(
            _(
                "This process does not know the task {task}. A worker that has no task of that name "
                "retries the job in {seconds} s; after a day, one that has never run dies as unknown_task. Workers "
                "load the tasks.py of the apps in INSTALLED_APPS, and what these, or an AppConfig.ready(), import: "
                "import the module of the task there, deploy the code that has it, or add the name to the aliases of "
                "the task it is now."
            ),
            task=named("task", task),
            seconds=UNKNOWN_SECONDS,
        )


def unserved(queue: str, pool: WorkerSummary) -> Iterator[Sentence]:
    if pool.serving:
        return
    name = named("queue", queue)
    if not pool.all:
        yield say(
            _("No worker is alive, so nothing starts."), remedy=_("Start one:"), command="manage.py pgqueue_worker"
        )
        return
    remedy = {
        "remedy": _("Start one:"),
        "command": f"manage.py pgqueue_worker {shlex.quote(f'--queue={list_item(queue)}')}",
    }
    if pool.quiet:
        yield say(
            _("The workers that serve the queue {queue} are quiet, as they have been asked: {workers}."),
            queue=name,
            workers=[worker_ref(worker) for worker in pool.quiet[:MOST_NAMED]],
            remedy=_("Let them claim jobs again:"),
            command=f"manage.py pgqueue_workers resume {pool.quiet[0].pk}",
        )
    elif pool.leaving:
        workers = [worker_ref(worker) for worker in pool.leaving[:MOST_NAMED]]
        yield say(
            _("The workers that serve the queue {queue} have been asked to stop: {workers}."),
            queue=name,
            workers=workers,
            **remedy,
        )
    else:
        served = sorted({",".join(worker.queues) for worker in pool.all})
        yield say(
            _("No worker that is alive serves the queue {queue}. Queues that are served: {served}."),
            queue=name,
            served="; ".join(served[:MOST_NAMED]),
            **remedy,
        )


def slots(waiting: Job, alias: str) -> Iterator[Sentence]:
    """Yield which jobs have the slots of a concurrency key, and how many wait before this one."""
    if waiting.concurrency_key is None:
        yield say(_("It waits to be admitted."))
        return
    key, limit = named("key", waiting.concurrency_key), waiting.concurrency_limit or 1
    holders = holders_of(waiting.concurrency_key, alias)
    if len(holders) < min(limit, MOST_NAMED):
        words = _("A slot of its concurrency key {key} is free: it waits for its turn, within a second or so.")
        yield say(words, key=key)
    else:
        words = ngettext(
            "Only one job with the concurrency key {key} may run at a time: job {jobs} has the slot.",
            "All {limit} slots of its concurrency key {key} are taken, by the jobs {jobs}.",
            limit,
        )
        if len(holders) < limit:
            words = _(
                "The slots of its concurrency key {key} are taken, {limit} of them, by the jobs {jobs} and others."
            )
        yield say(words, limit=limit, key=key, jobs=list(map(job, holders)))
    before = _ahead("ahead_in_key", waiting, alias, name=waiting.concurrency_key)
    if before:
        words = ngettext(
            "{number} job waits before it for that key.", "{number} jobs wait before it for that key.", before
        )
        yield say(words, number=at_most(before, CAP))


def holders_of(key: str, alias: str) -> list[int]:
    """Return the jobs that have slots of a concurrency key, the first ten."""
    jobs = Job.objects.using(alias).filter(concurrency_key=key, concurrency_slot__isnull=False)
    return list(jobs.order_by("concurrency_slot").values_list("pk", flat=True)[:MOST_NAMED])


def free_slots(queue: str, pool: WorkerSummary, alias: str, *, is_next: bool) -> Iterator[Sentence]:
    """Yield how busy a queue's workers are, and if they serve others first; ``is_next``: nothing else delays it."""
    total = sum(worker.concurrency for worker in pool.serving)
    jobs = Job.objects.using(alias).filter(status=Status.RUNNING, worker_id__in=[worker.pk for worker in pool.serving])
    taken = jobs[:total].count()
    if total == taken == 1:
        yield say(_("The only slot of the worker process that serves its queue is taken."))
    elif taken >= total:
        yield say(
            ngettext(
                "All {total} slots of the worker process that serves its queue are taken.",
                "All {total} slots of the {workers} worker processes that serve its queue are taken.",
                len(pool.serving),
            ),
            workers=len(pool.serving),
            total=total,
        )
    else:
        yield say(
            ngettext(
                "{workers} worker process serves its queue; {taken} of its {total} slots are taken.",
                "{workers} worker processes serve its queue; {taken} of their {total} slots are taken.",
                len(pool.serving),
            ),
            workers=len(pool.serving),
            total=total,
            taken=taken,
        )
    before = [worker.queues[: QueueSelector.of(worker.queues).place(queue) or 0] for worker in pool.serving]
    all_serve_others_first = all(before)
    if all_serve_others_first:
        yield say(_("They serve other queues first: {queues}."), queues=", ".join(sorted({*chain(*before)})))
    elif is_next and taken < total:
        yield say(_("Nothing holds it up: one of them takes it in a moment."))


def worker_ref(worker: Worker) -> Ref:
    return Ref("worker", worker.pk, str(worker))


def _ahead(query: str, waiting: Job, alias: str, **chosen: str) -> int:
    place = {"rank": -waiting.priority, "run_at": waiting.run_at, "id": waiting.pk, "limit": CAP + 1}
    [(count,)] = CallerConnection(alias).rows(statement(query), place | chosen)
    return int(count)
