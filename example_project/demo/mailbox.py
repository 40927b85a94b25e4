"""The mail server and a page with what it has received."""

import email.policy
from email import message_from_bytes
from email.message import EmailMessage

from aiosmtpd.controller import Controller
from aiosmtpd.handlers import Mailbox
from django.conf import settings
from django.shortcuts import render


def mail_server(port: int) -> Controller:
    """Return an SMTP server that keeps its mail in a Maildir. The caller starts and stops it."""
    return Controller(Mailbox(settings.MAIL_FOLDER), hostname="127.0.0.1", port=port)


def received(most: int | None = None) -> list[EmailMessage]:
    """Return all mails, or a number of them, latest first."""
    files = sorted((settings.MAIL_FOLDER / "new").glob("*"), key=lambda file: file.stat().st_mtime_ns, reverse=True)
    return [message_from_bytes(file.read_bytes(), policy=email.policy.default) for file in files[:most]]


def page(request):
    mails = [
        {"headers": mail, "text": mail.get_body().get_content().strip(), "files": file_names(mail)}
        for mail in received(most=30)
    ]
    return render(request, "demo/mails.html", {"mails": mails})


def file_names(mail: EmailMessage) -> list[str]:
    return [part.get_filename() for part in mail.iter_attachments()]
