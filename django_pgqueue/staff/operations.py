"""What is said of operations: how far each is, and whether somebody does it."""

from django.utils import timezone

from django_pgqueue.jobs.actions import Left
from django_pgqueue.models import Operation, Worker

PERCENT = 100


def somebody_works(alias: str) -> bool:
    """Whether a worker lives that carries operations on: any does."""
    return Worker.objects.using(alias).filter(lease_until__gt=timezone.now()).exists()


def left_of(operation: Operation) -> list[tuple[Left, int]]:
    """Return why jobs were left alone, and how many."""
    counts = operation.left if isinstance(operation.left, dict) else {}
    return [(Left[name.upper()], count) for name, count in counts.items() if name.upper() in Left.__members__]


def seen(operation: Operation) -> int:
    """Return how many matching jobs it has come by: those that were changed, and those left alone."""
    return operation.done + sum(count for _, count in left_of(operation))
