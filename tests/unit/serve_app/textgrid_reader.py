"""A strict reader of Praat's long text format: every line in its place, every tier covered."""

import re
from dataclasses import dataclass

Interval = tuple[float, float, str]


@dataclass(frozen=True)
class Grid:
    """A grid: `xmax` in seconds, and its interval tiers by name, in order."""

    xmax: float
    tiers: dict[str, list[Interval]]


class _Lines:
    def __init__(self, text: str) -> None:
        assert text.endswith("\n")
        self._lines = text.removesuffix("\n").split("\n")

    def take(self, pattern: str) -> str:
        line = self._lines.pop(0)
        match = re.fullmatch(pattern, line)
        assert match is not None, f"{line!r} is not {pattern!r}"
        return match[1] if match.re.groups else ""

    def number(self, indent: int, name: str) -> float:
        return float(self.take(rf" {{{indent}}}{name} = (\d+(?:\.\d*[1-9])?)"))

    def text(self, indent: int, name: str) -> str:
        return self.take(rf' {{{indent}}}{name} = "((?:[^"]|"")*)"').replace('""', '"')

    def end(self) -> None:
        assert self._lines == []


def read_textgrid(data: bytes) -> Grid:
    """The grid, or an AssertionError that says which line breaks the format."""
    lines = _Lines(data.decode("utf-8"))
    lines.take('File type = "ooTextFile"')
    lines.take('Object class = "TextGrid"')
    lines.take("")
    assert lines.number(0, "xmin") == 0
    xmax = lines.number(0, "xmax")
    assert xmax > 0
    lines.take("tiers\\? <exists>")
    size = int(lines.take(r"size = (\d+)"))
    lines.take(r"item \[\]:")
    tiers: dict[str, list[Interval]] = {}
    for number in range(1, size + 1):
        lines.take(rf" {{4}}item \[{number}\]:")
        name, intervals = _tier(lines, xmax)
        assert name not in tiers
        tiers[name] = intervals
    lines.end()
    return Grid(xmax, tiers)


def _tier(lines: _Lines, xmax: float) -> tuple[str, list[Interval]]:
    lines.take(' {8}class = "IntervalTier"')
    name = lines.text(8, "name")
    assert lines.number(8, "xmin") == 0
    assert lines.number(8, "xmax") == xmax
    count = int(lines.take(r" {8}intervals: size = (\d+)"))
    intervals: list[Interval] = []
    reached = 0.0
    for number in range(1, count + 1):
        lines.take(rf" {{8}}intervals \[{number}\]:")
        begin, end = lines.number(12, "xmin"), lines.number(12, "xmax")
        assert begin == reached < end
        intervals.append((begin, end, lines.text(12, "text")))
        reached = end
    assert reached == xmax
    return name, intervals
