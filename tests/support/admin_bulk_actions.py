"""Bulk actions in the admin: who begins them, dead jobs for them, the words of their pages."""

import html
import re

import tests.app.tasks as app
from django_pgqueue.jobs import kill
from tests.support.many import enqueued_ids

BULK_ACTIONS = "/admin/pgqueue/bulkaction/"
VIEWER = ("view_job", "view_deadjob", "view_succeededjob", "view_bulkaction")
STAFF = (
    *("view_job", "view_deadjob", "view_bulkaction", "run_now_job", "kill_job", "retry_deadjob", "delete_deadjob"),
    *("move_job", "set_priority_job", "stop_bulkaction"),
)


def bury(number: int, **options) -> list[int]:
    ids = enqueued_ids(app.noop.using(**options), [()] * number)
    for start in range(0, number, 1000):
        kill(ids[start : start + 1000], by="ann")
    return ids


def text_of(response) -> str:
    """Return what a page says, without its markup."""
    content = re.sub(r"<[^>]+>", " ", response.content.decode().partition('id="content"')[2])
    return " ".join(html.unescape(content).split())
