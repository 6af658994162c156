"""The audio of the load: synthetic clips whose bytes differ where their sound does not."""

import io
import itertools
import struct
import wave
from dataclasses import dataclass

import numpy as np

_FORMAT_END = 36
"""Length of a plain WAV header up to the chunk of samples."""


@dataclass(frozen=True, slots=True)
class Clip:
    """One kind of request.

    Attributes:
        name: for the report.
        wav: a plain WAV file.
        query: parameters of the request.
        seconds: length of the audio.
    """

    name: str
    wav: bytes
    query: str
    seconds: float

    def body(self, nonce: int | None = None) -> bytes:
        """The file; with a nonce the cache has never seen it, though it sounds the same."""
        if nonce is None:
            return self.wav
        chunk = struct.pack("<4sIQ", b"JUNK", 8, nonce)
        size = struct.pack("<I", len(self.wav) - 8 + len(chunk))
        return b"RIFF" + size + self.wav[8:_FORMAT_END] + chunk + self.wav[_FORMAT_END:]


def make_wav(seconds: float, seed: int, sample_rate: int = 16_000) -> bytes:
    """A modulated tone with noise as mono int16 WAV."""
    rng = np.random.default_rng(seed)
    t = np.arange(round(seconds * sample_rate)) / sample_rate
    tone = 0.2 * np.sin(2 * np.pi * (150 + 40 * seed) * t) * (1 + np.sin(2 * np.pi * 3 * t))
    samples = tone + 0.01 * rng.standard_normal(t.size)
    buffer = io.BytesIO()
    with wave.open(buffer, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(sample_rate)
        file.writeframes((samples * 32767).astype("<i2").tobytes())
    return buffer.getvalue()


def mixed_clips() -> list[Clip]:
    """Short and long, at rates that do and do not need resampling, through every deployment."""
    kinds = [
        (1.0, 16_000, ""),
        (2.0, 16_000, ""),
        (3.0, 44_100, ""),
        (4.0, 22_050, "?denoise=true"),
        (5.0, 16_000, "?segmentation=speech&granularity=segment"),
        (8.0, 48_000, ""),
        (12.0, 16_000, "?granularity=segment&window=4"),
        (35.0, 16_000, ""),
    ]
    counter = itertools.count()
    return [
        Clip(
            f"{seconds:g} s {rate} Hz {query}".strip(),
            make_wav(seconds, seed, rate),
            query,
            seconds,
        )
        for (seconds, rate, query), seed in zip(kinds, counter, strict=False)
    ]
