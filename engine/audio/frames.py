"""Decoded frames of any sample format as arrays of one rate and one number of channels."""

from collections.abc import Iterator
from typing import Final

import numpy as np
from av.audio.frame import AudioFrame
from av.audio.resampler import AudioResampler

from engine.audio.samples import to_samples
from engine.audio.types import Samples

_TYPES: Final[dict[str, type[np.generic]]] = {
    "u8": np.uint8,
    "s16": np.int16,
    "s32": np.int32,
    "s64": np.int64,
    "flt": np.float32,
    "dbl": np.float64,
}


def channel_count(frame: AudioFrame) -> int:
    """Channels of a decoded frame."""
    return int(frame.layout.nb_channels)


def frame_samples(frame: AudioFrame) -> Samples:
    """The samples of a frame as `[channels, n]`: int16 for 8 and 16 bit, else float32."""
    name, channels = frame.format.name, channel_count(frame)
    kind = _TYPES[name.removesuffix("p")]
    if not frame.format.is_planar:
        packed = np.frombuffer(memoryview(frame.planes[0]), kind, frame.samples * channels)
        return to_samples(packed.reshape(frame.samples, channels).T)
    planes = frame.planes[:channels]
    return to_samples(
        np.stack([np.frombuffer(memoryview(plane), kind, frame.samples) for plane in planes])
    )


class RateBridge:
    """Brings the frames of joined files to the sample rate of the first one."""

    def __init__(self, sample_rate: int) -> None:
        self._sample_rate = sample_rate
        self._resampler: AudioResampler | None = None
        self._source: tuple[int, str, str] | None = None

    def convert(self, frame: AudioFrame) -> Iterator[AudioFrame]:
        """The frame itself where the rate is the stream's, else what it becomes."""
        source = (frame.sample_rate, frame.format.name, frame.layout.name)
        if source != self._source:
            yield from self.flush()
        if frame.sample_rate == self._sample_rate:
            yield frame
            return
        if self._resampler is None:
            self._source = source
            self._resampler = AudioResampler(rate=self._sample_rate)
        frame.pts = None
        yield from self._resampler.resample(frame)

    def flush(self) -> Iterator[AudioFrame]:
        """What the resampler still holds."""
        if self._resampler is not None:
            yield from self._resampler.resample(None)
        self._resampler = self._source = None
