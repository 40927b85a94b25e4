"""Tasks by which a site has the mails of django-post-office sent by a worker."""

from django.dispatch import receiver
from post_office.mail import send_queued_mail_until_done
from post_office.signals import email_queued

from django_pgqueue import Unique, task


@task(queue="mails", unique=Unique((), until="start"))
def deliver() -> None:
    send_queued_mail_until_done()


@receiver(email_queued)
def on_queued(**_) -> None:
    deliver.enqueue()
