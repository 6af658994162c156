"""A voice made of harmonics and formants, which the detector takes for speech."""

from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from engine.speech import SpeechDetector

Samples = NDArray[np.float32]
Voice = Callable[[float], Samples]


def _voice(seconds: float) -> Samples:
    t = np.arange(round(seconds * 16_000)) / 16_000
    pitch = 120 * 2 ** (0.25 * np.sin(2 * np.pi * 0.7 * t) + 0.08 * np.sin(2 * np.pi * 2.3 * t))
    phase = 2 * np.pi * np.cumsum(pitch) / 16_000
    formants = [  # gain, centre and width in Hz
        (1.0, 500 + 250 * np.sin(2 * np.pi * 2 * t), 80),
        (0.5, 1500 + 500 * np.sin(2 * np.pi * 1.3 * t + 1), 120),
        (0.25, 2500 + 0 * t, 160),
    ]
    sound = np.zeros(t.size)
    for k in range(1, 32):
        level = sum(g / (1 + ((k * pitch - c) / w) ** 2) for g, c, w in formants)
        sound += level / k**0.3 * np.sin(k * phase)
    sound *= 0.5 - 0.5 * np.cos(2 * np.pi * 4 * t)  # four syllables a second
    return (0.2 * sound / np.abs(sound).max()).astype(np.float32)


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """Such small work on a busy machine waits for its second thread longer than it computes."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def voice() -> Voice:
    """`voice(seconds)`: speech-like float32 samples at 16 kHz, always the same."""
    return _voice


@pytest.fixture(scope="session")
def detector() -> SpeechDetector:
    return SpeechDetector()
