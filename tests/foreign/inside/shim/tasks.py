"""The shim of docs/how-to/switch-from-celery.md for packages whose code is not one's own."""

from celery import Celery, Task

from django_pgqueue import task


@task(name="celery", max_attempts=4)
def run(name, args, kwargs):
    app.tasks[name](*args, **kwargs)


class Queued(Task):
    def apply_async(self, args=None, kwargs=None, *, countdown=None, eta=None, **others):
        if ignored := [name for name, value in others.items() if value is not None]:
            raise NotImplementedError(f"{self.name}: options {ignored} are not passed on")
        due = {"run_at": eta} if eta else {"delay": countdown or 0}
        return run.using(**due).enqueue(self.name, list(args or ()), kwargs or {})


app = Celery("shop", task_cls=Queued)
