"""Schedules in the admin: addresses, and what their form sends."""

from django_pgqueue.models import Schedule
from tests.support.schedules import RECORD

LIST = "/admin/pgqueue/schedule/"


def entered(**values) -> dict:
    """Return what the form sends."""
    return {
        "name": "hourly",
        "task": RECORD,
        "cron": "",
        "every_seconds": "3600",
        "timezone": "UTC",
        "args": "",
        "kwargs": "",
        "options": "",
        "jitter_seconds": "0",
        "catch_up": "last",
        "catch_up_limit": "100",
        **values,
    }


def page(schedule: Schedule) -> str:
    return f"{LIST}{schedule.pk}/change/"
