"""Praat's TextGrid, the long text format ("TextGrid file formats" in Praat's manual)."""

from collections.abc import Iterable
from itertools import pairwise
from typing import Any

from serve_app.formats.spans import Span, end_of, items, spoken_name, timeline
from serve_app.formats.text import error_text, number_text, one_line

Interval = tuple[float, float, str]

LEAST_SECONDS = 1.0
"""Length of a grid whose every item failed: Praat takes none of length 0."""


def textgrid_bytes(result: dict[str, Any], start: float) -> bytes:
    """Two interval tiers, `emotion` and `score`, for each item; a failed item is one tier with
    its error as text. Every tier covers 0 to the end of the longest item without a gap."""
    tiers: list[tuple[str, list[Interval]]] = []
    end = LEAST_SECONDS
    results = [item for item in items(result) if "error" not in item]
    if results:
        end = _rounded(max(end_of(item, start) for item in results))
    for item in items(result):
        name = spoken_name(item)
        if "error" in item:
            tiers.append((f"emotion {name}", [(0.0, end, f"error {error_text(item)}")]))
            continue
        parts = _apart(list(timeline(item, start)), end)
        scores = [(a, b, number_text(s.score) if s.scores else "") for a, b, s in parts]
        labels = [(a, b, one_line(s.label)) for a, b, s in parts]
        tiers.append((f"emotion {name}".strip(), _covering(labels, end)))
        tiers.append((f"score {name}".strip(), _covering(scores, end)))
    return _written(tiers, end).encode()


def _apart(parts: list[Span], end: float) -> list[tuple[float, float, Span]]:
    """Intervals of a tier cannot overlap: overlapping windows meet in the middle of the
    overlap, so that each keeps the time around its centre."""
    begins = [_rounded(part.start) for part in parts]
    ends = [min(_rounded(part.end), end) for part in parts]
    for i, (_, following) in enumerate(pairwise(parts)):
        if _rounded(following.start) < ends[i]:
            ends[i] = begins[i + 1] = _rounded((following.start + parts[i].end) / 2)
    found = zip(begins, ends, parts, strict=True)
    return [(a, b, part) for a, b, part in found if a < b]


def _covering(intervals: Iterable[Interval], end: float) -> list[Interval]:
    covered: list[Interval] = []
    reached = 0.0
    for begin, stop, text in intervals:
        if begin > reached:
            covered.append((reached, begin, ""))
        covered.append((begin, stop, text))
        reached = stop
    if reached < end:
        covered.append((reached, end, ""))
    return covered


def _written(tiers: list[tuple[str, list[Interval]]], end: float) -> str:
    lines = ['File type = "ooTextFile"', 'Object class = "TextGrid"', ""]
    lines += ["xmin = 0", f"xmax = {_time(end)}", "tiers? <exists>", f"size = {len(tiers)}"]
    lines.append("item []:")
    for number, (name, intervals) in enumerate(tiers, 1):
        lines += [f"    item [{number}]:", '        class = "IntervalTier"']
        lines += [f"        name = {_quoted(name)}", "        xmin = 0"]
        lines += [f"        xmax = {_time(end)}", f"        intervals: size = {len(intervals)}"]
        for count, (begin, stop, text) in enumerate(intervals, 1):
            lines += [f"        intervals [{count}]:", f"            xmin = {_time(begin)}"]
            lines += [f"            xmax = {_time(stop)}", f"            text = {_quoted(text)}"]
    return "\n".join(lines) + "\n"


def _rounded(seconds: float) -> float:
    # gaps under a microsecond are rounding, and Praat would show them as intervals
    return round(float(seconds), 6)


def _time(seconds: float) -> str:
    # never with an exponent: common readers of the format do not know it
    return f"{seconds:.6f}".rstrip("0").rstrip(".")


def _quoted(text: str) -> str:
    doubled = text.replace('"', '""')
    return f'"{doubled}"'
