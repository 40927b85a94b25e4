"""``pgqueue_bench`` as a command of its own that waits as long as tests do; before its options: how many single jobs.

Those are measured on the idle queue, which takes seconds.
"""

import os
import sys

from tests.support.waiting import PATIENCE_SECONDS

PATIENT = dict.fromkeys(("START_SECONDS", "STALL_SECONDS", "PATIENCE_SECONDS"), PATIENCE_SECONDS)
"""Timeouts of bench/drain.py by their names: of a worker's start, of its work, and of its end."""

if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.settings")
    import django

    django.setup()

    from django.core.management import execute_from_command_line

    from django_pgqueue.bench import drain

    vars(drain).update(PATIENT, PICK_UPS=int(sys.argv[1]))
    execute_from_command_line(["manage.py", "pgqueue_bench", *sys.argv[2:]])
