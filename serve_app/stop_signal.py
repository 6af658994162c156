"""Ctrl-C and SIGTERM as an event: nothing is interrupted half-way."""

import signal
import threading
from types import FrameType


class StopSignal:
    """Set by the first SIGINT or SIGTERM; the second one means at once."""

    def __init__(self) -> None:
        self._asked = threading.Event()
        self._at_once = threading.Event()

    def install(self) -> None:
        """Take over both signals; again after `ray.init`, which sets a handler of its own."""
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._handle)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self._asked.is_set():
            self._at_once.set()
        self._asked.set()

    def wait(self, seconds: float) -> bool:
        """Whether a stop was asked for, now or within `seconds`."""
        return self._asked.wait(seconds)

    @property
    def at_once(self) -> bool:
        """Whether a second signal came."""
        return self._at_once.is_set()
