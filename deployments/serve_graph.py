"""The graph over Ray Serve handles; calls that a lost replica took with it are repeated."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import grpc
from ray.exceptions import RayActorError
from ray.serve.exceptions import BackPressureError, DeploymentUnavailableError

from deployments.graph import SpeechRegions
from deployments.wire import (
    IN_THE_CALL,
    AudioPass,
    ModelInfo,
    OtherModel,
    Preprocessed,
    Result,
    Scored,
)
from engine.errors import EmotionError

MAX_TRIES = 4
"""One call and three retries: inference has no side effects, so a lost call may be repeated."""

LARGE_BYTES = 10**6
"""Samples of more than this go through Ray's object store: gRPC takes twice as long for 6 MB, the
object store four times as long for 300 kB (measured)."""

LOST = (RayActorError, grpc.RpcError)
"""What a call ends with whose replica died: which of them depends on where the call was."""

INFO_SECONDS = 2.0
"""Longest wait for a model replica to say what it is."""

T = TypeVar("T")


class _Route:
    """A deployment's handle for small payloads, in the call, and for large ones, beside it."""

    def __init__(self, handle: Any) -> None:
        self.small = handle.options(**IN_THE_CALL)
        self._large = handle.options(_by_reference=True)

    def fit(self, audio: AudioPass) -> Any:
        """The handle for this pass and its answer."""
        large = audio.frame_embeddings or audio.samples.nbytes > LARGE_BYTES
        return self._large if large else self.small


class ServeGraph:
    """Implements `deployments.graph.Graph`."""

    def __init__(self, preprocess: Any, model: Any, timeout_seconds: float) -> None:
        self._preprocess = _Route(preprocess)
        self._model = _Route(model)
        self._timeout_seconds = timeout_seconds

    async def prepare(self, audio: AudioPass, denoise: bool) -> Preprocessed:
        """See `Graph`."""
        if audio.at_model_rate and not denoise:
            # nothing to do, so one hop and two copies fewer
            return Preprocessed(audio, 0.0)
        return await self._call(lambda: self._preprocess.fit(audio).run.remote(audio, denoise))

    async def speech(self, audio: AudioPass) -> SpeechRegions:
        """See `Graph`."""
        return await self._call(lambda: self._preprocess.fit(audio).speech.remote(audio))

    async def score(self, audio: AudioPass) -> Scored | OtherModel:
        """See `Graph`."""
        result: Result = await self._call(lambda: self._model.fit(audio).score.remote(audio))
        if isinstance(result, EmotionError):
            raise result
        return result

    async def info(self) -> ModelInfo:
        """See `Graph`."""
        try:
            async with asyncio.timeout(INFO_SECONDS):
                info: ModelInfo = await self._model.small.info.remote()
        except (TimeoutError, *LOST, DeploymentUnavailableError, BackPressureError):
            raise EmotionError("not_ready", "The model is still loading.") from None
        return info

    async def _call(self, call: Callable[[], Awaitable[T]]) -> T:
        limit = self._timeout_seconds
        try:
            async with asyncio.timeout(limit):
                return await _retried(call)
        except TimeoutError:
            message = f"One pass of audio took longer than the limit of {limit:g} s."
            raise EmotionError("timeout", message) from None


async def _retried(call: Callable[[], Awaitable[T]]) -> T:
    for tried in range(1, MAX_TRIES):
        try:
            return await call()
        except LOST:
            # the replica died with the call: Serve does not repeat what it had accepted
            await asyncio.sleep(0.05 * 2**tried)
    try:
        return await call()
    except LOST:
        message = f"The model was lost {MAX_TRIES} times while it worked on this audio."
        raise EmotionError("internal", message) from None
