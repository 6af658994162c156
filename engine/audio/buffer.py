"""Sound that waits until its pass is complete."""

from typing import Any, Final

import numpy as np

from engine.audio.samples import like
from engine.audio.types import Samples
from engine.errors import EmotionError

MAX_HELD_BYTES: Final = 512 << 20
"""Samples of all channels that one pass may hold; only absurd formats come near."""

_FIRST_SAMPLES: Final = 1 << 18


class PassBuffer:
    """At most one pass and its tail, of all channels, as `[channels, n]`."""

    def __init__(self, channels: int, pass_samples: int, tail_samples: int, dtype: Any) -> None:
        self._pass_samples = pass_samples
        self._most = pass_samples + tail_samples
        self._data: Samples = np.empty((channels, min(_FIRST_SAMPLES, self._most)), dtype)
        self._length = 0

    @property
    def is_full(self) -> bool:
        """Whether a pass is complete: so much follows that it need not join its neighbour."""
        return self._length == self._most

    def fill(self, block: Samples) -> int:
        """Take the beginning of `block`; returns how many samples were taken."""
        taken: int = min(block.shape[1], self._most - self._length)
        self._grow(self._length + taken)
        part = block[:, :taken]
        self._data[:, self._length : self._length + taken] = like(part, self._data.dtype)
        self._length += taken
        return taken

    def held(self) -> Samples:
        """A view of all that is held."""
        return self._data[:, : self._length]

    def complete(self) -> Samples:
        """A view of the complete pass."""
        return self._data[:, : self._pass_samples]

    def drop_pass(self) -> None:
        """Forget the complete pass; views of it are void."""
        rest = self._data[:, self._pass_samples : self._length].copy()
        self._length -= self._pass_samples
        self._data[:, : self._length] = rest

    def _grow(self, needed: int) -> None:
        channels, capacity = self._data.shape
        if needed <= capacity:
            return
        capacity = min(self._most, max(needed, 2 * capacity))
        size = channels * capacity * self._data.itemsize
        if size > MAX_HELD_BYTES:
            raise EmotionError(
                "audio_too_long",
                f"One pass of {channels} channels needs {size >> 20} MiB; "
                f"the limit is {MAX_HELD_BYTES >> 20} MiB.",
            )
        grown: Samples = np.empty((channels, capacity), self._data.dtype)
        grown[:, : self._length] = self.held()
        self._data = grown
