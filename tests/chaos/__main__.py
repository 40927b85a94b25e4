"""Soak workers in faults, and say whether anything was lost, silently duplicated or stuck.

Exit code 0 if not; 1 if so, with the jobs and all that is known of them, and everything kept in the folder.
"""

import argparse
import secrets
import shutil
import signal
import sys
import time
from pathlib import Path

from tests.chaos import report
from tests.chaos.oracle import judge
from tests.chaos.soak import ROOT, Plan, Soak

COMMANDS = "1,1,1,2,1,1"
SETTLING_SECONDS = 45
"""What start and end take of the minutes."""

SHORTEST_STORM = 5.0
STREAM_PART, LONGEST_STREAM, STREAM_TAKES = 12, 20.0, 3.0
"""Jobs come due by the thousand for a part of the time, in seconds; to make and to run them takes some times that."""

HOG_PART, LONGEST_HOG = 10, 20.0
"""A job may keep its process from anything else for a part of the time, in seconds."""


def main() -> None:
    options = parse()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("Stopped."))
    folder = options.folder or ROOT / ".soak" / f"{time.strftime('%Y%m%d-%H%M%S')}-{options.seed}"
    seconds = max(options.minutes * 60 - SETTLING_SECONDS, SHORTEST_STORM)
    stream = min(seconds / STREAM_PART, LONGEST_STREAM) if seconds > SHORTEST_STORM else 0.0
    plan = Plan(
        folder,
        options.seed,
        max(seconds - STREAM_TAKES * stream, SHORTEST_STORM),
        options.rate,
        options.commands,
        options.lease,
        stream_seconds=stream,
        hog_seconds=min(seconds / HOG_PART, LONGEST_HOG),
    )
    soak = Soak(plan)
    print(f"seed {options.seed}, {folder}", flush=True)
    ledger = soak.run()
    violations = judge(ledger)
    (folder / "violations.txt").write_text("\n".join(report.details(ledger, violations)))
    for line in report.details(ledger, violations[: report.SHOWN]):
        print(line[: report.WIDEST])
    print(report.table(ledger, violations, soak.facts))
    if violations:
        sys.exit(1)
    if not options.keep:
        shutil.rmtree(folder)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="altogether; default: 10")
    parser.add_argument("--rate", type=float, default=480.0, help="jobs enqueued in a second; default: 480")
    parser.add_argument(
        "--commands",
        type=whole_numbers,
        default=COMMANDS,
        help=f"worker processes of each; default: {COMMANDS}",
    )
    parser.add_argument(
        "--seed", default=secrets.token_hex(4), help="of all that is random; default: another each time"
    )
    parser.add_argument("--lease", type=int, default=4, help="LEASE_SECONDS of the workers; default: 4")
    parser.add_argument("--folder", type=Path, help="where everything is kept; default: a new one in .soak/")
    parser.add_argument("--keep", action="store_true", help="keep the folder even if all is well")
    return parser.parse_args()


def whole_numbers(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(",")))


if __name__ == "__main__":
    main()
