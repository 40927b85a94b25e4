"""django-pgqueue: docs/reference/worker-command.md of this project.

The real ``pgqueue_worker`` command with its defaults. History is off (``keep_result=False``) unless PEERS_KEEP is set.
"""

import os

from benchmarks.peers.workers import base


class Queue(base.Queue):
    def __init__(self) -> None:
        import django

        os.environ["DJANGO_SETTINGS_MODULE"] = "benchmarks.peers.workers.pgqueue.settings"
        django.setup()
        from benchmarks.peers.workers.pgqueue.tasks import noop

        self.noop = noop.using(keep_result="PEERS_KEEP" in os.environ)

    def prepare(self) -> None:
        from django.core.management import call_command

        call_command("migrate", verbosity=0)

    def seed(self, count: int) -> None:
        for size in base.chunks(count):
            self.noop.enqueue_many([()] * size)

    def join(self, members: int) -> None:
        from django_pgqueue import chain

        chain([self.noop.bind() for _ in range(members)], self.noop.bind()).enqueue()

    def fan(self, members: int) -> None:
        from django_pgqueue import chain

        chain(self.noop.bind(), [self.noop.bind() for _ in range(members)]).enqueue()

    def enqueue(self) -> None:
        self.noop.enqueue()

    def left(self) -> int:
        from django.db import connection

        with connection.cursor() as cursor:
            cursor.execute("SELECT count(*) FROM pgqueue_jobs")
            return cursor.fetchone()[0]

    def work(self) -> None:
        from django.core.management import call_command

        call_command("pgqueue_worker", processes=int(os.environ["PEERS_PROCESSES"]), verbosity=0)
