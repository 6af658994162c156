"""The graph as the service sees it: one pass of audio in, scores out. No Ray here."""

from dataclasses import dataclass
from typing import Protocol

from deployments.wire import AudioPass, ModelInfo, Scored


@dataclass(frozen=True, slots=True)
class PassResult:
    """Scores of a pass and what it took; `preprocess_ms` is the deployment's own time."""

    scored: Scored
    preprocess_ms: float


class Graph(Protocol):
    """What the service needs of the deployments; tests put a fake here."""

    async def score(self, audio: AudioPass, timeout_seconds: float) -> PassResult:
        """Preprocess and score one pass.

        Raises:
            EmotionError: the pass cannot be scored, or not in time (`timeout`).
        """

    async def info(self) -> ModelInfo:
        """Facts about the model; `not_ready` while no replica answers."""
