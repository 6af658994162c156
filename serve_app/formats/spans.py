"""A result as stretches of audio with their scores: what every line and timeline is made of."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

TAIL_SECONDS = 0.03
"""A pass has up to 25 ms after its last frame's hop that are no frame of their own."""

NAMES = ("index", "channel")
"""What tells the items of a list apart."""


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of audio.

    Attributes:
        start, end: seconds of the file.
        scores: (label, probability), highest first; empty where the model has no labels.
        embedding: its features, or None.
    """

    start: float
    end: float
    scores: Sequence[tuple[str, Any]]
    embedding: Any = None

    @property
    def label(self) -> str:
        """The most probable label, or ''."""
        return self.scores[0][0] if self.scores else ""

    @property
    def score(self) -> Any:
        """Its probability, or None."""
        return self.scores[0][1] if self.scores else None


def items(result: dict[str, Any]) -> list[dict[str, Any]]:
    """The results of a list object; a single result is a list of one."""
    found: list[dict[str, Any]] = result["data"] if is_list(result) else [result]
    return found


def is_list(result: dict[str, Any]) -> bool:
    """Whether it is a list object, whose items have a name and may be errors."""
    return result.get("object") == "list"


def names(item: dict[str, Any]) -> dict[str, Any]:
    """`index`, `channel`, or both of an item; nothing for a single result."""
    return {name: item[name] for name in NAMES if name in item}


def spoken_name(item: dict[str, Any]) -> str:
    """The name for people: 'channel 0', 'file 2', or ''."""
    words = {"index": "file", "channel": "channel"}
    return " ".join(f"{words[name]} {value}" for name, value in names(item).items())


def spans(item: dict[str, Any], start: float) -> Iterator[Span]:
    """As fine as the item's `granularity`: the whole, its segments, or its frames."""
    granularity = item["granularity"]
    if granularity == "segment":
        for part in item["segments"]:
            yield Span(part["start"], part["end"], _pairs(part), part.get("embedding"))
    elif granularity == "frame":
        yield from _frames(item, start)
    else:
        yield Span(start, end_of(item, start), _pairs(item), item.get("embedding"))


def timeline(item: dict[str, Any], start: float) -> Iterator[Span]:
    """As `spans`, with neighbouring frames of the same label as one span.

    Its score is the mean of that label's probability over the frames.
    """
    if item["granularity"] == "frame":
        yield from _merged_frames(item, start)
    else:
        yield from spans(item, start)


def end_of(item: dict[str, Any], start: float) -> float:
    """Where the item's audio ends, in seconds of the file."""
    duration = float(item["duration"])
    # a sum of two floats has digits that neither of them had
    return round(start + duration, 9) if start else duration


def _pairs(part: dict[str, Any]) -> list[tuple[str, Any]]:
    return [(entry["label"], entry["score"]) for entry in part.get("scores", ())]


def _edges(item: dict[str, Any], start: float) -> Iterator[tuple[dict[str, Any], list[float]]]:
    """Each run that has scores, and where its frames begin, and the last one ends."""
    frames = item["frames"]
    runs = [run for run in frames["runs"] if "scores" in run]
    limits = [*(run["start"] for run in runs[1:]), end_of(item, start)]
    for run, limit in zip(runs, limits, strict=False):
        # one product per frame, so that nothing adds up; rounded, because 35 * 0.02 is not 0.7
        times = run["start"] + frames["hop"] * np.arange(len(run["scores"]) + 1)
        edges = np.round(times, 9).tolist()
        if limit - edges[-1] <= TAIL_SECONDS:
            edges[-1] = limit
        yield run, edges


def _frames(item: dict[str, Any], start: float) -> Iterator[Span]:
    labels = item["frames"]["labels"]
    for run, edges in _edges(item, start):
        scores = _float_rows(run["scores"])
        orders = np.argsort(-scores, axis=1, kind="stable")
        embeddings = run.get("embeddings")
        for i, (row, order) in enumerate(zip(scores, orders.tolist(), strict=True)):
            pairs = [(labels[k], row[k]) for k in order]
            yield Span(edges[i], edges[i + 1], pairs, None if embeddings is None else embeddings[i])


def _merged_frames(item: dict[str, Any], start: float) -> Iterator[Span]:
    rows, begins, ends = [], [], []
    for run, edges in _edges(item, start):
        rows.append(_float_rows(run["scores"]))
        begins += edges[:-1]
        ends += edges[1:]
    labels = item["frames"]["labels"]
    if not rows or not labels:
        return
    scores = np.concatenate(rows)
    top = scores.argmax(axis=1)
    apart = (np.diff(top) != 0) | (np.array(begins[1:]) > np.array(ends[:-1]))
    for first, stop in pairwise([0, *(np.flatnonzero(apart) + 1).tolist(), len(top)]):
        kind = int(top[first])
        score = scores[first:stop, kind].mean(dtype=np.float64).astype(np.float32)
        yield Span(begins[first], ends[stop - 1], [(labels[kind], score)])


def _float_rows(scores: Any) -> NDArray[np.float32]:
    return np.asarray(scores, dtype=np.float32)
