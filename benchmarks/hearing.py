"""The bare engine on a file: decode, front end, model, in this process."""

import io

import numpy as np

from benchmarks.clips import Samples
from engine.audio import load
from engine.emotions import Emotions
from engine.engine import Engine
from engine.resample import resample


def waves_of(body: bytes) -> list[Samples]:
    """Decoded and resampled passes of a file: float32 [n] at 16 kHz."""
    passes, _ = load(io.BytesIO(body))
    floats = [
        excerpt.samples.astype(np.float32) / np.float32(32768)
        if excerpt.samples.dtype == np.int16
        else np.asarray(excerpt.samples, np.float32)
        for excerpt in passes
    ]
    return resample(floats, [excerpt.sample_rate for excerpt in passes])


def hear(engine: Engine, body: bytes) -> Emotions:
    """Emotions of the first pass of a file (all of it, up to `pass_seconds`)."""
    return engine.infer(waves_of(body)[:1])[0]
