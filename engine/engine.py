"""The engine: clips in, emotions out, in packed batches."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from threading import Lock

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from engine.checkpoint import Checkpoint
from engine.emotions import Emotions
from engine.encoder import Encoder
from engine.errors import EmotionError
from engine.hub import load_model
from engine.labels import used_columns
from engine.linear import pack_layers
from engine.memory import keep_large_blocks
from engine.passes import MODEL_RATE, TAIL_SECONDS, pass_bounds
from engine.precision import choose_device, choose_dtype

MAX_BATCH_FRAMES = 32_000
"""Frames that go through the encoder at once (640 s): bounds the memory of one call."""

Samples = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class _Pass:
    clip: int
    samples: Samples


@dataclass(frozen=True, slots=True)
class _PassResult:
    logits: NDArray[np.float32]
    features: NDArray[np.float32]


class Engine:
    """A loaded model; several threads may call `infer` at once.

    Attributes:
        name, revision: the model's origin.
        labels: used tokens in the checkpoint's order (empty: no classifier).
        padding_ratio: of the last batch, 1 - tokens of clips / rows of the linear layers.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        name: str,
        revision: str,
        device: torch.device,
        dtype: torch.dtype,
        pass_seconds: float = 30.0,
    ) -> None:
        self.checkpoint = checkpoint
        self.config = checkpoint.config
        self.name, self.revision = name, revision
        self.device, self.dtype = device, dtype
        self.pass_seconds = pass_seconds
        self.columns = used_columns(checkpoint.tokens)
        self.labels = tuple(checkpoint.tokens[i] for i in self.columns)
        self._retries = 0
        self.padding_ratio = 0.0
        self.encoder = self._build(dtype)
        self._lock = Lock()
        self._exact: Encoder | None = self.encoder if dtype == torch.float32 else None

    @classmethod
    def load(
        cls,
        model: str | os.PathLike[str],
        device: str = "auto",
        dtype: str = "auto",
        pass_seconds: float = 30.0,
    ) -> "Engine":
        """Load a bundled model, a directory or a hub id (see `engine.hub`).

        Raises:
            ModelError: the model, device or dtype cannot be used; one line says why.
        """
        chosen = choose_device(device)
        if chosen.type == "cpu":
            keep_large_blocks()
        prepared = load_model(model)
        return cls(
            prepared.checkpoint,
            prepared.name,
            prepared.revision,
            chosen,
            choose_dtype(dtype, chosen),
            pass_seconds,
        )

    @property
    def embedding_size(self) -> int:
        """Numbers in one embedding."""
        return self.config.embed_dim

    @property
    def frame_seconds(self) -> float:
        """Time between two frames."""
        return self.config.hop / MODEL_RATE

    def device_memory_bytes(self) -> int:
        """Memory that this process holds on the device; 0 on a CPU."""
        return torch.cuda.memory_reserved(self.device) if self.device.type == "cuda" else 0

    def take_retries(self) -> int:
        """Passes repeated in float32, because they were not finite at first, since last asked."""
        with self._lock:
            retries, self._retries = self._retries, 0
        return retries

    def work(self, samples: int) -> int:
        """Cost of a clip in frames of linear-layer work, attention's quadratic part included.

        A token costs 24 D^2 multiplications in a block's linear layers and 4 T D in its
        attention, so T frames cost as much as T (1 + T / 6 D) frames without attention.
        """
        frames = self.config.frames(samples)
        return frames + frames * frames // (6 * self.config.embed_dim)

    def infer(self, waves: Sequence[Samples], frame_embeddings: bool = False) -> list[Emotions]:
        """Emotions of each clip (float32 [n], 16 kHz, mono, any length of one frame or more).

        Raises:
            EmotionError: the first clip that cannot be scored.
        """
        results = self.infer_each(waves, frame_embeddings)
        for result in results:
            if isinstance(result, EmotionError):
                raise result
        return [result for result in results if isinstance(result, Emotions)]

    def infer_each(
        self, waves: Sequence[Samples], frame_embeddings: bool = False
    ) -> list[Emotions | EmotionError]:
        """Like `infer`, with one result or one error for each clip."""
        errors: dict[int, EmotionError] = {}
        passes: list[_Pass] = []
        for clip, wave in enumerate(waves):
            error = self._unusable(wave)
            if error is not None:
                errors[clip] = error
            else:
                passes += [_Pass(clip, part) for part in self._split(wave)]
        scored: list[list[_PassResult]] = [[] for _ in waves]
        for batch in self._batches(passes):
            for item, result in zip(batch, self._score(batch), strict=True):
                if isinstance(result, EmotionError):
                    errors.setdefault(item.clip, result)
                else:
                    scored[item.clip].append(result)
        return [
            errors[clip] if clip in errors else self._join(parts, frame_embeddings)
            for clip, parts in enumerate(scored)
        ]

    def _build(self, dtype: torch.dtype) -> Encoder:
        with torch.device("meta"):
            encoder = Encoder(self.config, len(self.checkpoint.tokens))
        weights = {
            name: tensor.to(self.device, dtype) for name, tensor in self.checkpoint.weights.items()
        }
        encoder.load_state_dict(weights, assign=True)
        encoder.set_slopes(self.device)
        pack_layers(encoder)
        return encoder.eval().requires_grad_(False)

    def _unusable(self, wave: Samples) -> EmotionError | None:
        if not isinstance(wave, np.ndarray):
            message = f"A clip must be an array of float32 samples, not {type(wave).__name__}."
            return EmotionError("invalid_request", message)
        if wave.ndim != 1 or wave.dtype != np.float32:
            return EmotionError(
                "invalid_request",
                f"A clip must be one row of float32 samples, not {wave.ndim}-D {wave.dtype}.",
            )
        shortest = self.config.receptive_field
        if wave.size < shortest:
            return EmotionError(
                "audio_too_short",
                f"The audio has {wave.size} samples at 16 kHz; the model needs {shortest}.",
            )
        if not np.isfinite(wave).all():
            return EmotionError("non_finite_audio", "The audio holds samples that are not finite.")
        return None

    def _split(self, wave: Samples) -> Iterator[Samples]:
        for first, end in pass_bounds(
            wave.size, round(self.pass_seconds * MODEL_RATE), TAIL_SECONDS * MODEL_RATE
        ):
            yield wave[first:end]

    def _batches(self, passes: Sequence[_Pass]) -> Iterator[list[_Pass]]:
        batch: list[_Pass] = []
        frames = 0
        for item in passes:
            count = self.config.frames(item.samples.size)
            if batch and frames + count > MAX_BATCH_FRAMES:
                yield batch
                batch, frames = [], 0
            batch.append(item)
            frames += count
        if batch:
            yield batch

    def _score(self, batch: Sequence[_Pass]) -> list[_PassResult | EmotionError]:
        """One encoder call; what is not finite is repeated alone in float32."""
        try:
            outputs = self._encode(self.encoder, [item.samples for item in batch])
        except torch.OutOfMemoryError:
            if len(batch) == 1:
                raise
            # another process may have taken memory since the limits were set: two halves need less
            torch.cuda.empty_cache()
            middle = len(batch) // 2
            return [*self._score(batch[:middle]), *self._score(batch[middle:])]
        results: list[_PassResult | EmotionError] = []
        for item, (logits, features) in zip(batch, outputs, strict=True):
            if np.isfinite(features).all() and np.isfinite(logits).all():
                results.append(_PassResult(logits, features))
            else:
                results.append(self._retry(item))
        return results

    def _retry(self, item: _Pass) -> _PassResult | EmotionError:
        with self._lock:
            self._retries += 1
            if self._exact is None:
                self._exact = self._build(torch.float32)
        [(logits, features)] = self._encode(self._exact, [item.samples])
        if np.isfinite(features).all() and np.isfinite(logits).all():
            return _PassResult(logits, features)
        return EmotionError("non_finite_audio", "The features of the audio are not finite.")

    @torch.inference_mode()
    def _encode(
        self, encoder: Encoder, waves: Sequence[Samples]
    ) -> list[tuple[NDArray[np.float32], NDArray[np.float32]]]:
        tensors = [
            torch.from_numpy(np.require(wave, requirements=("C", "W"))).to(self.device)
            for wave in waves
        ]
        features, packing = encoder(tensors)
        self.padding_ratio = 1 - packing.token_bounds[-1] / packing.tokens.numel()
        logits = encoder.classify(features)[:, self.columns]
        return list(
            zip(_to_numpy(logits, packing.frames), _to_numpy(features, packing.frames), strict=True)
        )

    def _join(self, parts: Sequence[_PassResult], frame_embeddings: bool) -> Emotions:
        features = np.concatenate([part.features for part in parts])
        return Emotions(
            labels=self.labels,
            frame_logits=np.concatenate([part.logits for part in parts]),
            pass_frames=tuple(len(part.logits) for part in parts),
            embedding=features.mean(axis=0, dtype=np.float64).astype(np.float32),
            frame_embeddings=features if frame_embeddings else None,
        )


def _to_numpy(values: Tensor, frames: Sequence[int]) -> list[NDArray[np.float32]]:
    rows = values.float().cpu().numpy()
    return np.split(rows, np.cumsum(frames)[:-1])
