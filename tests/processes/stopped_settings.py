"""Settings of commands that get a signal while they still check the project."""

import os
import signal

from django.core.checks import register

from tests.settings import *  # noqa: F403


@register
def stop(**_):
    os.kill(os.getpid(), getattr(signal, os.environ["STOPPED_BY"]))
    return []
