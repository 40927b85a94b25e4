"""Our backend in place of Django's own, with what Django's tests of these look at."""

from django_pgqueue.backend import PgQueueBackend
from django_pgqueue.models import Job


class Dummy(PgQueueBackend):
    @property
    def results(self):
        return [self.get_result(str(pk)) for pk in Job.objects.order_by("pk").values_list("pk", flat=True)]

    def clear(self):
        Job.objects.all().delete()


class Immediate(PgQueueBackend):
    pass
