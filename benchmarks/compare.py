"""Put the findings of several runs side by side, as of two versions of Python.

python3.11 -m benchmarks --json 311.json
python3.13 -m benchmarks --json 313.json
python -m benchmarks.compare 311.json 313.json
"""

import argparse
import json
from pathlib import Path
from typing import Any

from benchmarks.findings import figure, grid


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path, help="what benchmarks wrote with --json")
    documents = [json.loads(file.read_text()) for file in parser.parse_args().files]
    print(grid([("measure", "target", *map(heading, documents)), *rows(documents)]))


def heading(document: dict[str, Any]) -> str:
    environment = document["environment"]
    return f"Python {environment['python']}, PostgreSQL {environment['postgresql']}"


def rows(documents: list[dict[str, Any]]) -> list[tuple[str, ...]]:
    """Return a row for each measure of the first document, in its order."""
    columns = [{finding["measure"]: finding for finding in document["findings"]} for document in documents]
    return [
        (measure, f"{finding['target']} {finding['unit']}".strip(), *(seen(column.get(measure)) for column in columns))
        for measure, finding in columns[0].items()
    ]


def seen(finding: dict[str, Any] | None) -> str:
    if finding is None:
        return ""
    return figure(finding["seen"]) + (" (missed)" if finding["ok"] is False else "")


if __name__ == "__main__":
    main()
