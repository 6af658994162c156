"""Admission control: what may be in the house at once, so that overload is a quick 429."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field

from engine.errors import EmotionError


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


@dataclass(slots=True)
class Admission:
    """Counts of one ingress replica.

    Attributes:
        max_requests, max_bytes: requests and body bytes in flight.
        max_audio_seconds: audio in the graph. A request's first pass is refused beyond it, a
            later one waits beyond half of it, and with nothing in the graph a pass of any
            length may enter.
    """

    max_requests: int
    max_bytes: int
    max_audio_seconds: float
    requests: int = 0
    bytes_held: int = 0
    audio_seconds: float = 0.0
    refused: int = 0
    _waiting: deque[tuple[float, asyncio.Future[None]]] = field(default_factory=deque)

    @contextmanager
    def request(self, declared_bytes: int) -> Iterator[Reservation]:
        """Admit a request before its body is read.

        Raises:
            EmotionError: `overloaded`, with the time after which to try again.
        """
        if self.requests >= self.max_requests:
            raise self._overloaded(f"{self.requests} requests", f"{self.max_requests} requests")
        self.check_graph()
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

    def check_graph(self) -> None:
        """Refuse early where the graph is full."""
        if self.audio_seconds >= self.max_audio_seconds:
            held = f"{self.audio_seconds:.1f} s of audio"
            raise self._overloaded(held, f"{self.max_audio_seconds:g} s")

    @asynccontextmanager
    async def audio(self, seconds: float, first: bool) -> AsyncIterator[None]:
        """Admit one pass to the graph; see `max_audio_seconds`."""
        if first:
            self.check_graph()
        elif self._waiting or not self._fits(seconds):
            future = asyncio.get_running_loop().create_future()
            self._waiting.append((seconds, future))
            await future
        self.audio_seconds += seconds
        try:
            yield
        finally:
            self.audio_seconds -= seconds
            self._wake()

    def _fits(self, seconds: float) -> bool:
        # long files fill half of the graph at most: the rest is for requests that come in
        in_graph = self.audio_seconds
        return in_graph < EMPTY_SECONDS or in_graph + seconds <= self.max_audio_seconds / 2

    def _wake(self) -> None:
        planned = 0.0
        while self._waiting and self._fits(planned + self._waiting[0][0]):
            seconds, future = self._waiting.popleft()
            if not future.done():  # done: its request was cancelled
                planned += seconds
                future.set_result(None)

    def _overloaded(self, held: str, limit: str) -> EmotionError:
        self.refused += 1
        message = f"The server is busy: {held} in flight, the limit is {limit}."
        return EmotionError("overloaded", message, retry_after=1.0)


EMPTY_SECONDS = 1e-6
"""Below this the graph is empty: sums of float seconds do not return to exactly zero."""
