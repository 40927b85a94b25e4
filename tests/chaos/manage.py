"""As any project's, but it ends with the process that started it: then its standard input, a pipe, is closed."""

import os
import sys
import threading


def die_with_the_soak() -> None:
    os.read(0, 1)
    os._exit(1)


if __name__ == "__main__":
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
    from django.core.management import execute_from_command_line

    threading.Thread(target=die_with_the_soak, daemon=True).start()
    execute_from_command_line(sys.argv)
