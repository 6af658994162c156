"""EmoDB as 16 kHz mono waves, and its five speaker-disjoint folds."""

import csv
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import soundfile as sf  # type: ignore[import-untyped]
import torch
import torchaudio.functional as AF
from numpy.typing import NDArray

SAMPLE_RATE_HZ = 16000
LABELS = (
    "生气/angry",
    "厌恶/disgusted",
    "恐惧/fearful",
    "开心/happy",
    "中立/neutral",
    "其他/other",
    "难过/sad",
    "吃惊/surprised",
    "<unk>",
)
FOLDS = (("03", "08"), ("09", "10"), ("11", "12"), ("13", "14"), ("15", "16"))


@dataclass(frozen=True)
class Clip:
    """One clip: its wave (16 kHz, float32, `[samples]`), its speaker and its index in LABELS."""

    name: str
    speaker: str
    label: int
    wave: NDArray[np.float32]


def load_corpus(folder: Path) -> list[Clip]:
    """Read `labels.csv` (columns file, speaker, label) and its wave files, resampled to 16 kHz."""
    english = [label.rsplit("/", 1)[-1] for label in LABELS]
    with (folder / "labels.csv").open(newline="", encoding="utf-8") as handle:
        rows = list(csv.DictReader(handle))
    return [
        Clip(row["file"], row["speaker"], english.index(row["label"]), _read(folder / row["file"]))
        for row in rows
    ]


def split(clips: list[Clip], fold: int) -> tuple[list[int], list[int]]:
    """Indices of the clips to train on and of the clips of the fold's two unseen speakers."""
    unseen = FOLDS[fold]
    train = [index for index, clip in enumerate(clips) if clip.speaker not in unseen]
    test = [index for index, clip in enumerate(clips) if clip.speaker in unseen]
    return train, test


def _read(path: Path) -> NDArray[np.float32]:
    samples, rate = sf.read(path, dtype="float32", always_2d=True)
    mono = torch.from_numpy(samples).mean(dim=1)
    wave = AF.resample(mono, rate, SAMPLE_RATE_HZ, lowpass_filter_width=64)
    return np.ascontiguousarray(wave.numpy(), dtype=np.float32)
