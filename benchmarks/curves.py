"""Draw the pictures of docs/explanation from what the benchmarks have written.

python -m benchmarks.sweep --json sweep.json
python -m benchmarks.latency --json latency.json
python -m benchmarks.bloat --json bloat.json
python -m benchmarks.peers --json peers.json
python -m benchmarks.curves sweep.json latency.json bloat.json peers.json
"""

import argparse
import json
import re
import statistics
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib import pyplot as plt
from matplotlib.ticker import EngFormatter, FuncFormatter, LogLocator, PercentFormatter

from benchmarks.findings import Samples, percentile

IMAGES = Path(__file__).parent.parent / "docs/explanation/images"
GREY, BLUE, ORANGE = "#7a828e", "#3b82f6", "#e0701a"
"""Each is readable on white and on black."""

STYLE = {
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "benchmarks",  # the same figures make the same file
    "figure.figsize": (6.4, 3.2),
    "figure.constrained_layout.use": True,
    "font.family": "sans-serif",
    "font.size": 10,
    "text.color": GREY,
    "axes.labelcolor": GREY,
    "axes.edgecolor": GREY,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 10,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "grid.color": GREY,
    "grid.alpha": 0.25,
    "xtick.color": GREY,
    "ytick.color": GREY,
    "lines.linewidth": 2,
    "savefig.transparent": True,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path, help="what benchmarks wrote with --json")
    parser.add_argument("--into", type=Path, default=IMAGES)
    options = parser.parse_args()
    options.into.mkdir(parents=True, exist_ok=True)
    mpl.use("svg")
    with mpl.rc_context(STYLE):
        for path in draw_all(map(read, options.files), options.into):
            print(path)


def read(file: Path) -> Any:
    return json.loads(file.read_text())


def draw_all(reports: Iterable[dict[str, Any]], folder: Path) -> Iterator[Path]:
    """Draw each report of the peers, and each finding of the other benchmarks that has a drawing."""
    for report in reports:
        if "drains" in report:
            yield draw_peers(report, folder)
        for finding in report.get("findings", ()):
            if draw := DRAWINGS.get(finding["measure"]):
                yield draw(finding["samples"], folder)


def draw_batches(samples: Samples, folder: Path) -> Path:
    figure, axes = plt.subplots()
    draw_rates(axes, samples)
    axes.set_xscale("log")
    axes.set_title("jobs/s of the bare statements, over the size of a batch")
    axes.set_xticks([int(size) for size in samples], list(samples))
    axes.minorticks_off()
    return save(figure, folder / "batch-size.svg")


def draw_processes(samples: Samples, folder: Path) -> Path:
    figure, axes = plt.subplots()
    draw_rates(axes, samples)
    axes.set_xticks([int(count) for count in samples])
    axes.set_title("jobs/s of a worker, over its number of processes")
    return save(figure, folder / "processes.svg")


def draw_rates(axes: Any, samples: Samples) -> None:
    """Draw the medians as a line, the range of the runs as a band."""
    across = [int(value) for value in samples]
    lowest, highest = list(map(min, samples.values())), list(map(max, samples.values()))
    axes.fill_between(across, lowest, highest, color=BLUE, alpha=0.2, linewidth=0)
    axes.plot(across, [statistics.median(seen) for seen in samples.values()], marker="o", color=BLUE)
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_formatter(EngFormatter(sep=" "))


def draw_latencies(samples: Samples, folder: Path) -> Path:
    figure, axes = plt.subplots()
    for name, colour in (("bare", ORANGE), ("worker", BLUE)):
        axes.ecdf(samples[name], color=colour)
        middle = percentile(samples[name], 50), 0.5
        axes.annotate(name, middle, xytext=(6, -12), textcoords="offset points", color=colour)
    axes.set_xscale("log")
    axes.set_title("jobs that have started, over the milliseconds since their commit")
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda milliseconds, _: f"{milliseconds:g}"))
    axes.minorticks_off()
    axes.yaxis.set_major_formatter(PercentFormatter(1))
    return save(figure, folder / "latency.svg")


def draw_bloat(samples: Samples, folder: Path) -> Path:
    """Draw three panels below each other, over the same seconds; the part in which the snapshot was held is shaded."""
    figure, (dead, room, claim) = plt.subplots(3, 1, sharex=True, figsize=(6.4, 5.4))
    seconds = samples["seconds"]
    held = [at for at, is_held in zip(seconds, samples["held"], strict=True) if is_held]
    for axes in (dead, room, claim):
        axes.axvspan(held[0] - 0.5, held[-1], color=ORANGE, alpha=0.12, linewidth=0)
        axes.set_ylim(bottom=0, auto=True)
    dead.plot(seconds, samples["dead rows"], color=BLUE)
    dead.yaxis.set_major_formatter(EngFormatter(sep=" "))
    dead.set_title("dead rows, as the server counts them; shaded: an old snapshot is held")
    for name, colour in (("table", BLUE), ("indexes", ORANGE)):
        room.plot(seconds, samples[name], color=colour)
        room.annotate(
            name, (seconds[-1], samples[name][-1]), xytext=(-4, 4), textcoords="offset points", color=colour, ha="right"
        )
    room.set_title("MB on the disk")
    claim.plot(seconds, smoothed(samples["claim from the head"]), color=BLUE)
    claim.set_title("milliseconds of a claim from the head of the queue: medians of five")
    claim.set_xlabel("seconds")
    for axes in (dead, room, claim):
        axes.set_ylim(bottom=0)
    return save(figure, folder / "bloat.svg")


def draw_peers(report: dict[str, Any], folder: Path) -> Path:
    """Draw a bar for each queue, the fastest on top: the median of its runs with one worker process."""
    drains = [drain for drain in report["drains"] if drain["processes"] == 1]
    drains.sort(key=lambda drain: drain["jobs_per_second"])
    rates = [drain["jobs_per_second"] for drain in drains]
    colours = [GREY if drain["requirements"] else BLUE for drain in drains]
    figure, axes = plt.subplots(figsize=(6.4, 0.7 + 0.28 * len(drains)))
    bars = axes.barh([queue(drain) for drain in drains], rates, color=colours, height=0.7)
    axes.bar_label(bars, [rate(drain) for drain in drains], padding=4)
    axes.grid(visible=False)
    axes.spines[["left", "bottom"]].set_visible(False)
    axes.tick_params(left=False, bottom=False, labelbottom=False)
    axes.margins(x=0.1, y=0.01)
    runs = max(len(drain["runs"]) for drain in drains)
    title = f"jobs/s of one worker process, {report['jobs']:,} jobs that do nothing, median of {runs} runs"
    figure.suptitle(title, x=0.01, ha="left", fontsize=10)
    figure.get_layout_engine().set(h_pad=0.1)
    return save(figure, folder / "peers.svg")


def queue(drain: dict[str, Any]) -> str:
    """Return name and version of a queue, which is the first of its requirements, and what it keeps of a job."""
    keeps = "" if drain["keeps"] == "nothing" else drain["keeps"]
    [version] = re.findall(r"[=@]([\d.]+)$", "".join(drain["requirements"][:1])) or [""]
    name = drain["peer"].removesuffix(f" {keeps}")
    return f"{name} {version}".strip() + (keeps and f", {keeps}")


def rate(drain: dict[str, Any]) -> str:
    stopped = "" if all(run["is_finished"] for run in drain["runs"]) else ", stopped"
    return f"{drain['jobs_per_second']:,.0f}{stopped}"


def smoothed(values: list[float]) -> list[float]:
    """Return the median of each value and its two neighbours on either side."""
    return [statistics.median(values[max(0, number - 2) : number + 3]) for number in range(len(values))]


def save(figure: Any, path: Path) -> Path:
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)
    return path


DRAWINGS = {
    "bare loop over batch size": draw_batches,
    "worker over processes": draw_processes,
    "pick-up latency, p50": draw_latencies,
    "dead rows over time": draw_bloat,
}

if __name__ == "__main__":
    main()
