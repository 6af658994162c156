"""Versions of every clip at another pitch and tempo, made once, with their eGeMAPS targets.

Voice quality and prosody of a stretched clip are measured on the stretched clip itself, so that
the auxiliary regression sees targets that belong to what it hears.
"""

from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

import librosa
import numpy as np
import opensmile
import torch
import torchaudio.functional as AF
from numpy.typing import NDArray

from training.corpus import SAMPLE_RATE_HZ, Clip

VARIANTS = 6
SPEED_RANGE = 1.16
TEMPO_RANGE = 1.12
PITCH_COLUMN = 10
FRAMES = 99
FRAME_HOP_SAMPLES = 320
FRAME_CENTRE_SAMPLES = 200

_Arrays = tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.float32]]

_smile: dict[str, opensmile.Smile] = {}


@dataclass(frozen=True)
class VariantSet:
    """All versions of all clips; version 0 is the clip itself.

    `waves [clips, versions, 32000]` float32 at unit RMS, cut or zero-padded to two seconds;
    `functionals [clips, versions, 88]` eGeMAPSv02; `descriptors [clips, versions, 99, 25]` its
    low-level descriptors at the encoder's frames (20 ms), NaN where there is no wave;
    in voiceless frames the pitch (column 10) is 0 and what depends on it is NaN.
    """

    waves: NDArray[np.float32]
    functionals: NDArray[np.float32]
    descriptors: NDArray[np.float32]


def make_variants(clips: list[Clip], cache: Path, processes: int) -> VariantSet:
    """Make the set, or read it from `cache` (an .npz file) where it exists."""
    if not cache.exists():
        with get_context("spawn").Pool(processes) as pool:
            jobs = [(clip.wave, seed) for seed, clip in enumerate(clips)]
            parts = pool.starmap(_variants_of, jobs, chunksize=4)
        waves, numbers, frames = (np.stack(column) for column in zip(*parts, strict=True))
        cache.parent.mkdir(parents=True, exist_ok=True)
        np.savez(cache, waves=waves, functionals=numbers, descriptors=frames)
    stored = np.load(cache)
    return VariantSet(stored["waves"], stored["functionals"], stored["descriptors"])


def functionals(wave: NDArray[np.float32], rate_hz: int) -> NDArray[np.float32]:
    """The 88 eGeMAPSv02 functionals of a clip."""
    measured: NDArray[np.float32] = _measure("Functionals", wave, rate_hz)[0]
    return measured


def _variants_of(wave: NDArray[np.float32], seed: int) -> _Arrays:
    torch.set_num_threads(1)
    rng = np.random.default_rng(seed)
    made = [_one_variant(wave, rng, version) for version in range(VARIANTS)]
    waves, numbers, frames = (np.stack(column) for column in zip(*made, strict=True))
    return waves, numbers, frames


def _one_variant(wave: NDArray[np.float32], rng: np.random.Generator, version: int) -> _Arrays:
    if version:
        wave = _stretch(wave, rng)
    wave = wave[: 2 * SAMPLE_RATE_HZ]
    wave = wave / np.sqrt(np.mean(np.square(wave)) + 1e-12)
    quiet = (0.1 * wave).astype(np.float32)
    padded = np.pad(wave, (0, 2 * SAMPLE_RATE_HZ - len(wave))).astype(np.float32)
    return (
        padded,
        functionals(quiet, SAMPLE_RATE_HZ),
        _at_frames(_measure("LowLevelDescriptors", quiet, SAMPLE_RATE_HZ)),
    )


def _stretch(wave: NDArray[np.float32], rng: np.random.Generator) -> NDArray[np.float32]:
    """Play the clip faster or slower, then (every second time) change its tempo alone."""
    speed = SPEED_RANGE ** rng.uniform(-1, 1)
    source_hz = round(SAMPLE_RATE_HZ * speed / 100) * 100
    played = AF.resample(torch.from_numpy(wave), source_hz, SAMPLE_RATE_HZ).numpy()
    if rng.random() < 0.5:
        tempo = TEMPO_RANGE ** rng.uniform(-1, 1)
        played = librosa.effects.time_stretch(played, rate=float(tempo), n_fft=1024)
    return np.ascontiguousarray(played, dtype=np.float32)


def _measure(level: str, wave: NDArray[np.float32], rate_hz: int) -> NDArray[np.float32]:
    if level not in _smile:
        _smile[level] = opensmile.Smile(
            opensmile.FeatureSet.eGeMAPSv02, opensmile.FeatureLevel[level]
        )
    table = _smile[level].process_signal(wave, rate_hz)
    return np.asarray(table, dtype=np.float32)


def _at_frames(descriptors: NDArray[np.float32]) -> NDArray[np.float32]:
    """Descriptors (every 10 ms, first window centred at 10 ms) at the encoder's frame centres."""
    descriptors = descriptors.copy()
    voiceless = descriptors[:, PITCH_COLUMN] <= 0
    descriptors[voiceless, PITCH_COLUMN + 1 :] = np.nan
    centres = FRAME_CENTRE_SAMPLES + FRAME_HOP_SAMPLES * np.arange(FRAMES)
    rows = np.rint((centres / SAMPLE_RATE_HZ - 0.01) / 0.01).astype(int)
    found = np.full((FRAMES, descriptors.shape[1]), np.nan, dtype=np.float32)
    inside = rows < len(descriptors)
    found[inside] = descriptors[rows[inside]]
    return found
