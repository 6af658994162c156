"""The five kinds of audio of the public measurement, made with the encoders of FFmpeg."""

import io
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.clips import Samples, clip
from engine.passes import MODEL_RATE


@dataclass(frozen=True, slots=True)
class AudioKind:
    """One kind: its name, how long its clips are, and its encoder.

    Attributes:
        name: as in the report.
        seconds: shortest and longest clip.
        public_seconds: what the public measurement took for one, warm, on an A10G.
        encode: float32 [n] at 16 kHz → the bytes of a file.
    """

    name: str
    seconds: tuple[float, float]
    public_seconds: float
    encode: Callable[[Samples], bytes]

    def file(self, seconds: float, seed: int = 0) -> bytes:
        """A file of that length."""
        return self.encode(clip(seconds, seed))

    @property
    def middle(self) -> float:
        """A length in the middle."""
        return round(sum(self.seconds) / 2, 2)


def encode(wave: Samples, container: str, codec: str, rate: int, sample_format: str) -> bytes:
    """A mono file of float32 [n] at 16 kHz, resampled to `rate` by FFmpeg."""
    import av

    target = io.BytesIO()
    with av.open(target, "w", format=container) as output:
        stream: Any = output.add_stream(codec, rate=rate)
        stream.layout = "mono"
        stream.format = sample_format
        resampler = av.AudioResampler(
            format=sample_format, layout="mono", rate=rate, frame_size=stream.frame_size or 1024
        )
        source = av.AudioFrame.from_ndarray(wave[None], format="flt", layout="mono")
        source.sample_rate = MODEL_RATE
        for frame in [*resampler.resample(source), *resampler.resample(None)]:
            output.mux(stream.encode(frame))
        output.mux(stream.encode(None))
    return target.getvalue()


def wav(wave: Samples) -> bytes:
    """16 kHz WAV of 16 bits."""
    return encode(wave, "wav", "pcm_s16le", MODEL_RATE, "s16")


def mp3(wave: Samples) -> bytes:
    """44.1 kHz MP3."""
    return encode(wave, "mp3", "libmp3lame", 44_100, "fltp")


def flac(wave: Samples) -> bytes:
    """48 kHz FLAC of 24 bits (FFmpeg's s32 samples carry them)."""
    return encode(wave, "flac", "flac", 48_000, "s32")


def noisy_ogg(wave: Samples, snr_db: float = 12.0) -> bytes:
    """48 kHz Ogg Opus with white noise at that ratio of powers."""
    power = float(np.mean(wave.astype(np.float64) ** 2)) / 10 ** (snr_db / 10)
    noise = np.random.default_rng(0).normal(0, np.sqrt(power), wave.size)
    return encode((wave + noise).astype(np.float32), "ogg", "libopus", 48_000, "flt")


def wav_with_silence(wave: Samples, silence_seconds: float = 2.5) -> bytes:
    """16 kHz WAV whose first seconds are silent; its length stays that of `wave`."""
    silent = round(silence_seconds * MODEL_RATE)
    return wav(np.concatenate([np.zeros(silent, np.float32), wave[: wave.size - silent]]))


KINDS = (
    AudioKind("WAV 16 kHz", (1.2, 2.8), 0.42, wav),
    AudioKind("MP3 44.1 kHz", (5.1, 9.7), 0.61, mp3),
    AudioKind("FLAC 24 bit", (15.3, 28.6), 0.89, flac),
    AudioKind("Ogg, noise at 12 dB", (3.5, 6.2), 1.35, noisy_ogg),
    AudioKind("WAV, 2.5 s of silence", (8.0, 8.0), 2.18, wav_with_silence),
)
