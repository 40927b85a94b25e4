"""Every page of the admin that shows jobs, with what narrows it: a name and an address."""

import json
from dataclasses import dataclass
from urllib.parse import quote, urlencode

APP = "/admin/pgqueue"

BIG = (
    "pgqueue_jobs",
    "pgqueue_dead_jobs",
    "pgqueue_succeeded_jobs",
    "pgqueue_stats",
    "pgqueue_workflows",
    "pgqueue_stages",
    "pgqueue_stage_edges",
)
"""Tables, partitions of one by their beginning, of which no page may read all."""


@dataclass(frozen=True)
class Page:
    """One page."""

    name: str
    path: str


def pages() -> list[Page]:
    """Return all pages, for the jobs that ``crowd`` has made."""
    from django.contrib import admin

    shown = {model._meta.model_name for model in admin.site._registry}
    return [page for page in all_pages() if page.path.split("/")[3:4] in ([], [""], *([name] for name in shown))]


def all_pages() -> list[Page]:
    from django_pgqueue.models import BulkAction, DeadJob, Job, Schedule, SucceededJob, Workflow

    dead = DeadJob.objects.order_by("-died_at", "-id").first()
    live = Job.objects.order_by("id")
    some = {
        "queued job": live.filter(status="queued").first(),
        "scheduled job": live.filter(status="scheduled").first(),
        "limited job": live.filter(status="limited").first(),
        "running job": Job.objects.filter(status="running", worker_id=3).first(),
        "dead job": dead,
        "succeeded job": SucceededJob.objects.order_by("id").first(),
        "schedule": Schedule.objects.order_by("id").first(),
        "workflow": Workflow.objects.order_by("-id").first(),
        "bulk_action": BulkAction.objects.order_by("id").first(),
    }
    return [
        Page("index", "/admin/"),
        Page("overview", f"{APP}/overview/"),
        Page("queues", f"{APP}/queue/"),
        Page("queue", f"{APP}/queue/mails/change/"),
        Page("schedules", f"{APP}/schedule/"),
        Page("workers", f"{APP}/worker/"),
        Page("bulk_actions", f"{APP}/bulk_action/"),
        Page("dead jobs by cause", f"{APP}/deadjob/causes/"),
        *lists("jobs", "job", LIVE, live.first().pk + 5000),
        *lists("dead jobs", "deadjob", DEAD | {"of a cause": {"cause": str(dead.cause)}}, 0),
        *lists("workflows", "workflow", WORKFLOWS, 5000),
        *lists("succeeded jobs", "succeededjob", SUCCEEDED, 10_000),
        *(Page(name, f"{APP}/{row._meta.model_name}/{row.pk}/change/") for name, row in some.items() if row),
    ]


OF_A_STAGE = str(10_000 << 16)
"""The stage of ``crowd`` that has members."""

EARLY = "*early*"
"""A key near the end of a list by ids, the newest first."""

LIVE = {
    "": {},
    "queued": {"status": "queued"},
    "scheduled": {"status": "scheduled"},
    "running": {"status": "running"},
    "of a queue": {"queue": "mails"},
    "by id": {"q": "17"},
    "by unique key": {"q": "key:order-1000007"},
    "of a task, looked for": {"q": "shop.tasks.tell"},
    "of an argument": {"q": "customer=4711"},
    "of an argument, in the last window": {"q": "customer=4711", "below": EARLY},
    "far behind": {"after": EARLY},
    "last": {"before": "last"},
    "queued, last": {"status": "queued", "before": "last"},
    "limited": {"status": "limited"},
    "of a stage": {"stage": OF_A_STAGE},
    "of a stage, queued": {"stage": OF_A_STAGE, "status": "queued"},
}
DEAD = {
    "": {},
    "exhausted": {"reason": "exhausted"},
    "of a queue": {"queue": "mails"},
    "of a task": {"task": "shop.tasks.tell_courier"},
    "by id": {"q": "17"},
    "of a task, looked for": {"q": "shop.tasks.tell"},
    "of an argument": {"q": "customer=4711"},
    "last": {"before": "last"},
    "of a task, last": {"task": "shop.tasks.tell_courier", "before": "last"},
    "of a stage": {"stage": OF_A_STAGE},
}
WORKFLOWS = {
    "": {},
    "open": {"status": "open"},
    "stuck": {"status": "stuck"},
    "overdue": {"status": "overdue"},
    "of a name": {"name": "import 7"},
    "of a name, stuck": {"name": "import 0", "status": "stuck"},
    "by key": {"q": "import-4000"},
    "by key of one that has ended": {"q": "import-17"},
    "far behind": {"after": EARLY},
    "last": {"before": "last"},
}
SUCCEEDED = {
    "": {},
    "by id": {"q": "20"},
    "of a task, looked for": {"q": "shop.tasks.tell"},
    "of an argument": {"q": "customer=4711"},
    "of an argument, in the last window": {"q": "customer=4711", "below": EARLY},
    "of a queue": {"queue": "mails"},
    "last": {"before": "last"},
}


def lists(name: str, model: str, narrowed: dict[str, dict[str, str]], early: int) -> list[Page]:
    key = json.dumps([str(early)])
    return [
        Page(
            f"{name} {how}".strip(), f"{APP}/{model}/?{urlencode(query).replace(quote(EARLY), quote(key))}".rstrip("?")
        )
        for how, query in narrowed.items()
    ]
