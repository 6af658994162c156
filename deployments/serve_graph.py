"""The graph over Ray Serve handles; calls that a lost replica took with it are repeated."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from ray.exceptions import RayActorError
from ray.serve.exceptions import BackPressureError, DeploymentUnavailableError

from deployments.graph import PassResult
from deployments.wire import AudioPass, ModelInfo, Preprocessed
from engine.errors import EmotionError

MAX_TRIES = 4
"""One call and three retries: inference has no side effects, so a lost call may be repeated."""

INFO_SECONDS = 2.0
"""Longest wait for a model replica to say what it is."""

T = TypeVar("T")


class ServeGraph:
    """Implements `deployments.graph.Graph`."""

    def __init__(self, preprocess: Any, model: Any) -> None:
        self._preprocess = preprocess
        self._model = model

    async def score(self, audio: AudioPass, timeout_seconds: float) -> PassResult:
        """See `Graph`."""
        try:
            async with asyncio.timeout(timeout_seconds):
                ready: Preprocessed = await _retried(lambda: self._preprocess.run.remote(audio))
                result = await _retried(lambda: self._model.score.remote(ready.audio))
        except TimeoutError:
            raise EmotionError(
                "timeout", f"the answer took longer than the limit of {timeout_seconds:g} s"
            ) from None
        if isinstance(result, EmotionError):
            raise result
        return PassResult(result, ready.preprocess_ms)

    async def info(self) -> ModelInfo:
        """See `Graph`."""
        try:
            async with asyncio.timeout(INFO_SECONDS):
                info: ModelInfo = await self._model.info.remote()
        except (TimeoutError, RayActorError, DeploymentUnavailableError, BackPressureError):
            raise EmotionError("not_ready", "the model is still loading") from None
        return info


async def _retried(call: Callable[[], Awaitable[T]]) -> T:
    for tried in range(1, MAX_TRIES + 1):
        try:
            return await call()
        except RayActorError:
            # the replica died with the call: Serve does not repeat what it had accepted
            if tried == MAX_TRIES:
                raise EmotionError(
                    "internal", f"the model was lost {MAX_TRIES} times while it worked on this"
                ) from None
            await asyncio.sleep(0.05 * 2**tried)
    raise AssertionError("unreachable")
