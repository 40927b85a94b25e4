"""Receivers of job_died in the processes of a worker, which leave a mark of each death."""

from django_pgqueue.signals import JobEvent, job_died
from tests.app import tasks
from tests.app.models import Mark


def install() -> None:
    """Note all deaths, and those of one task by a receiver of its own."""
    job_died.connect(note, weak=False)
    job_died.connect(note_of_one, sender=tasks.discard, weak=False)


def note(event: JobEvent, **_) -> None:
    Mark.objects.create(job_id=event.id, label=str(event.reason))


def note_of_one(sender: object, event: JobEvent, **_) -> None:
    Mark.objects.create(job_id=event.id, label=f"of {sender}")
