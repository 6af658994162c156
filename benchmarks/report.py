"""Rows of the report: a quantity, what was measured, its budget, and whether it was met."""

import json
import textwrap
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from benchmarks.statistics import figure

Verdict = Literal["met", "missed", "not measurable here", "reported"]
WIDTH = 118


class OutputsDiffer(Exception):
    """Two ways to compute the same thing disagree: no time of either may be printed."""


@dataclass(frozen=True, slots=True)
class Budget:
    """A limit on a figure.

    Attributes:
        limit: in the row's own unit.
        at_most: whether the figure may not be above it, or not below.
        unit: written behind it.
    """

    limit: float
    at_most: bool
    unit: str = "×"

    def __str__(self) -> str:
        unit = self.unit if self.unit in ("×", "%") or not self.unit else f" {self.unit}"
        return f"{'≤' if self.at_most else '≥'} {figure(self.limit)}{unit}"

    def met_by(self, value: float) -> bool:
        """Whether `value` keeps it; a value that is not a number does not."""
        return value <= self.limit if self.at_most else value >= self.limit


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the report.

    Attributes:
        group: heading that it stands under.
        quantity: what, with its preconditions.
        measured: figures, as they are read.
        value: the figure that the budget is about; None where there is none.
        budget: the limit, if any.
        note: why it was missed or cannot be measured here, or what it stands beside.
        measurable: whether this machine could measure it at all.
    """

    group: str
    quantity: str
    measured: str
    value: float | None = None
    budget: Budget | None = None
    note: str = ""
    measurable: bool = True

    @property
    def verdict(self) -> Verdict:
        """Where the figure stands against its budget."""
        if not self.measurable:
            return "not measurable here"
        if self.budget is None or self.value is None:
            return "reported"
        return "met" if self.budget.met_by(self.value) else "missed"


def absent(group: str, quantity: str, why: str, budget: Budget | None = None) -> Row:
    """A row that this machine cannot measure, and why."""
    return Row(group, quantity, "–", None, budget, why, measurable=False)


@dataclass(slots=True)
class Section:
    """What one part of the benchmark hands back.

    Attributes:
        rows: for the table.
        facts: further figures for the JSON and the picture, by name.
    """

    rows: list[Row] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class Report:
    """Everything that one run found.

    Attributes:
        mode: quick or full.
        command: what made it.
        environment: machine, versions, revision.
        equality: sentences that say which outputs agreed, and within what.
    """

    mode: str
    command: str
    environment: dict[str, Any]
    equality: list[str]
    rows: list[Row] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)

    def add(self, section: Section) -> None:
        """Take over a section's rows and facts."""
        self.rows += section.rows
        self.facts.update(section.facts)

    def to_json(self) -> dict[str, Any]:
        """The whole report as plain values."""
        rows = [{**asdict(row), "verdict": row.verdict} for row in self.rows]
        return {
            "mode": self.mode,
            "command": self.command,
            "environment": self.environment,
            "equality": self.equality,
            "rows": rows,
            "facts": self.facts,
        }

    def write_json(self, path: Path) -> None:
        """Write `to_json` to `path`."""
        text = json.dumps(self.to_json(), ensure_ascii=False, indent=1)
        path.write_text(text + "\n", "utf-8")


def render(report: Report) -> str:
    """The report as text.

    Raises:
        OutputsDiffer: nobody has checked that the outputs agree.
    """
    if not report.equality:
        raise OutputsDiffer("the outputs were not compared, so no time is printed")
    lines = [f"benchmark, {report.mode} mode ({report.command})"]
    lines += [f"  {name}: {value}" for name, value in report.environment.items()]
    lines += ["outputs:", *(f"  {sentence}" for sentence in report.equality)]
    for group in dict.fromkeys(row.group for row in report.rows):
        rows = [row for row in report.rows if row.group == group]
        lines += ["", group, *_table(rows)]
    return "\n".join(lines) + "\n"


def _table(rows: Sequence[Row]) -> list[str]:
    lines = []
    for row in rows:
        budget = f"  [{row.budget}]" if row.budget else ""
        verdict = "" if row.verdict == "reported" else f"  {row.verdict.upper()}"
        head = textwrap.wrap(row.quantity, 52)
        lines.append(f"  {head[0]:<54}{row.measured}{budget}{verdict}")
        lines += [f"    {part}" for part in head[1:]]
        if row.note:
            lines += textwrap.wrap(
                row.note, WIDTH, initial_indent="      · ", subsequent_indent="        "
            )
    return lines


def tally(rows: Sequence[Row]) -> str:
    """How many budgets were met."""
    verdicts = [row.verdict for row in rows if row.budget]
    parts = [f"{verdicts.count(kind)} {kind}" for kind in ("met", "missed", "not measurable here")]
    return "budgets: " + ", ".join(parts)
