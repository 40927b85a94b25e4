"""``pgqueue_bench`` as a command of its own that measures fewer single jobs on the idle queue: they take seconds."""

import os
import sys

if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.settings")
    import django

    django.setup()

    from django.core.management import execute_from_command_line

    from django_pgqueue.bench import drain

    drain.PICK_UPS = 3
    execute_from_command_line(["manage.py", "pgqueue_bench", *sys.argv[1:]])
