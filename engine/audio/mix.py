"""One mono stream from the channels of an excerpt."""

import math
from typing import Final

import numpy as np
from numpy.typing import NDArray

from engine.audio.samples import to_float
from engine.audio.types import Samples
from engine.errors import EmotionError

CANCELLED: Final = 0.01
"""A mix with less of the channels' mean power than this (-20 dB) has lost the sound."""


def energy(samples: NDArray[np.float32]) -> float:
    """Sum of squares; in double precision only where single precision would overflow."""
    with np.errstate(over="ignore"):
        total = float(np.dot(samples, samples))
    return total if total < 1e30 else float(np.square(samples, dtype=np.float64).sum())


def mix_channels(raw: Samples) -> tuple[Samples, bool]:
    """The plain average of `[channels, n]`, and whether the channels cancel each other.

    Where they do, the loudest channel is returned instead. One channel is returned as it is,
    int16 or float32; an average is float32.

    Raises:
        EmotionError: `non_finite_audio`.
    """
    if len(raw) == 1:
        refuse_non_finite(raw[0])
        return raw[0].copy(), False
    mixed, powers = np.zeros(raw.shape[1], np.float32), []
    with np.errstate(over="ignore", invalid="ignore"):
        for channel in raw:
            sound = to_float(channel)
            mixed += sound
            powers.append(energy(sound))
        # Divided, not multiplied by an inverse: equal channels must give exactly themselves.
        mixed /= len(raw)
    refuse_non_finite(mixed)
    if energy(mixed) < CANCELLED * math.fsum(powers) / len(powers):
        return raw[int(np.argmax(powers))].copy(), True
    return mixed, False


def refuse_non_finite(samples: Samples) -> None:
    """Raise `non_finite_audio` for NaN or infinite samples; integers have none."""
    if samples.dtype == np.int16 or np.isfinite(samples.max() - samples.min()):
        return
    count = int(np.count_nonzero(~np.isfinite(samples)))
    if count:
        raise EmotionError(
            "non_finite_audio",
            f"{count} of {len(samples)} samples of an excerpt are NaN or infinite.",
        )
