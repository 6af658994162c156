"""Admission control: what may be in the house at once, so that overload is a quick 429."""

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

from engine.errors import EmotionError
from serve_app.return_times import ReturnTimes


class Pace(NamedTuple):
    """For `duration` seconds, somebody finds room every `interval` seconds."""

    interval: float
    duration: float


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
            passes may be a quarter of it, and wait beyond that, whatever first passes are there:
            who was let in is not to starve among those that come in. Where none is, one of any
            length may enter.
        reading: requests whose bodies are coming in.
        approaching: audio files that are being decoded. Each of both is expected to be as long as
            first passes were lately, so that what will find no room is refused before its body is
            read, or before its decoding.
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
    reading: int = 0
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
            raise self._overloaded(held, limit)
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
    def read(self) -> Iterator[None]:
        """Count a request while its body comes in."""
        self.reading += 1
        try:
            yield
        finally:
            self.reading -= 1

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
        self._check(self._expected_seconds())

    def _expected_seconds(self) -> float:
        """Audio in the graph and on its way there."""
        # half at most by expectation: what comes next may be shorter than what came lately, and
        # a body may take as long as its caller pleases
        coming = (self.reading + self.approaching) * self._usual_seconds
        expected = min(coming, self.max_audio_seconds / 2)
        return self.audio_seconds + expected

    def _check(self, seconds: float) -> None:
        if seconds >= self.max_audio_seconds:
            held = f"{seconds:.1f} s of audio"
            raise self._overloaded(held, f"{self.max_audio_seconds:g} s")

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
        # the rest is for requests that come in
        later = self._later_seconds
        return later < EMPTY_SECONDS or later + seconds <= LATER_SHARE * self.max_audio_seconds

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

    def pace(self) -> Pace | None:
        """How often somebody finds room anywhere; None: nobody needs to be turned away for that.

        Callers who come so often keep the graph nearly full: where it is less than that, somewhat
        more of them than passes leave, and fewer where it is more.
        """
        interval = self._departures()
        audio = self._expected_seconds() / self.max_audio_seconds
        fullness = max(audio, self.requests / self.max_requests)
        if interval is None or fullness < PACED_FROM:
            return None
        interval *= fullness / PACED_TOWARDS / self.ingress_replicas
        return Pace(interval, min(self._usual_stay / 2, PACE_SECONDS))

    def _overloaded(self, held: str, limit: str) -> EmotionError:
        self.refused += 1
        message = f"The server is busy: {held} in flight, the limit is {limit}."
        retry_after = self._return_times.following(self._departures() or 0.0)
        return EmotionError("overloaded", message, retry_after=retry_after)


def _usual(before: float, newest: float) -> float:
    """Mean that forgets: what the next one is expected to be."""
    return before + (newest - before) * (USUAL_WEIGHT if before else 1.0)


USUAL_WEIGHT = 0.1
"""Weight of the newest pass in what is expected of the next ones."""

PACED_FROM = 0.6
PACED_TOWARDS = 0.85
"""How full the graph is to be, as a share of its limit, while more come than it can take: less and
it has nothing to do now and then, more and callers are refused here, at some cost (at 0.95 of 330 s
of audio, clips of 10 s: 7 of 39 that were passed on each second; at 0.85 none)."""

PACE_SECONDS = 1.0
"""A pace is given at most so far ahead."""

LATER_SHARE = 0.25
"""Of the graph, for later passes: enough to keep a model busy with one long file, and little enough
that the other files of a handful that came together are not refused because of it (at a half, one
of eight files of 100 s was, now and then)."""

EMPTY_SECONDS = 1e-6
"""Below this nothing is in the graph: sums of float seconds do not return to exactly zero."""
