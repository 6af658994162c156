"""Clips to measure with: sound like speech, of known lengths."""

import wave

import numpy as np
from numpy.typing import NDArray

from engine.passes import MODEL_RATE

Samples = NDArray[np.float32]
PHRASE = 0.05, 1.55
"""Where the bundled sample speaks without a pause, in seconds."""


def clip(seconds: float, seed: int = 0) -> Samples:
    """Float32 [n] at 16 kHz: harmonics of a gliding pitch under syllables, with noise."""
    from engine.verify import speech_like

    return speech_like(seconds, seed)


def clips(lengths: list[float]) -> list[Samples]:
    """One clip of each length in seconds, all different."""
    return [clip(seconds, seed) for seed, seconds in enumerate(lengths)]


def mixed_lengths(total_seconds: float, seed: int = 0) -> list[float]:
    """Lengths of 1 to 30 s, uniform, that add up to at least `total_seconds`."""
    draw = np.random.default_rng(seed)
    lengths: list[float] = []
    while sum(lengths) < total_seconds:
        lengths.append(round(float(draw.uniform(1, 30)), 2))
    return lengths


def samples_of(seconds: float) -> int:
    """Samples of a clip of that length at 16 kHz."""
    return round(seconds * MODEL_RATE)


def spoken(seconds: float) -> Samples:
    """Float32 [n] at 16 kHz of speech without a pause: a phrase of the sample, over and over."""
    from serve_app.launch import SAMPLE

    with wave.open(str(SAMPLE)) as file:
        sample = np.frombuffer(file.readframes(file.getnframes()), "<i2")
    phrase = sample[round(PHRASE[0] * MODEL_RATE) : round(PHRASE[1] * MODEL_RATE)]
    return np.resize(phrase.astype(np.float32) / 32768, samples_of(seconds))
