import os
import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent.parent))
    # Without the admin of the process that measures, unless a benchmark wants it.
    os.environ["DJANGO_SETTINGS_MODULE"] = os.environ.get("BENCHMARKS_SETTINGS", "benchmarks.settings")
    from django.core.management import execute_from_command_line

    execute_from_command_line(sys.argv)
