"""A report as the Markdown table of the README: `python -m benchmarks.markdown report.json`."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.report import Budget


def table(report: dict[str, Any], judged_only: bool = False) -> str:
    """Rows of a `report.json` as a Markdown table, under a line that says what made them.

    Args:
        judged_only: leave out the rows without a budget.
    """
    environment = report["environment"]
    lines = [
        f"`{report['command']}` on {environment['cpu']}; GPU: {environment['gpu']}; load average "
        f"{environment['load before the run']} before the run; revision {environment['revision']}.",
        "",
        "| What | Measured | Budget | |",
        "| --- | --- | --- | --- |",
    ]
    rows = [row for row in report["rows"] if row["budget"] or not judged_only]
    return "\n".join([*lines, *map(_line, rows)]) + "\n"


def _line(row: dict[str, Any]) -> str:
    budget = str(Budget(**row["budget"])) if row["budget"] else "–"
    verdict = "" if row["verdict"] == "reported" else row["verdict"]
    note = (
        f": {row['note']}" if row["note"] and verdict in ("missed", "not measurable here") else ""
    )
    cells = (row["quantity"], row["measured"], budget, verdict + note)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def main(arguments: Sequence[str]) -> None:
    """Print the table of the report at the given path."""
    print(table(json.loads(Path(arguments[0]).read_text("utf-8"))), end="")


if __name__ == "__main__":
    main(sys.argv[1:])
