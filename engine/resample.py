"""The front end: band-limited resampling to 16 kHz, batched by sample rate.

Rates without a practical polyphase kernel never come here: they are resampled while decoding
(`engine.audio.resample.is_odd_rate`).
"""

from collections import defaultdict
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from engine.passes import MODEL_RATE


@lru_cache(maxsize=32)
def _resampler(sample_rate: int, device: str) -> torch.nn.Module:
    import torchaudio

    # torchaudio's defaults, which FunASR uses as well: a Hann-windowed sinc of width 6
    module: torch.nn.Module = torchaudio.transforms.Resample(sample_rate, MODEL_RATE)
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
        if rate == MODEL_RATE:
            continue
        rows = [torch.from_numpy(np.ascontiguousarray(waves[i])) for i in members]
        batch = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True).to(device)
        converted: Tensor = _resampler(rate, device)(batch).cpu()
        for row, index in zip(converted, members, strict=True):
            length = -(-waves[index].size * MODEL_RATE // rate)
            results[index] = row[:length].numpy()
    return results
