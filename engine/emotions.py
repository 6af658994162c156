"""What the model says about one clip."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from engine.labels import label_name

Floats = NDArray[np.float32]


def softmax(logits: Floats) -> Floats:
    """Probabilities over the last axis, float32."""
    shifted = logits.astype(np.float64) - logits.max(axis=-1, keepdims=True, initial=-np.inf)
    powers = np.exp(shifted)
    result: Floats = (powers / powers.sum(axis=-1, keepdims=True)).astype(np.float32)
    return result


def mean_logits(frame_logits: Floats) -> Floats:
    """Mean over frames [T, n] → [n]; `proj(mean(x)) = mean(proj(x))`, so this is the utterance."""
    mean: Floats = frame_logits.mean(axis=0, dtype=np.float64).astype(np.float32)
    return mean


@dataclass(frozen=True, slots=True)
class Emotions:
    """Scores and embeddings of one clip.

    Attributes:
        labels: tokens of the checkpoint, in its order, `unuse…` left out.
        frame_logits: float32 [T, n_labels], one row per frame (20 ms), passes one after the other.
        pass_frames: frames of each pass; one number for clips up to `pass_seconds`.
        embedding: float32 [D], mean of the features over all frames.
        frame_embeddings: float32 [T, D] where it was asked for.
    """

    labels: tuple[str, ...]
    frame_logits: Floats
    pass_frames: tuple[int, ...]
    embedding: Floats
    frame_embeddings: Floats | None = None

    @property
    def scores(self) -> dict[str, float]:
        """Probability of each label, by English name, highest first."""
        if not self.labels:
            return {}
        return sorted_scores(self.labels, softmax(mean_logits(self.frame_logits)))

    @property
    def label(self) -> str:
        """The most probable label; "" for a model without a classifier."""
        return next(iter(self.scores), "")

    @property
    def score(self) -> float:
        """Probability of `label`; 0.0 for a model without a classifier."""
        return next(iter(self.scores.values()), 0.0)


def sorted_scores(
    labels: Sequence[str], probabilities: Floats, language: str = "en"
) -> dict[str, float]:
    """Names and probabilities, highest first; equal ones keep the checkpoint's order."""
    order = np.argsort(-probabilities, kind="stable")
    return {label_name(labels[i], language): float(probabilities[i]) for i in order}
