"""The number of cores that the tests may use."""

import math
import os
from pathlib import Path

CGROUP = Path("/sys/fs/cgroup")  # of a container: its own


def cores(cgroup: Path = CGROUP) -> int:
    """Return how many cores this process may run on, or fewer where its container may use less time than these have."""
    there = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = _words(cgroup / "cpu.max") or [
        *_words(cgroup / "cpu/cpu.cfs_quota_us"),
        *_words(cgroup / "cpu/cpu.cfs_period_us"),
    ]
    match quota:
        case [time, period] if time not in {"max", "-1"}:
            return max(1, min(there, math.ceil(int(time) / int(period))))
    return there


def _words(path: Path) -> list[str]:
    return path.read_text().split() if path.is_file() else []
