"""The front end: band-limited resampling to 16 kHz, batched by sample rate."""

from collections import defaultdict
from collections.abc import Sequence
from functools import lru_cache
from math import gcd

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

TARGET_RATE = 16_000
MAX_KERNEL_PHASES = 1000
"""Rates whose polyphase kernel would have more phases than this (44099 Hz: 16000 of them,
2.6 GiB) are resampled while decoding instead."""


def is_cheap(sample_rate: int) -> bool:
    """Whether a polyphase kernel from `sample_rate` to 16 kHz is small."""
    return sample_rate // gcd(sample_rate, TARGET_RATE) <= MAX_KERNEL_PHASES


@lru_cache(maxsize=32)
def _resampler(sample_rate: int, device: str) -> torch.nn.Module:
    import torchaudio

    # torchaudio's defaults, which FunASR uses as well: a Hann-windowed sinc of width 6
    module: torch.nn.Module = torchaudio.transforms.Resample(sample_rate, TARGET_RATE)
    return module.to(device)


@torch.inference_mode()
def resample(
    waves: Sequence[NDArray[np.float32]], sample_rates: Sequence[int], device: str = "cpu"
) -> list[NDArray[np.float32]]:
    """Resample float32 clips [n] to 16 kHz; clips of one rate share one convolution.

    A clip's result is ceil(n * 16000 / rate) samples long and does not depend on the others:
    the filter sees zeros beyond a clip's end, alone as well as in company.
    """
    groups: dict[int, list[int]] = defaultdict(list)
    for index, rate in enumerate(sample_rates):
        groups[rate].append(index)
    results = list(waves)
    for rate, members in groups.items():
        if rate == TARGET_RATE:
            continue
        rows = [torch.from_numpy(np.ascontiguousarray(waves[i])) for i in members]
        batch = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True).to(device)
        converted: Tensor = _resampler(rate, device)(batch).cpu()
        for row, index in zip(converted, members, strict=True):
            length = -(-waves[index].size * TARGET_RATE // rate)
            results[index] = row[:length].numpy()
    return results
