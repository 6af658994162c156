"""The report as one picture: each budgeted figure against its limit, and the load curve."""

import math
from collections.abc import Sequence
from typing import Any
from xml.sax.saxutils import escape

from benchmarks.report import Report, Row

WIDTH, LABEL, LINE, BAR = 1120, 520, 22, 420
COLOURS = {"met": "#2e7d32", "missed": "#c62828"}
SPAN = 10.0
"""Bars reach from a tenth of the limit to ten times the limit, logarithmically."""


def svg(report: Report) -> str:
    """An SVG document."""
    rows = [row for row in report.rows if row.verdict in COLOURS]
    parts, y = _bars(rows)
    curve = report.facts.get("concurrency", {})
    if curve:
        more, y = _curve(curve, y + 30)
        parts += more
    head = _text(16, 28, f"emotion2vec-serve, {report.mode} benchmark", size=16, weight="bold")
    where = f"{report.environment.get('cpu', '')}, GPU {report.environment.get('gpu', '')}"
    body = "\n".join([head, _text(16, 48, where), *parts])
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{y + 20}" '
        f'font-family="sans-serif" font-size="12">\n'
        f'<rect width="100%" height="100%" fill="white"/>\n{body}\n</svg>\n'
    )


def margin(row: Row) -> float:
    """How far a figure keeps its budget: 1 at the limit, above 1 better, 0 hopeless."""
    assert row.budget is not None
    assert row.value is not None
    better, worse = (
        (row.budget.limit, row.value) if row.budget.at_most else (row.value, row.budget.limit)
    )
    if worse <= 0:
        return SPAN
    return max(0.0, better / worse)


def _bars(rows: Sequence[Row]) -> tuple[list[str], int]:
    middle = LABEL + BAR // 2
    y = 84
    parts = [_text(middle, 72, "budget", anchor="middle")]
    for row in rows:
        share = min(max(margin(row), 1 / SPAN), SPAN)
        end = middle + BAR / 2 * math.log(share) / math.log(SPAN)
        left, width = min(middle, end), max(2.0, abs(end - middle))
        parts.append(_text(LABEL - 10, y + 14, _short(row.quantity), anchor="end"))
        parts.append(
            f'<rect x="{left:.1f}" y="{y + 3}" width="{width:.1f}" height="{LINE - 7}" '
            f'fill="{COLOURS[row.verdict]}"/>'
        )
        # the whole figure is in the table; here its first number stands beside the limit
        text = f"{row.measured.split(' (')[0]} [{row.budget}]"
        parts.append(_text(LABEL + BAR + 8, y + 14, text))
        y += LINE
    parts.append(f'<line x1="{middle}" x2="{middle}" y1="78" y2="{y}" stroke="#333"/>')
    return parts, y


def _curve(points: dict[str, Any], top: int) -> tuple[list[str], int]:
    height, left, right = 160, 90, WIDTH - 90
    names = list(points)
    parts = [_text(16, top, "callers → clips per second (line), P50 in s (numbers)", weight="bold")]
    highest = max(point["per_second"] for point in points.values())
    places = []
    for number, name in enumerate(names):
        x = left + (right - left) * number / max(1, len(names) - 1)
        y = top + 30 + height * (1 - points[name]["per_second"] / highest)
        places.append((x, y))
        rate, p50 = points[name]["per_second"], points[name]["p50"]
        parts.append(_text(x, y - 8, f"{rate:.3g}/s, {p50:.2f} s", anchor="middle"))
        parts.append(_text(x, top + height + 50, name, anchor="middle"))
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    parts.append(f'<polyline points="{path}" fill="none" stroke="#1565c0" stroke-width="2"/>')
    return parts, top + height + 60


def _short(text: str, most: int = 78) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def _text(
    x: float, y: float, text: str, *, size: int = 12, anchor: str = "start", weight: str = "normal"
) -> str:
    return (
        f'<text x="{x:.0f}" y="{y:.0f}" font-size="{size}" text-anchor="{anchor}" '
        f'font-weight="{weight}">{escape(text)}</text>'
    )
