"""All benchmarks in order, and one table in the end: about an hour, or some minutes with --quick, which proves nothing.

python -m benchmarks --json benchmarks.json
python -m benchmarks --only drain,latency
"""

import argparse
import importlib
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from benchmarks.findings import Finding, say
from benchmarks.harness import parser, show


class Step(NamedTuple):
    """One benchmark as on its command line; ``quick`` are its options for a short run."""

    name: str
    options: str = ""
    quick: str = ""


STEPS = (
    Step("drain", "", "--jobs=20000"),
    Step("drain", "--history", "--jobs=20000"),
    Step("drain", "--payload=1024", "--jobs=20000"),
    Step("drain", "--task=anoop", "--jobs=20000"),
    Step("handlers", "", "--jobs=2000"),
    Step("handlers", "--task=avisit", "--jobs=2000"),
    Step("reference", "", "--jobs=10000"),
    Step("reference", "--busy", "--jobs=5000"),
    Step("latency", "", "--jobs=50"),
    Step("waiting", "", "--jobs=30"),
    Step("enqueue", "", "--jobs=200"),
    Step("outbox", "", "--jobs=5000"),
    Step("tracing", "", "--jobs=20000 --single=200 --turns=20"),
    Step("logs", "", "--jobs=20000"),
    Step("logs", "--quiet", "--jobs=20000"),
    Step("metrics", "", "--jobs=20000 --single=200 --scrapes=3 --queues 5"),
    Step("claims", "", "--scheduled=50000 --running=5000"),
    Step("drain", "--snapshot --jobs=200000", "--jobs=20000"),
    Step("claims", "--queued=10000000", "--queued=200000"),
    Step("keys", "", "--jobs=5000 --keys=50"),
    Step("fairness", "", "--backlog=50000 --dead=10000 --jobs=30"),
    Step("workflows", "", "--jobs=5000 --hops=50 --stages=20"),
    Step("bloat", "", "--seconds=6 --rate=1000"),
    Step("partitions", "", "--cold=20000 --seconds=1"),
    Step("inside", "", "--jobs=2000 --seconds=3 --rate=500"),
    Step("history", "", "--jobs=60000 --seconds=2 --drained=10000"),
    Step("startup"),
    Step("shards", "", "--jobs=5000 --seconds=3"),
    Step("wal", "", "--jobs=2000"),
    Step("memory", "", "--jobs=100000 --warm-up=20000"),
    Step("idle", "", "--seconds=5"),
    Step("limits", "", "--seconds=3 --jobs=300"),
    Step("recovery"),
    Step("admin", "", "--queued=20000 --dead=10000 --succeeded=50000"),
)


def main() -> None:
    options = parse()
    show(all_findings(options), options.json)


def parse() -> argparse.Namespace:
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--quick", action="store_true", help="a small run of each, to see that they work")
    made.add_argument("--only", default="", metavar="NAMES", help="of benchmarks, separated by commas")
    made.add_argument("--runs", type=int, help="of each measure; default: 5, with --quick 1")
    made.add_argument("--json", type=Path, metavar="FILE", help="write all findings with their samples")
    return made.parse_args()


def all_findings(options: argparse.Namespace) -> Iterator[Finding]:
    chosen = set(filter(None, options.only.split(",")))
    runs = options.runs or (1 if options.quick else 5)
    for step in STEPS:
        if not chosen or step.name in chosen:
            line = f"{step.options} {step.quick if options.quick else ''} --runs={runs}"
            say(f"benchmarks.{step.name} {line}")
            benchmark = importlib.import_module(f"benchmarks.{step.name}")
            yield from benchmark.findings(parser(benchmark).parse_args(shlex.split(line)))


if __name__ == "__main__":
    main()
