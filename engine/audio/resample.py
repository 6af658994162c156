"""Sample rates that share no useful factor with 16 kHz, resampled with FFmpeg's resampler.

A polyphase kernel has (16000 / g) phases of (rate / g) taps and more, g the greatest common
divisor: 160 × 441 for 44100 Hz, but 16000 × 44099 for 44099 Hz, which is 2.6 GiB.
"""

from math import ceil, gcd
from typing import Final

import numpy as np
from numpy.typing import NDArray

from engine.passes import MODEL_RATE

MAX_FACTOR: Final = 1_000
"""Largest rate / g that is left to a polyphase kernel."""

_OPTIONS: Final = {
    # Windowed sinc of 64 zero crossings, interpolated between 1024 phases, cut-off just under
    # the Nyquist rate of the lower of the two rates.
    "filter_size": "64",
    "phase_shift": "10",
    "linear_interp": "1",
    "cutoff": "0.97",
}

_CHUNK: Final = 65_536


def is_odd_rate(sample_rate: int) -> bool:
    """Whether no practical polyphase kernel takes this rate to 16 kHz."""
    return sample_rate // gcd(sample_rate, MODEL_RATE) > MAX_FACTOR


def length_at_16k(samples: int, sample_rate: int) -> int:
    """Samples that a clip has after resampling to 16 kHz."""
    return ceil(samples * MODEL_RATE / sample_rate)


def to_16k(samples: NDArray[np.float32], sample_rate: int) -> NDArray[np.float32]:
    """A mono clip at 16 kHz, float32, `length_at_16k` samples, aligned with the original."""
    # Imported here: what rates are odd is asked without a decoder, too.
    from av.audio.frame import AudioFrame
    from av.audio.resampler import AudioResampler

    resampler = AudioResampler("fltp", "mono", MODEL_RATE, options=_OPTIONS)
    parts = []
    for at in range(0, len(samples), _CHUNK):
        chunk = np.ascontiguousarray(samples[None, at : at + _CHUNK])
        frame = AudioFrame.from_ndarray(chunk, format="fltp", layout="mono")
        frame.sample_rate = sample_rate
        parts += [out.to_ndarray()[0] for out in resampler.resample(frame)]
    parts += [out.to_ndarray()[0] for out in resampler.resample(None)]
    wanted = length_at_16k(len(samples), sample_rate)
    result = np.zeros(wanted, np.float32)
    whole = np.concatenate(parts)[:wanted] if parts else result
    result[: len(whole)] = whole
    return result
