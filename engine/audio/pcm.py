"""Headerless PCM: the caller says what the bytes are."""

from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from engine.audio.body import Body
from engine.audio.source import Damage, check_channels, check_sample_rate
from engine.audio.types import DecodeLimits, PcmFormat, Samples
from engine.errors import EmotionError

ENCODINGS: Final[dict[str, np.dtype[Any]]] = {
    "pcm_s16le": np.dtype("<i2"),
    "pcm_f32le": np.dtype("<f4"),
}

_BLOCK_SAMPLES: Final = 65_536


class PcmReader:
    """The same face as `Decoder`, for bytes without a container."""

    def __init__(self, body: Body, pcm: PcmFormat, limits: DecodeLimits) -> None:
        if pcm.encoding not in ENCODINGS:
            raise EmotionError(
                "invalid_request",
                f"encoding is {pcm.encoding!r}; it must be one of {', '.join(ENCODINGS)}.",
            )
        self.format = "pcm"
        self._body, self._dtype = body, ENCODINGS[pcm.encoding]
        self.sample_rate, self.channels = pcm.sample_rate, pcm.num_channels
        check_sample_rate(self.sample_rate, limits)
        check_channels(self.channels, limits)
        self._frame_bytes = self._dtype.itemsize * self.channels
        self.damage = Damage(truncated=body.size % self._frame_bytes != 0)
        self.promised_seconds = body.size / self._frame_bytes / self.sample_rate

    def sounds_at(self, seconds: float) -> bool:
        """See `Source`."""
        return seconds < self.promised_seconds

    def blocks(self) -> Iterator[Samples]:
        """The samples in order, as arrays `[channels, n]`; a last part of a frame is left out."""
        step = max(1, _BLOCK_SAMPLES // self.channels) * self._frame_bytes
        whole = self._body.size - self._body.size % self._frame_bytes
        for at in range(0, whole, step):
            data = self._body.at(at, min(step, whole - at))
            yield np.frombuffer(data, self._dtype).reshape(-1, self.channels).T
