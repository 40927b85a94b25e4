"""Look up the state of jobs for pages. A job keeps its id for life, so an id saved beside an order is enough."""

from collections.abc import Iterable

from django_pgqueue.models import DeadJob, Job


def describe(job_ids: Iterable[int | None]) -> dict[int, str]:
    """Return words for each job that is not done; one that is missing has succeeded."""
    ids = [job_id for job_id in job_ids if job_id]
    live = Job.objects.filter(pk__in=ids).values_list("pk", "status", "attempts")
    words = {pk: f"{status}, attempt {attempts}" if attempts else status for pk, status, attempts in live}
    dead = DeadJob.objects.filter(pk__in=ids).values_list("pk", "reason", "errors")
    return words | {pk: f"dead ({reason}): {errors[-1].get('message', '')}" for pk, reason, errors in dead}
