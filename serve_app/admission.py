"""Admission control: what may be in the house at once, so that overload is a quick 429."""

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field

from engine.errors import EmotionError
from serve_app.return_times import ReturnTimes


@dataclass(slots=True)
class Reservation:
    """Bytes of one request's body; grows while a body without a declared size comes in."""

    admission: "Admission"
    held_bytes: int = 0

    def cover(self, size: int) -> None:
        """Hold at least `size` bytes.

        Raises:
            EmotionError: `overloaded`.
        """
        self.admission.add_bytes(size - self.held_bytes)
        self.held_bytes = max(self.held_bytes, size)


@dataclass(slots=True, eq=False)
class Approach:
    """Audio that is being decoded: its length is not known before its first pass enters."""

    admission: "Admission"
    entered: bool = False

    def enter(self, seconds: float) -> None:
        """Its first pass enters the graph, or is refused there."""
        if not self.entered:
            self.entered = True
            self.admission.leave_approach(seconds)


@dataclass(slots=True)
class Admission:
    """Counts of one ingress replica.

    Attributes:
        max_requests, max_bytes: requests and body bytes in flight.
        max_audio_seconds: audio in the graph. A request's first pass is refused beyond it. Later
            passes may be half of it, and wait beyond that, whatever first passes are there: who
            was let in is not to starve among those that come in. Where none is, one of any
            length may enter.
        approaching: audio files that are being decoded. Each is expected to be as long as first
            passes were lately, so that what will find no room is refused before its decoding.
        ingress_replicas: how many share the callers.
        clock: seconds, rising.
    """

    max_requests: int
    max_bytes: int
    max_audio_seconds: float
    ingress_replicas: int = 1
    requests: int = 0
    bytes_held: int = 0
    audio_seconds: float = 0.0
    approaching: int = 0
    refused: int = 0
    clock: Callable[[], float] = time.monotonic
    _return_times: ReturnTimes = field(init=False)
    _later_seconds: float = 0.0
    _usual_seconds: float = 0.0
    _passes: int = 0
    _usual_stay: float = 0.0
    _waiting: deque[tuple[float, asyncio.Future[None]]] = field(default_factory=deque)

    def __post_init__(self) -> None:
        self._return_times = ReturnTimes(lambda: self.clock())

    @contextmanager
    def request(self, declared_bytes: int) -> Iterator[Reservation]:
        """Admit a request before its body is read.

        Raises:
            EmotionError: `overloaded`, with the time after which to try again.
        """
        if self.requests >= self.max_requests:
            held, limit = f"{self.requests} requests", f"{self.max_requests} requests"
            raise self._overloaded(held, limit, self._pace())
        self._check_room()
        reservation = Reservation(self)
        self.requests += 1
        try:
            reservation.cover(declared_bytes)
            yield reservation
        finally:
            self.requests -= 1
            self.bytes_held -= reservation.held_bytes

    def add_bytes(self, count: int) -> None:
        """Count body bytes that came in."""
        # one body alone is bounded by its own limit, so an idle server takes any that it allows
        if count > 0 and self.bytes_held and self.bytes_held + count > self.max_bytes:
            held = f"{self.bytes_held} bytes of bodies"
            raise self._overloaded(held, f"{self.max_bytes} bytes")
        self.bytes_held += max(0, count)

    @contextmanager
    def approach(self) -> Iterator[Approach]:
        """Count an audio file from here until its first pass enters the graph.

        Raises:
            EmotionError: `overloaded`.
        """
        self._check_room()
        self.approaching += 1
        approach = Approach(self)
        try:
            yield approach
        finally:
            approach.enter(0.0)

    def leave_approach(self, seconds: float) -> None:
        """A first pass of so many seconds, or 0 for none, is no longer on its way."""
        self.approaching -= 1
        if seconds:
            self._usual_seconds = _usual(self._usual_seconds, seconds)

    def check_graph(self) -> None:
        """Refuse what has arrived where the graph is full."""
        self._check(self.audio_seconds)

    def _check_room(self) -> None:
        """Refuse early what would find the graph full."""
        # half at most by expectation: what comes next may be shorter than what came lately
        expected = min(self.approaching * self._usual_seconds, self.max_audio_seconds / 2)
        self._check(self.audio_seconds + expected)

    def _check(self, seconds: float) -> None:
        if seconds >= self.max_audio_seconds:
            held = f"{seconds:.1f} s of audio"
            raise self._overloaded(held, f"{self.max_audio_seconds:g} s", self._pace())

    @asynccontextmanager
    async def audio(self, seconds: float, first: Approach | None) -> AsyncIterator[None]:
        """Admit one pass to the graph; see `max_audio_seconds`.

        Args:
            seconds: length of the pass.
            first: the approach that ends with this pass; None for later passes.
        """
        if first is not None:
            first.enter(seconds)
            self.check_graph()
        elif self._waiting or not self._fits(seconds):
            future = asyncio.get_running_loop().create_future()
            self._waiting.append((seconds, future))
            await future
        later_seconds = 0.0 if first else seconds
        self.audio_seconds += seconds
        self._later_seconds += later_seconds
        self._passes += 1
        since = self.clock()
        try:
            yield
        finally:
            self.audio_seconds -= seconds
            self._later_seconds -= later_seconds
            self._passes -= 1
            self._usual_stay = _usual(self._usual_stay, self.clock() - since)
            self._wake()

    def _fits(self, seconds: float) -> bool:
        # long files fill half of the graph at most: the rest is for requests that come in
        later = self._later_seconds
        return later < EMPTY_SECONDS or later + seconds <= self.max_audio_seconds / 2

    def _wake(self) -> None:
        planned = 0.0
        while self._waiting and self._fits(planned + self._waiting[0][0]):
            seconds, future = self._waiting.popleft()
            if not future.done():  # done: its request was cancelled
                planned += seconds
                future.set_result(None)

    def _departures(self) -> float | None:
        """Seconds from one pass that leaves the graph to the next; None: not known yet."""
        if not self._passes or not self._usual_stay:
            return None
        # Little's law: of n passes that stay for so long, one leaves every stay / n
        return self._usual_stay / self._passes

    def _pace(self) -> tuple[float, float] | None:
        """How often somebody finds room anywhere while the graph is full, and for how long so."""
        interval = self._departures()
        if interval is None:
            return None
        duration = min(self._usual_stay / 2, PACE_SECONDS)
        return PACE_SHARE * interval / self.ingress_replicas, duration

    def _overloaded(
        self, held: str, limit: str, pace: tuple[float, float] | None = None
    ) -> EmotionError:
        self.refused += 1
        message = f"The server is busy: {held} in flight, the limit is {limit}."
        retry_after = self._return_times.following(self._departures() or 0.0)
        return EmotionError("overloaded", message, retry_after=retry_after, pace=pace)


def _usual(before: float, newest: float) -> float:
    """Mean that forgets: what the next one is expected to be."""
    return before + (newest - before) * (USUAL_WEIGHT if before else 1.0)


USUAL_WEIGHT = 0.1
"""Weight of the newest pass in what is expected of the next ones."""

PACE_SHARE = 0.9
"""Callers are let in to look somewhat faster than passes leave, so that the graph stays full."""

PACE_SECONDS = 1.0
"""A refusal says at most so far ahead how often to look."""

EMPTY_SECONDS = 1e-6
"""Below this nothing is in the graph: sums of float seconds do not return to exactly zero."""
