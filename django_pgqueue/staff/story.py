"""Everything about one job: where it is and why, what has happened to it, what it was given.

What is sensitive in its arguments is left out of all of it.
"""

from typing import Any

from django.db.models import Model

from django_pgqueue import registry
from django_pgqueue.jobs.redaction import scrub_json, scrubber, shown, shown_by_name
from django_pgqueue.models import DeadJob, FinishedJob, Job
from django_pgqueue.staff.rows import status_of
from django_pgqueue.staff.sentence import at
from django_pgqueue.staff.sentence import text_of as text_of_sentence
from django_pgqueue.staff.timeline import lines, timeline
from django_pgqueue.staff.why import why
from django_pgqueue.states import NEVER

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


def find(job_id: int, alias: str) -> Model | None:
    """Return the job, in whichever table it is; the first is looked at again, for jobs move."""
    for model in (Job, DeadJob, FinishedJob, Job):
        found: Model | None = model.objects.using(alias).filter(pk=job_id).first()
        if found is not None:
            return found
    return None


def story_of(job: Any, alias: str) -> Story:
    """Return all that there is to say, fit for people."""
    task = registry.find(job.task)
    args, kwargs = shown(task, job.args, job.kwargs)
    story = {
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
        "times": {name: at for name in TIMES if (at := getattr(job, name, None)) not in (None, NEVER)},
        "options": {name: value for name in OPTIONS if (value := getattr(job, name, None)) not in (None, "")},
        "metadata": shown_by_name(job.metadata),
        "progress": shown_by_name(job.progress),
        "result": shown_by_name(getattr(job, "result", None)),
        "timeline": lines(timeline(job)),
        "history": job.errors,
    }
    scrubbed: Story = scrub_json(story, scrubber(task, job.args, job.kwargs))
    return scrubbed


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
            yield f"{indent}{name}: {at(item) if hasattr(item, 'tzinfo') else item}"
