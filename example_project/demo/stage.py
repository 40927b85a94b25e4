"""The data that the demo begins with: a paused queue, a limited one, and work that waits."""

from django.db import connection

from demo import tasks
from django_pgqueue import queues
from django_pgqueue.models import Job

SUBSCRIBERS = 400
FAX = """
INSERT INTO pgqueue_jobs (task, queue, args)
SELECT 'shop.tasks.send_fax', 'webhooks', '[17, "+49 30 1234"]'
WHERE NOT EXISTS (SELECT FROM pgqueue_jobs WHERE task = 'shop.tasks.send_fax')
"""
"""A job whose task was removed from the code, as happens when a release goes out too early."""


def set_stage() -> None:
    queues.pause("letters", by="eve", reason="The label printer is out of paper; new rolls come at noon.")
    queues.limit("newsletter", rate="1/2s")
    tasks.make_catalogue.enqueue()
    if not Job.objects.filter(queue="newsletter", status="queued").exists():
        send_the_newsletter()
    with connection.cursor() as cursor:
        cursor.execute(FAX)


def send_the_newsletter() -> None:
    """Enqueue a copy for each subscriber: at the pace of the queue it takes a quarter of an hour."""
    people = [(f"reader-{number}@customers.example",) for number in range(1, SUBSCRIBERS + 1)]
    tasks.send_newsletter.using(priority=-10).enqueue_many(people)
