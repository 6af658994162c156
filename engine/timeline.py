"""From frames to a timeline: windows of fixed length, or regions of speech.

A segment's scores are the softmax of the mean over the frames whose centre lies in it, so a
timeline only slices what the passes gave; it is fed pass by pass and gives every segment as
soon as all its frames are there.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]

EPSILON = 1e-6
"""Seconds; far below a sample, far above the rounding of sums of float seconds."""


@dataclass(frozen=True, slots=True)
class FrameGrid:
    """Where frames lie: `hop` seconds apart, the first one's centre `first` after the start."""

    hop: float
    first: float


@dataclass(frozen=True, slots=True)
class HeardPass:
    """Frames of one pass.

    Attributes:
        start, end: seconds in the file.
        frame_logits: float32 [T, n_labels].
        frame_embeddings: float32 [T, D] where segments need them.
        speech: regions of speech in seconds of the file, where it was looked for.
    """

    start: float
    end: float
    frame_logits: Floats
    embedding: Floats
    frame_embeddings: Floats | None = None
    speech: tuple[tuple[float, float], ...] | None = None


@dataclass(frozen=True, slots=True)
class Segment:
    """A stretch of the timeline and the mean logits (and features) of its frames."""

    start: float
    end: float
    logits: Floats
    embedding: Floats | None


@dataclass(slots=True)
class _Frames:
    """Frames that segments still need, oldest first."""

    grid: FrameGrid
    centres: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    logits: list[Floats] = field(default_factory=list)
    embeddings: list[Floats] = field(default_factory=list)

    def add(self, heard: HeardPass) -> None:
        count = len(heard.frame_logits)
        centres = heard.start + self.grid.first + self.grid.hop * np.arange(count)
        self.centres = np.concatenate([self.centres, centres])
        self.logits.append(heard.frame_logits)
        if heard.frame_embeddings is not None:
            self.embeddings.append(heard.frame_embeddings)

    def segment(self, start: float, end: float) -> Segment | None:
        """The mean over frames centred in [start, end); None where there is none."""
        first, last = np.searchsorted(self.centres, (start - EPSILON, end - EPSILON))
        if first == last:
            return None
        embedding = _mean(self.embeddings, first, last) if self.embeddings else None
        return Segment(start, end, _mean(self.logits, first, last), embedding)

    def forget_before(self, seconds: float) -> None:
        """Drop whole passes that end before `seconds`."""
        while self.logits and self.centres[len(self.logits[0]) - 1] < seconds - EPSILON:
            self.centres = self.centres[len(self.logits.pop(0)) :]
            if self.embeddings:
                self.embeddings.pop(0)


def _mean(parts: Sequence[Floats], first: int, last: int) -> Floats:
    rows = np.concatenate(parts)[first:last]
    mean: Floats = rows.mean(axis=0, dtype=np.float64).astype(np.float32)
    return mean


class WindowTimeline:
    """Windows of `window` seconds every `hop` seconds, from the first pass's start on.

    The last window ends where the audio ends; one too short for a frame joins its neighbour.
    """

    def __init__(self, window: float, hop: float, grid: FrameGrid) -> None:
        self._window, self._hop = window, hop
        self._frames = _Frames(grid)
        self._origin: float | None = None
        self._count = 0
        self._held: Segment | None = None

    def add(self, heard: HeardPass) -> Iterator[Segment]:
        """Segments that this pass completes."""
        if self._origin is None:
            self._origin = heard.start
        self._frames.add(heard)
        # a window that ends with the pass may be the last one: `finish` decides
        while self._next_start() + self._window < heard.end - EPSILON:
            yield from self._emit(self._next_start() + self._window)
        self._frames.forget_before(self._next_start())

    def finish(self, end: float) -> Iterator[Segment]:
        """The windows that reach the end of the audio."""
        done = self._origin is None
        while not done:
            last = self._next_start() + self._window
            done = last >= end - EPSILON
            yield from self._emit(min(last, end))
        if self._held is not None:
            yield self._held

    def _next_start(self) -> float:
        # a product, not a running sum: times must not drift over hours
        return (self._origin or 0.0) + self._count * self._hop

    def _emit(self, end: float) -> Iterator[Segment]:
        segment = self._frames.segment(self._next_start(), end)
        self._count += 1
        if segment is None:
            # no frame's centre lies in it: the neighbour before it covers its time
            if self._held is not None and end > self._held.end:
                held = self._held
                self._held = Segment(held.start, end, held.logits, held.embedding)
            return
        if self._held is not None:
            yield self._held
        self._held = segment


class SpeechTimeline:
    """Regions of speech; one that touches the end of a pass is continued by the next."""

    def __init__(self, grid: FrameGrid, join_seconds: float = 0.1) -> None:
        self._frames = _Frames(grid)
        self._join = join_seconds
        self._open: tuple[float, float] | None = None

    def add(self, heard: HeardPass) -> Iterator[Segment]:
        """Regions that this pass completes."""
        self._frames.add(heard)
        for start, end in heard.speech or ():
            if self._open is not None and start - self._open[1] <= self._join:
                self._open = (self._open[0], end)
                continue
            yield from self._close()
            self._open = (start, end)
        if self._open is not None and heard.end - self._open[1] > self._join:
            yield from self._close()
        self._frames.forget_before(self._open[0] if self._open else heard.end)

    def finish(self, end: float) -> Iterator[Segment]:
        """The region that reaches the end of the audio."""
        yield from self._close()

    def _close(self) -> Iterator[Segment]:
        if self._open is not None:
            segment = self._frames.segment(*self._open)
            self._open = None
            if segment is not None:
                yield segment
