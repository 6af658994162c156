"""Distances between results: how far two ways to hear the same clips are apart."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.clips import Samples
from benchmarks.report import OutputsDiffer
from engine.emotions import Emotions, mean_logits, softmax
from engine.engine import Engine


@dataclass(frozen=True, slots=True)
class Distance:
    """Between two lists of results for the same clips.

    Attributes:
        features: largest difference of a feature of any frame.
        scores: largest difference of a score.
        same_top: share of clips with the same top label.
    """

    features: float
    scores: float
    same_top: float


def distance(ours: Sequence[Emotions], theirs: Sequence[Emotions]) -> Distance:
    """Both with frame embeddings, clip by clip; what is not a number counts as infinite."""
    pairs = list(zip(ours, theirs, strict=True))
    return Distance(
        max(_largest(_frames(a), _frames(b)) for a, b in pairs),
        max(_largest(_scores(a), _scores(b)) for a, b in pairs),
        sum(a.label == b.label for a, b in pairs) / len(pairs),
    )


def company(engine: Engine, waves: Sequence[Samples]) -> Distance:
    """Each clip alone against the same clips in one batch."""
    alone = [engine.infer([wave], frame_embeddings=True)[0] for wave in waves]
    return distance(engine.infer(waves, frame_embeddings=True), alone)


def require(sentence: str, value: float, limit: float) -> str:
    """`sentence` with the value and its limit.

    Raises:
        OutputsDiffer: the value is above the limit, or no number.
    """
    if not value <= limit:
        raise OutputsDiffer(f"{sentence}: {value:.1e}, more than {limit:.0e}")
    return f"{sentence}: within {value:.1e} (limit {limit:.0e})"


def _largest(one: Samples, other: Samples) -> float:
    if one.shape != other.shape:
        return float("inf")
    difference = np.abs(one.astype(np.float64) - other)
    return float(np.where(np.isnan(difference), np.inf, difference).max(initial=0.0))


def _frames(result: Emotions) -> Samples:
    assert result.frame_embeddings is not None
    return result.frame_embeddings


def _scores(result: Emotions) -> Samples:
    return softmax(mean_logits(result.frame_logits))
