"""Draw the diagrams of docs/explanation: plain SVG, in colours that can be read on white and on black.

python docs/pictures.py

Text stays text. What is filled has white letters; what is not has a grey that stands out from either ground alike.
"""

from collections.abc import Iterable
from html import escape
from pathlib import Path

IMAGES = Path(__file__).parent / "explanation" / "images"
GREY, BLUE, ORANGE, GREEN, RED = "#757b86", "#2f6fde", "#c2570c", "#1f8a4c", "#cc3340"
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
MARKS = {"grey": GREY, "blue": BLUE, "orange": ORANGE, "green": GREEN, "red": RED}
"""Of what is filled; white stands out from each."""

LETTERS = {"grey": "#767c87", "blue": "#3d79e0", "orange": "#ca5b0d", "green": "#208d4e", "red": "#d34e59"}
"""Of letters and lines: 4.2 to 1 on white, 4.4 to 1 on the dark ground of these pages."""

Point = tuple[float, float]


class Picture:
    """One drawing. Coordinates are pixels at full size, from the top left; it scales."""

    def __init__(self, width: int, height: int, title: str) -> None:
        self._head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
            f' role="img" font-family="{escape(FONT)}" font-size="14">\n<title>{escape(title)}</title>\n<defs>\n'
            + "".join(
                f'<marker id="{name}" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7"'
                f' orient="auto-start-reverse"><path d="M0 0 10 5 0 10z" fill="{colour}"/></marker>\n'
                for name, colour in LETTERS.items()
            )
            + "</defs>\n"
        )
        self._parts: list[str] = []

    def box(self, x: float, y: float, width: float, lines: Iterable[str], *, fill: str = "blue") -> None:
        """A filled box around ``y`` with its lines of white text, the first of them bold."""
        told = list(lines)
        height = 18 * len(told) + 14
        self._parts.append(
            f'<rect x="{x:g}" y="{y - height / 2:g}" width="{width:g}" height="{height:g}" rx="7"'
            f' fill="{MARKS[fill]}"/>'
        )
        for number, line in enumerate(told):
            at = y - height / 2 + 7 + 14 + 18 * number
            self.text(x + width / 2, at, line, fill="#fff", anchor="middle", bold=number == 0)

    def text(
        self, x: float, y: float, line: str, *, fill: str = "grey", anchor: str = "start", bold: bool = False
    ) -> None:
        weight = ' font-weight="600"' if bold else ""
        colour = LETTERS.get(fill, fill)
        self._parts.append(
            f'<text x="{x:g}" y="{y:g}" fill="{colour}" text-anchor="{anchor}"{weight}>{escape(line)}</text>'
        )

    def texts(self, x: float, y: float, lines: Iterable[str], *, fill: str = "grey", anchor: str = "start") -> None:
        for number, line in enumerate(lines):
            self.text(x, y + 18 * number, line, fill=fill, anchor=anchor)

    def arrow(self, *points: Point, colour: str = "grey", dashed: bool = False) -> None:
        """A line with rounded bends from point to point, and a head at its end."""
        path = " ".join(f"{'M' if number == 0 else 'L'}{x:g} {y:g}" for number, (x, y) in enumerate(points))
        self._line(path, colour, f' marker-end="url(#{colour})"', dashed=dashed)

    def line(self, *points: Point, colour: str = "grey", dashed: bool = False, width: float = 1.8) -> None:
        path = " ".join(f"{'M' if number == 0 else 'L'}{x:g} {y:g}" for number, (x, y) in enumerate(points))
        self._line(path, colour, dashed=dashed, width=width)

    def bar(
        self, x: float, y: float, width: float, height: float, *, fill: str = "blue", opacity: float = 0.25
    ) -> None:
        self._parts.append(
            f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="4" fill="{MARKS[fill]}"'
            f' fill-opacity="{opacity:g}"/>'
        )

    def cross(self, x: float, y: float, *, colour: str = "red") -> None:
        self._line(f"M{x - 7:g} {y - 7:g}L{x + 7:g} {y + 7:g}M{x - 7:g} {y + 7:g}L{x + 7:g} {y - 7:g}", colour, width=3)

    def _line(self, path: str, colour: str, end: str = "", *, dashed: bool = False, width: float = 1.8) -> None:
        more = ' stroke-dasharray="5 4"' * dashed + end
        self._parts.append(
            f'<path d="{path}" fill="none" stroke="{LETTERS[colour]}" stroke-width="{width:g}"'
            f' stroke-linejoin="round"{more}/>'
        )

    def __str__(self) -> str:
        return self._head + "\n".join(self._parts) + "\n</svg>\n"


def states() -> Picture:
    """Where a job can be, and what moves it."""
    drawn = Picture(760, 520, "The statuses of a job and what moves it from one to the next")
    drawn.text(380, 22, "enqueue", anchor="middle", bold=True)
    drawn.arrow((380, 30), (380, 84))
    drawn.text(372, 62, "due now", anchor="end")
    drawn.arrow((340, 18), (120, 18), (120, 84))
    drawn.text(128, 62, "due later")
    drawn.arrow((420, 18), (640, 18), (640, 84))
    drawn.text(632, 62, "due now, with a concurrency key", anchor="end")
    drawn.box(50, 108, 140, ["scheduled"])
    drawn.box(310, 108, 140, ["queued"])
    drawn.box(570, 108, 140, ["limited"])
    drawn.arrow((190, 100), (308, 100))
    drawn.text(249, 92, "promote", anchor="middle")
    drawn.arrow((570, 102), (452, 102))
    drawn.text(511, 94, "admit", anchor="middle")
    drawn.box(290, 268, 180, ["running", "one attempt, one lease"], fill="orange")
    drawn.arrow((360, 124), (360, 241), colour="orange")
    drawn.text(352, 160, "claim", fill="orange", anchor="end")
    drawn.arrow((405, 243), (405, 127), dashed=True)
    drawn.texts(413, 178, ["release: given back unrun", "reap: its worker died"])
    drawn.arrow((290, 268), (120, 268), (120, 127))
    drawn.texts(130, 214, ["scheduled retry: attempts are left", "Snooze: attempt restored"])
    drawn.box(80, 410, 200, ["pgqueue_succeeded_jobs", "or deleted"], fill="green")
    drawn.box(480, 410, 200, ["pgqueue_dead_jobs", "with the reason"], fill="red")
    drawn.arrow((350, 295), (350, 330), (180, 330), (180, 383), colour="green")
    drawn.text(190, 322, "success", fill="green")
    drawn.arrow((410, 295), (410, 330), (580, 330), (580, 383), colour="red")
    drawn.texts(452, 304, ["out of attempts, Discard, killed,", "lost for the third time"], fill="red")
    drawn.arrow((680, 410), (742, 410), (742, 146), (480, 146), (480, 118), (452, 118))
    drawn.text(734, 360, "retry by hand", anchor="end")
    drawn.arrow((180, 437), (180, 478), dashed=True)
    drawn.text(190, 464, "hold of its key")
    drawn.text(180, 498, "reserved: only the unique key still counts", anchor="middle")
    drawn.text(580, 464, "kill, expire: from scheduled, queued,", anchor="middle")
    drawn.text(580, 482, "limited, blocked directly to the dead jobs", anchor="middle")
    drawn.texts(510, 222, ["blocked: its stage of a workflow", "is not open; when it opens,", "as if it were enqueued"])
    return drawn


def fence() -> Picture:
    """Worker A freezes with a job; B runs it; what A says later finds no row."""
    drawn = Picture(760, 600, "A frozen worker, its lease, and the fence that refuses its outcome")
    a, row, b = 110, 380, 650
    for x, name, fill in ((a, "worker A", "blue"), (row, "the job's row", "orange"), (b, "worker B", "green")):
        drawn.box(x - 75, 28, 150, [name], fill=fill)
        drawn.line((x, 46), (x, 584), dashed=True)
    drawn.arrow((a, 84), (row - 4, 84), colour="blue")
    drawn.text(245, 76, "claim, token 7f3a", fill="blue", anchor="middle")
    drawn.bar(a - 6, 84, 12, 62, fill="blue", opacity=1)
    drawn.texts(row + 14, 88, ["running, attempt 1", "lease_token 7f3a"], fill="orange")
    drawn.bar(row - 6, 84, 12, 148, fill="orange", opacity=1)
    drawn.text(a + 16, 124, "runs the task")
    drawn.cross(a, 152)
    drawn.texts(a + 16, 150, ["frozen: a suspended machine,", "no heartbeat any more"], fill="red")
    drawn.text(row + 14, 196, "the lease runs out")
    drawn.arrow((b, 232), (row + 4, 232), colour="green")
    drawn.text(515, 224, "reap: lease is over, no heartbeat", fill="green", anchor="middle")
    drawn.texts(row - 14, 252, ["queued again", "lease_token 0"], fill="orange", anchor="end")
    drawn.arrow((b, 296), (row + 4, 296), colour="green")
    drawn.text(515, 288, "claim, token c41e", fill="green", anchor="middle")
    drawn.texts(row - 14, 300, ["running, attempt 2", "lease_token c41e"], fill="orange", anchor="end")
    drawn.bar(row - 6, 296, 12, 112, fill="orange", opacity=1)
    drawn.bar(b - 6, 296, 12, 112, fill="green", opacity=1)
    drawn.text(b - 16, 356, "runs the task", anchor="end")
    drawn.arrow((b, 408), (row + 4, 408), colour="green")
    drawn.text(515, 400, "ack (id, c41e): one row", fill="green", anchor="middle")
    drawn.text(row - 14, 428, "gone: succeeded", fill="orange", anchor="end")
    drawn.bar(a - 6, 470, 12, 60, fill="blue", opacity=1)
    drawn.text(a + 16, 480, "thaws, and the task returns")
    drawn.arrow((a, 530), (row - 4, 530), colour="blue")
    drawn.text(245, 522, "ack (id, 7f3a)", fill="blue", anchor="middle")
    drawn.cross(row, 530)
    drawn.texts(row + 16, 526, ["no such row: nothing changes,", "“Stale result dropped”"], fill="red")
    return drawn


def commit() -> Picture:
    """A job is part of the transaction, the wake-up comes after it."""
    drawn = Picture(760, 320, "A transaction that enqueues a job, and when a worker learns of it")
    drawn.text(20, 66, "your request", bold=True)
    drawn.text(20, 176, "the database", bold=True)
    drawn.text(20, 286, "a worker", bold=True)
    for y, end in ((60, 745), (170, 460), (280, 745)):
        drawn.line((130, y), (end, y), width=1)
    drawn.bar(150, 40, 270, 40, fill="blue")
    for x, word in ((165, "BEGIN"), (255, "INSERT order"), (350, "INSERT job")):
        drawn.line((x, 52), (x, 68), colour="blue", width=3)
        drawn.text(x, 30, word, fill="blue", anchor="middle")
    drawn.box(420, 60, 80, ["COMMIT"])
    drawn.box(530, 60, 80, ["NOTIFY"], fill="orange")
    drawn.text(285, 100, "atomic(): no other session sees either row", anchor="middle")
    drawn.arrow((460, 76), (460, 150), colour="blue")
    drawn.texts(470, 112, ["both rows,", "or neither"], fill="blue")
    drawn.bar(460, 152, 285, 36, fill="green")
    drawn.text(580, 175, "order and job are there", fill="green")
    drawn.text(290, 164, "rolled back: as if nothing had been", anchor="middle")
    drawn.arrow((570, 76), (570, 262), colour="orange")
    drawn.text(578, 232, "wakes", fill="orange")
    drawn.text(290, 304, "sleeps; polls once a second all the same", anchor="middle")
    for x, word in ((570, "claim"), (636, "run"), (702, "ack")):
        drawn.box(x - 27, 280, 54, [word], fill="green")
    return drawn


def outbox() -> Picture:
    """What can happen between a database and a broker, and what an outbox does about it."""
    drawn = Picture(760, 470, "Three ways to enqueue in a broker beside a database, and what each can lose")
    for y, name in ((70, "before the commit"), (210, "after the commit"), (350, "by an outbox")):
        drawn.text(20, y - 34, name, bold=True)
        drawn.line((20, y), (112 if "outbox" in name else 745, y), width=1)
    y = 70
    drawn.box(120, y, 90, ["send"], fill="orange")
    drawn.box(330, y, 90, ["COMMIT"])
    drawn.arrow((165, y + 16), (165, y + 46), (240, y + 46), colour="orange")
    drawn.text(248, y + 51, "a worker runs it: no such row yet", fill="red")
    drawn.cross(450, y)
    drawn.text(466, y - 10, "rolled back: the job runs for", fill="red")
    drawn.text(466, y + 24, "an order that never was", fill="red")
    y = 210
    drawn.box(120, y, 90, ["COMMIT"])
    drawn.box(330, y, 90, ["send"], fill="orange")
    drawn.cross(270, y)
    drawn.texts(205, y + 40, ["crash, or the broker is away:", "the order is there, its job never comes"], fill="red")
    y = 350
    drawn.bar(112, y - 22, 208, 44, fill="blue")
    drawn.box(120, y, 100, ["outbox row"])
    drawn.box(228, y, 85, ["COMMIT"])
    drawn.arrow((320, y), (398, y))
    drawn.box(400, y, 80, ["relay"], fill="orange")
    drawn.arrow((480, y), (573, y))
    drawn.text(527, y - 8, "send", anchor="middle")
    drawn.box(575, y, 80, ["broker"], fill="orange")
    drawn.arrow((655, y), (690, y))
    drawn.text(692, y + 5, "worker", fill="grey")
    drawn.texts(
        20, y + 50,
        [
            "Nothing is lost. The table, its relay and their dead rows are now yours, and a crash between",
            "send and delete sends twice. In PostgreSQL the outbox is the queue: no relay, no broker.",
        ],
    )  # fmt: skip
    return drawn


PICTURES = {"states": states, "fence": fence, "commit": commit, "outbox": outbox}

if __name__ == "__main__":
    for name, draw in PICTURES.items():
        (IMAGES / f"{name}.svg").write_text(str(draw()))
