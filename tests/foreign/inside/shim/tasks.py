"""The shim of docs/how-to/switch-from-celery.md for packages whose code is not one's own."""

from celery import Celery, Task

from django_pgqueue import task


@task(name="celery", max_attempts=4)
def run(name, args, kwargs):
    app.tasks[name](*args, **kwargs)


class Queued(Task):
    def apply_async(self, args=None, kwargs=None, *, countdown=0, **_):
        return run.using(delay=countdown).enqueue(self.name, list(args or ()), kwargs or {})


app = Celery("shop", task_cls=Queued)
