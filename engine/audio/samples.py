"""Arrays of samples: one of two types, `[channels, n]`."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.audio.types import Samples


def to_samples(raw: NDArray[Any]) -> Samples:
    """PCM of any width as int16 where nothing is lost, else float32 with full scale 1.0."""
    if raw.dtype == np.uint8:
        widened: Samples = (raw.astype(np.int16) - 128) << 8
        return widened
    if raw.dtype == np.int16:
        return raw
    if raw.dtype.kind == "i":
        scale = np.float32(2.0 ** (1 - 8 * raw.dtype.itemsize))
        return np.multiply(raw.astype(np.float32), scale)
    # Doubles beyond float32 become infinite here and are refused as such later.
    with np.errstate(over="ignore", invalid="ignore"):
        return raw.astype(np.float32, copy=False)


def match_channels(samples: Samples, channels: int) -> Samples:
    """As many channels as the stream began with: a later change is averaged and spread."""
    if len(samples) == channels:
        return samples
    mixed = to_float(samples).mean(axis=0, dtype=np.float32)
    spread = np.broadcast_to(mixed, (channels, len(mixed)))
    return like(spread, samples.dtype)


def to_float(samples: Samples) -> NDArray[np.float32]:
    """Samples as float32 with full scale 1.0."""
    if samples.dtype == np.int16:
        return samples.astype(np.float32) * np.float32(1 / 32768)
    return samples.astype(np.float32, copy=False)


def like(samples: Samples, dtype: np.dtype[Any]) -> Samples:
    """Samples in the other type, should a stream change its own half-way."""
    if samples.dtype == dtype:
        return samples
    if dtype == np.int16:
        scaled = np.clip(np.rint(to_float(samples) * 32768), -32768, 32767)
        whole: Samples = np.nan_to_num(scaled).astype(np.int16)
        return whole
    return to_float(samples)
