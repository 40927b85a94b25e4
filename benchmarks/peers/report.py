"""Report of the measurements, as a table for people and as JSON for programs."""

import json
import os
import platform
import statistics
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path

from benchmarks.peers.catalogue import OURS, PYTHON, Peer
from benchmarks.peers.measure import FAN, JOIN, SEED, Drain, jobs_in


@dataclass
class Report:
    """Results as they come in, for a number of jobs."""

    jobs: int
    server: str
    shape: str = SEED
    drains: dict[tuple[Peer, int], list[Drain]] = field(default_factory=lambda: defaultdict(list))
    latencies: dict[Peer, list[float]] = field(default_factory=dict)
    failures: dict[Peer, str] = field(default_factory=dict)

    def rate(self, peer: Peer, processes: int) -> float | None:
        """Return the median of the runs in jobs per second; None without a run."""
        runs = self.drains.get((peer, processes))
        return statistics.median(run.jobs_per_second for run in runs) if runs else None

    def python_rate(self, processes: int) -> float | None:
        """Return the median of the Python peers' medians."""
        return median(
            self.rate(peer, processes) for peer in self.peers() if peer.language == PYTHON and not peer.is_ours
        )

    def peers(self) -> list[Peer]:
        """Return all that were drained, in the order of their turns."""
        return list(dict.fromkeys(peer for peer, _ in self.drains))

    def without_failures(self, peers: list[Peer]) -> list[Peer]:
        return [peer for peer in peers if peer not in self.failures]

    def processes(self) -> list[int]:
        return sorted({processes for _, processes in self.drains})

    def mark(self, peer: Peer, processes: int) -> str:
        """Return what is to be said about a rate: it is one until the deadline, or jobs were not called just once."""
        runs = self.drains[peer, processes]
        early = "" if all(run.is_finished for run in runs) else "~"
        return early + ("" if all(run.is_exact(jobs_in(self.shape, self.jobs)) for run in runs) else "!")


TITLES = {SEED: "{:,} jobs", JOIN: "{:,} members, one behind", FAN: "one, {:,} members behind"}


def median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def percentile(values: list[float], percent: int) -> float:
    """Return the smallest value that is not exceeded by this percentage of all."""
    ordered = sorted(values)
    return ordered[max(0, -(-len(ordered) * percent // 100) - 1)]


def show(report: Report) -> None:
    """Print the tables."""
    for processes in report.processes():
        show_drains(report, processes)
    if report.latencies:
        show_latencies(report)
    for peer, reason in report.failures.items():
        print(f"{peer.name}: {reason}")


def show_drains(report: Report, processes: int) -> None:
    ours = [peer for peer in OURS if report.rate(peer, processes)]
    title = f"{TITLES[report.shape].format(report.jobs)}, {processes} worker process{'es' if processes > 1 else ''}"
    print(f"\n{title:<38}{'jobs/s':>10}   ", *(f"{peer.name + ' ahead':>29}" for peer in ours))
    for peer in report.peers():
        if rate := report.rate(peer, processes):
            about = f"{peer.name} (keeps {peer.keeps})"
            print(f"{about:<38}{rate:>10,.0f} {report.mark(peer, processes):<2}", *ahead(report, ours, rate, processes))
    if python := report.python_rate(processes):
        print(f"{'median of the Python peers':<38}{python:>10,.0f}   ", *ahead(report, ours, python, processes))
    shared = "".join(report.mark(peer, processes) for peer in report.peers() if report.rate(peer, processes))
    if "~" in shared:
        print("~ stopped at the deadline: the rate until then")
    if "!" in shared:
        print("! some job was called twice or not at all")


def ahead(report: Report, ours: list[Peer], rate: float, processes: int) -> list[str]:
    return [f"{(report.rate(peer, processes) or 0) / rate:>28.2f}x" for peer in ours]


def show_latencies(report: Report) -> None:
    print(f"\n{'commit to handler, idle queue':<38}{'p50 ms':>10}{'p99 ms':>10}")
    for peer, values in report.latencies.items():
        print(f"{peer.name:<38}{percentile(values, 50):>10.1f}{percentile(values, 99):>10.1f}")


def write(report: Report, path: Path) -> None:
    """Write everything as JSON, each run included."""
    path.write_text(json.dumps(as_dict(report), indent=2) + "\n")


def as_dict(report: Report) -> dict[str, object]:
    return {
        "jobs": report.jobs,
        "shape": report.shape,
        "machine": {"cpus": os.cpu_count(), "python": platform.python_version(), "postgresql": report.server},
        "drains": [
            {
                "peer": peer.name,
                "keeps": peer.keeps,
                "requirements": peer.requirements,
                "processes": processes,
                "jobs_per_second": report.rate(peer, processes),
                "runs": [asdict(run) for run in runs],
            }
            for (peer, processes), runs in report.drains.items()
        ],
        "latencies_ms": [
            {"peer": peer.name, "p50": percentile(values, 50), "p99": percentile(values, 99), "jobs": len(values)}
            for peer, values in report.latencies.items()
        ],
        "failures": {peer.name: reason for peer, reason in report.failures.items()},
    }
