"""Voice activity detection: where in a clip somebody speaks.

The network is Silero VAD (https://github.com/snakers4/silero-vad, MIT), its weights read from
the file that the silero-vad package bundles. Its own runner takes one 32 ms chunk at a time,
but only the LSTM looks back: everything before it sees a single chunk (and 4 ms of context).
So the whole clip's chunks go through the convolutions as one batch and the LSTM runs over the
sequence, which gives the same probabilities (within 1e-4) in a sixth of the time.
"""

import warnings
from collections.abc import Iterator, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from engine.errors import ModelError

SAMPLE_RATE = 16_000
CHUNK_SAMPLES = 512
"""One probability each: 32 ms."""
THRESHOLD = 0.5
"""Speech begins with the first chunk whose probability is at least this."""
EXIT_THRESHOLD = 0.35
"""Speech ends where the probability falls below this and stays below `THRESHOLD`..."""
MIN_SILENCE_SECONDS = 0.1
"""...for at least this long. A shorter pause is part of the speech around it."""
MIN_SPEECH_SECONDS = 0.25
"""A region that is not longer than this is dropped."""
PAD_SECONDS = 0.03
"""Added on both sides of a region; twice this is less than the shortest silence."""

_CONTEXT = 64
_BINS = 129
_HIDDEN = 128
_BLOCK_CHUNKS = 512  # 16 s: the activations of an hour at once would be a gigabyte
_STRIDES = (1, 2, 2, 1)
_CHANNELS = (_BINS, 128, 64, 64, 128)

Region = tuple[float, float]


class SpeechDetector:
    """Finds speech in clips. It keeps no state: any thread may call it, in any order."""

    def __init__(self) -> None:
        """Load the network (once per process). Raises `ModelError` if it is not installed."""
        self._network = _load_network()

    def detect(self, wave: NDArray[np.float32]) -> list[Region]:
        """Speech in a float32 clip [n] at 16 kHz as (start, end) in seconds.

        The regions are sorted, disjoint and inside [0, n / 16000]; none where nobody speaks.
        """
        return speech_regions(self.probabilities(wave), wave.size)

    @torch.inference_mode()
    def probabilities(self, wave: NDArray[np.float32]) -> NDArray[np.float32]:
        """Speech probability [ceil(n / 512)] of each chunk of a 16 kHz clip [n]."""
        count = -(-wave.size // CHUNK_SAMPLES)
        padded = np.zeros(_CONTEXT + count * CHUNK_SAMPLES, np.float32)
        padded[_CONTEXT : _CONTEXT + wave.size] = wave
        if not count:
            return padded[:0]
        chunks = torch.from_numpy(padded).unfold(0, _CONTEXT + CHUNK_SAMPLES, CHUNK_SAMPLES)
        result: Tensor = self._network(chunks)
        return result.numpy()


def speech_regions(probabilities: NDArray[np.float32], samples: int) -> list[Region]:
    """Chunk probabilities [ceil(samples / 512)] as (start, end) in seconds.

    The same rules and defaults as `silero_vad.get_speech_timestamps_from_probs`, whose import
    would set the whole process to one thread.
    """
    spoken = _runs(probabilities.tolist(), samples)
    shortest, pad = MIN_SPEECH_SECONDS * SAMPLE_RATE, round(PAD_SECONDS * SAMPLE_RATE)
    return [
        (max(0, start - pad) / SAMPLE_RATE, min(samples, end + pad) / SAMPLE_RATE)
        for start, end in spoken
        if end - start > shortest
    ]


def speech_ratio(regions: Sequence[Region], seconds: float) -> float:
    """The share of a clip of that many seconds that lies in the regions: 0 to 1."""
    if seconds <= 0:
        return 0.0
    return min(1.0, sum(end - start for start, end in regions) / seconds)


def _runs(probabilities: list[float], samples: int) -> Iterator[tuple[int, int]]:
    """(start, end) in samples of each stretch of speech, before padding and dropping."""
    start: int | None = None
    quiet_since: int | None = None
    for position, probability in zip(range(0, samples, CHUNK_SAMPLES), probabilities, strict=True):
        if probability >= THRESHOLD:
            start = position if start is None else start
            quiet_since = None
        elif start is not None and probability < EXIT_THRESHOLD:
            quiet_since = position if quiet_since is None else quiet_since
            if position - quiet_since >= MIN_SILENCE_SECONDS * SAMPLE_RATE:
                yield start, quiet_since
                start = quiet_since = None
    if start is not None:
        yield start, samples


class _Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.spectrum = nn.Conv1d(1, 2 * _BINS, 256, stride=128, bias=False)
        self.encoder = nn.ModuleList(
            nn.Conv1d(_CHANNELS[i], _CHANNELS[i + 1], 3, stride=stride, padding=1)
            for i, stride in enumerate(_STRIDES)
        )
        self.rnn = nn.LSTM(_HIDDEN, _HIDDEN)
        self.output = nn.Conv1d(_HIDDEN, 1, 1)

    def forward(self, chunks: Tensor) -> Tensor:
        """Speech probabilities [n] of the consecutive chunks [n, context + chunk]."""
        state: tuple[Tensor, Tensor] | None = None
        hidden: list[Tensor] = []
        for block in torch.split(chunks, _BLOCK_CHUNKS):
            outputs, state = self.rnn(self._encode(block), state)
            hidden.append(outputs)
        logits: Tensor = self.output(torch.cat(hidden).relu_().unsqueeze(2))
        return logits.flatten().sigmoid()

    def _encode(self, chunks: Tensor) -> Tensor:
        padded = F.pad(chunks, (0, _CONTEXT), mode="reflect").unsqueeze(1)
        real, imaginary = self.spectrum(padded).square().split(_BINS, dim=1)
        features: Tensor = (real + imaginary).sqrt()
        for convolution in self.encoder:
            features = convolution(features).relu_()
        return features.squeeze(2)


@cache
def _load_network() -> _Network:
    network = _Network()
    with warnings.catch_warnings():
        # torch deprecates the format, but the weights come in no other: the safetensors file
        # beside it is an older model
        warnings.filterwarnings("ignore", message=".*torch.jit.load")
        archive = torch.jit.load(_weights_file(), map_location="cpu")  # type: ignore[no-untyped-call]
    try:
        network.load_state_dict(_renamed(archive.state_dict()))
    except (KeyError, RuntimeError) as error:
        raise ModelError(
            "the installed silero-vad bundles a voice activity model of another shape than 6.2"
        ) from error
    return network.eval().requires_grad_(False)


def _weights_file() -> str:
    # Found, not imported: the package's import sets torch to one thread
    spec = find_spec("silero_vad")
    if spec is None or spec.origin is None:
        raise ModelError("voice activity detection needs the package silero-vad, not installed")
    return str(Path(spec.origin).parent / "data" / "silero_vad.jit")


def _renamed(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """The archive's 16 kHz weights under the names of `_Network`."""
    names = {"spectrum.weight": "stft.forward_basis_buffer"}
    for kind in ("weight", "bias"):
        names |= {f"encoder.{i}.{kind}": f"encoder.{i}.reparam_conv.{kind}" for i in range(4)}
        names |= {f"rnn.{kind}_{gate}_l0": f"decoder.rnn.{kind}_{gate}" for gate in ("ih", "hh")}
        names[f"output.{kind}"] = f"decoder.decoder.2.{kind}"
    return {ours: weights[f"_model.{theirs}"] for ours, theirs in names.items()}
