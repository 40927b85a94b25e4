import argparse
import contextlib
import fcntl
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

from benchmarks import peers
from benchmarks.peers.catalogue import OURS, PEERS, Peer
from benchmarks.peers.install import InstallError, install, why_missing
from benchmarks.peers.measure import FAN, JOIN, SEED, drain, latencies
from benchmarks.peers.places import server_version
from benchmarks.peers.processes import PeerError
from benchmarks.peers.report import Report, percentile, show, write


def main() -> None:
    options = parse()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))  # the peers' processes end with this one
    if options.install:
        install_all(options.only)
        return
    report = Report(jobs=options.jobs, server=server_version(), shape=options.shape)
    contestants = [peer for peer in installed(options.only, report) if options.shape == SEED or peer.has_workflows]
    for number in range(1, options.runs + 1):
        for processes in options.processes:
            for peer in report.without_failures(contestants):
                drain_once(peer, report, options, number=number, processes=processes)
    if options.latency:
        for peer in report.without_failures(contestants):
            pick_up_latency(peer, report, options)
    show(report)
    if options.json:
        write(report, options.json)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=peers.__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--install", action="store_true", help="install the peers and end")
    parser.add_argument("--only", type=names, default=list(PEERS), help="comma-separated peers; default: all")
    parser.add_argument("--jobs", type=int, default=20_000)
    parser.add_argument("--runs", type=int, default=3, help="rounds of drains; 0: none; default: 3")
    parser.add_argument("--processes", type=numbers, default=[1, 2], help="worker processes; default: 1,2")
    parser.add_argument("--shape", choices=[SEED, JOIN, FAN], default=SEED, help="what the jobs are; default: seed")
    parser.add_argument("--latency", action="store_true", help="measure the pick-up latency as well")
    parser.add_argument("--seconds", type=float, default=120.0, help="deadline of one drain; default: 120")
    parser.add_argument("--json", type=Path, help="write all results to this file")
    parser.add_argument("--lock", type=Path, help="file to lock for each measurement, where several benchmarks run")
    return parser.parse_args()


def names(text: str) -> list[Peer]:
    known = {peer.name: peer for peer in PEERS}
    try:
        return [known[name] for name in text.split(",")]
    except KeyError as error:
        raise argparse.ArgumentTypeError(f"{error} is none of {', '.join(known)}") from error


def numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


def install_all(chosen: list[Peer]) -> None:
    for peer in chosen:
        try:
            install(peer)
            print(f"{peer.name}: {', '.join(peer.requirements)}", flush=True)
        except InstallError as error:
            print(f"{peer.name}: {error}", flush=True)


def installed(chosen: list[Peer], report: Report) -> list[Peer]:
    """Return ourselves and all chosen peers that are there; note why the others are not."""
    report.failures |= {peer: reason for peer in chosen if (reason := why_missing(peer))}
    return report.without_failures([*OURS, *chosen])


def drain_once(peer: Peer, report: Report, options: argparse.Namespace, *, number: int, processes: int) -> None:
    with turn(peer, report, options.lock):
        result = drain(peer, jobs=options.jobs, processes=processes, seconds=options.seconds, shape=options.shape)
        report.drains[peer, processes].append(result)
        mark = "" if result.is_finished else "  (stopped at the deadline)"
        rate = f"{result.jobs_per_second:>9,.0f} jobs/s"
        print(f"run {number}, {processes} process(es): {peer.name:<24}{rate}{mark}", flush=True)


def pick_up_latency(peer: Peer, report: Report, options: argparse.Namespace) -> None:
    with turn(peer, report, options.lock):
        values = report.latencies[peer] = latencies(peer)
        p50, p99 = percentile(values, 50), percentile(values, 99)
        print(f"latency: {peer.name:<24} p50 {p50:.1f} ms, p99 {p99:.1f} ms", flush=True)


@contextlib.contextmanager
def turn(peer: Peer, report: Report, lock: Path | None) -> Iterator[None]:
    """Measure alone, as far as others look at the same lock; note a failure and go on."""
    with contextlib.ExitStack() as stack:
        if lock:
            fcntl.flock(stack.enter_context(lock.open("a")), fcntl.LOCK_EX)
        try:
            yield
        except PeerError as error:
            report.failures[peer] = str(error)
            print(f"{peer.name}: {error}", flush=True)


if __name__ == "__main__":
    main()
