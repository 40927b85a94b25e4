import os
import sys

if __name__ == "__main__":
    # In place of this folder, where tests/typing would stand before the library's.
    sys.path[0] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.settings")
    from django.core.management import execute_from_command_line

    execute_from_command_line(sys.argv)
