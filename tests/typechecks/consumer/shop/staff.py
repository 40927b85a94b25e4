"""Models, for mypy alone: what the fields of a model hold is known to a plugin, which pyright has not."""

import datetime as dt
from typing import Any, assert_type

from django_pgqueue.models import DeadJob, Job
from django_pgqueue.testing import assert_enqueued, enqueued
from shop.tasks import pack

assert_type(DeadJob.objects.get().task, str)
assert_type(Job.objects.filter(queue="mail").first(), Job | None)
assert_type(Job.objects.get().run_at, dt.datetime)
assert_type(assert_enqueued(pack), Job)
assert_type(assert_enqueued(pack, count=2), Job)
assert_type(enqueued(pack), list[Job])
assert_type(Job.objects.get().args, Any)
