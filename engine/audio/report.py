"""How good the sound is, measured pass by pass in bounded memory."""

from math import log10
from typing import Final

import numpy as np
from numpy.typing import NDArray

from engine.audio.mix import energy
from engine.audio.source import Damage
from engine.audio.types import Samples

SHORT_SECONDS: Final = 1.0
SILENCE_DBFS: Final = -70.0
LOW_LEVEL_DBFS: Final = -45.0
FLOOR_DBFS: Final = -120.0
CLIP_LEVEL: Final = 0.999
CLIP_RATIO: Final = 0.001
NARROW_RATE: Final = 8_000
NARROW_HZ: Final = 4_000
NARROW_DB: Final = -45.0

_FFT: Final = 1_024
_MAX_FRAMES: Final = 128
"""Spectra taken of one pass at most, evenly spread: 10 s at 16 kHz whole, longer ones sampled."""

_CHUNK: Final = 16
"""Spectra taken at a time: their arrays stay in the cache, and in memory already mapped."""

_WINDOW: Final[NDArray[np.float32]] = np.hanning(_FFT).astype(np.float32)


def decibels(power: float) -> float:
    """Power as dB, with the floor of the report for silence."""
    return max(FLOOR_DBFS, 10 * log10(power)) if power > 0 else FLOOR_DBFS


def clipped_samples(raw: Samples) -> int:
    """Samples at 0.999 of full scale or beyond, in any channel."""
    limit = CLIP_LEVEL * 32768 if raw.dtype == np.int16 else CLIP_LEVEL
    count = 0
    # Most sound never comes near: two quick extremes spare the two counts.
    if raw.max() >= limit:
        count += int(np.count_nonzero(raw >= limit))
    if raw.min() <= -limit:
        count += int(np.count_nonzero(raw <= -limit))
    return count


class StreamQuality:
    """Level, clipping and bandwidth of one stream over all of its passes."""

    def __init__(self, sample_rate: int) -> None:
        self._sample_rate = sample_rate
        self._samples = self._clipped = self._measured = self._cancelled = 0
        self._mean = self._spread = 0.0
        self._power_low = self._power_high = 0.0

    def add(self, raw: Samples, mono: NDArray[np.float32], cancelled: bool) -> None:
        """Count one pass: the channels `[channels, n]` it comes from, and what is heard of it."""
        self._measured += raw.size
        self._clipped += clipped_samples(raw)
        self._cancelled += cancelled
        mean = float(mono.mean(dtype=np.float64))
        centred = mono - np.float32(mean)
        # Chan, Golub and LeVeque 1979: sums about the mean, merged without cancellation.
        samples, gap = self._samples + len(mono), mean - self._mean
        self._spread += energy(centred) + gap * gap * self._samples * len(mono) / samples
        self._mean += gap * len(mono) / samples
        self._samples = samples
        if self._sample_rate > NARROW_RATE:
            self._add_spectrum(centred)

    def _add_spectrum(self, centred: NDArray[np.float32]) -> None:
        if len(centred) < _FFT:
            centred = np.pad(centred, (0, _FFT - len(centred)))
        frames = np.lib.stride_tricks.sliding_window_view(centred, _FFT)
        count = min(_MAX_FRAMES, len(centred) // _FFT)
        step = (len(frames) - 1) // max(1, count - 1)
        by_bin = np.zeros(_FFT // 2 + 1)
        with np.errstate(over="ignore", invalid="ignore"):
            for at in range(0, count, _CHUNK):
                some = frames[at * step : min(at + _CHUNK, count) * step : step or 1] * _WINDOW
                spectrum = np.fft.rfft(some).view(np.float32)
                by_bin += np.square(spectrum, out=spectrum).sum(axis=0).reshape(-1, 2).sum(axis=1)
        border = int(NARROW_HZ * _FFT / self._sample_rate) + 1
        # Evenly spread frames stand for all of the pass.
        weight = len(centred) / count
        self._power_low += weight * float(by_bin[:border].sum())
        self._power_high += weight * float(by_bin[border:].sum())

    @property
    def level_dbfs(self) -> float:
        """RMS of the stream in dB of full scale."""
        return decibels(self._spread / max(1, self._samples) + self._mean**2)

    @property
    def clipping_ratio(self) -> float:
        """Share of the source's samples that are clipped."""
        return self._clipped / max(1, self._measured)

    def warnings(self) -> list[tuple[str, str]]:
        """What the interface warns of, in the order of its table."""
        found = []
        seconds = self._samples / self._sample_rate
        if seconds < SHORT_SECONDS:
            found.append(("short_audio", f"The audio lasts {seconds:.3g} s, less than 1 s."))
        found += self._level_warnings()
        if self.clipping_ratio > CLIP_RATIO:
            percent = 100 * self.clipping_ratio
            found.append(("clipped", f"{percent:.2g} % of the samples are at full scale."))
        found += self._bandwidth_warnings()
        if self._cancelled:
            message = (
                f"The channels cancel each other in {self._cancelled} pass(es): "
                "the loudest channel is used there."
            )
            found.append(("phase_cancelled", message))
        return found

    def _level_warnings(self) -> list[tuple[str, str]]:
        alternating = decibels(self._spread / max(1, self._samples))
        if alternating < SILENCE_DBFS:
            return [("no_speech", f"The level is {alternating:.0f} dBFS: this is silence.")]
        if self.level_dbfs < LOW_LEVEL_DBFS:
            return [("low_level", f"The level is only {self.level_dbfs:.1f} dBFS.")]
        return []

    def _bandwidth_warnings(self) -> list[tuple[str, str]]:
        if self._sample_rate <= NARROW_RATE:
            return [("narrowband", f"The sample rate is {self._sample_rate} Hz.")]
        total = self._power_low + self._power_high
        if total > 0 and self._power_high < total * 10 ** (NARROW_DB / 10):
            return [("narrowband", "There is no sound above 4 kHz.")]
        return []


def damage_warnings(damage: Damage) -> list[tuple[str, str]]:
    """The warnings about a file that decoded only in part."""
    found = []
    if damage.truncated:
        found.append(("truncated", "The file ends before its own header says it does."))
    if damage.corrupt:
        found.append(("corrupt_frames", f"{damage.corrupt} part(s) of the file did not decode."))
    return found
