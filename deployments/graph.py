"""The graph as the service sees it: one pass of audio at a time. No Ray here."""

from typing import Protocol

from deployments.wire import AudioPass, ModelInfo, OtherModel, Preprocessed, Scored

SpeechRegions = tuple[tuple[float, float], ...]
"""Regions of speech in seconds from the beginning of the pass, in order, disjoint."""


class Graph(Protocol):
    """What the service needs of the deployments; tests put a fake here.

    Every call raises `EmotionError` where the pass cannot be worked on, or not in time
    (`timeout`); calls that a lost replica took with it are repeated.
    """

    async def prepare(self, audio: AudioPass, denoise: bool) -> Preprocessed:
        """Bring a pass to 16 kHz, denoised if asked for."""

    async def speech(self, audio: AudioPass) -> SpeechRegions:
        """Where there is speech in a pass."""

    async def score(self, audio: AudioPass) -> Scored | OtherModel:
        """Score a pass of 16 kHz."""

    async def info(self) -> ModelInfo:
        """Facts about the model; `not_ready` while no replica answers."""
