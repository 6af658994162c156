"""How fast a replica is while it has as much to do as it can take."""

from collections.abc import Callable
from time import monotonic

NEWEST_SHARE = 0.1
"""Weight of the newest batch."""


class BusySpeed:
    """Audio-seconds per second of time that passed while full batches followed one another.

    Time that passed, not time of the batches: batches that run beside one another are each
    slower than the replica, and between batches that follow one another it is slower than each.

    Args:
        measured: audio-seconds per second of a full batch before there were any callers.
        clock: seconds, rising.
    """

    def __init__(self, measured: float, clock: Callable[[], float] = monotonic) -> None:
        # it counts like the last second of a busy replica
        self._audio, self._elapsed = measured, 1.0
        self._clock = clock
        self._since: float | None = None

    @property
    def value(self) -> float:
        """Audio-seconds per second; 0: not known."""
        return self._audio / self._elapsed

    def batch_started(self) -> None:
        """A batch begins; where none runs and none waited for its turn, time counts from here."""
        if self._since is None:
            self._since = self._clock()

    def batch_ended(self, audio_seconds: float, full: bool, more: bool) -> None:
        """A batch has ended.

        Args:
            audio_seconds: what it held.
            full: whether it was well filled; others do not tell how fast a busy replica is.
            more: whether another batch runs or waits.
        """
        now = self._clock()
        if full and self._since is not None:
            self._audio += audio_seconds - NEWEST_SHARE * self._audio
            self._elapsed += now - self._since - NEWEST_SHARE * self._elapsed
        self._since = now if more else None
