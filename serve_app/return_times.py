"""When a refused caller should come again."""

import time
from collections.abc import Callable

SOONEST_SECONDS = 1.0
LONGEST_SECONDS = 10.0
"""Later than this, a server that has become free would wait for its callers."""


class ReturnTimes:
    """One caller after another, as fast as places become free.

    If all came again after the same short time, refusing them would cost more the more of them
    there are: what has piled up while replicas were replaced would keep the server from it.

    Args:
        clock: seconds, rising.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._last = 0.0

    def following(self, interval: float) -> float:
        """Seconds until the next caller should come, where a place is free every `interval` s."""
        now = self._clock()
        self._last = min(max(self._last, now) + interval, now + LONGEST_SECONDS)
        return max(SOONEST_SECONDS, self._last - now)
