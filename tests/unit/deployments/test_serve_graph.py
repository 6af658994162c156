"""How calls travel between the deployments, and what becomes of those whose replica is lost."""

import asyncio
from typing import Any

import grpc
import numpy as np
import pytest
from ray.exceptions import ActorDiedError

from deployments.cache import ServeCache
from deployments.serve_graph import LARGE_BYTES, MAX_TRIES, ServeGraph
from deployments.wire import AudioPass
from engine.errors import EmotionError


class Handle:
    """A handle whose calls end as told; remembers the options under which each was made."""

    def __init__(self, *endings: Any) -> None:
        self.endings = list(endings)
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self._options: dict[str, Any] = {}

    def options(self, **options: Any) -> "Handle":
        other = Handle()
        other.endings, other.calls, other._options = self.endings, self.calls, options
        return other

    def __getattr__(self, method: str) -> "Handle":
        self._method = method
        return self

    async def remote(self, *_: Any) -> Any:
        self.calls.append((self._method, self._options))
        ending = self.endings.pop(0)
        if isinstance(ending, BaseException):
            raise ending
        return ending


def audio(samples: int, frame_embeddings: bool = False) -> AudioPass:
    return AudioPass(np.zeros(samples, np.int16), 16_000, frame_embeddings)


def lost_call() -> grpc.aio.AioRpcError:
    nothing = grpc.aio.Metadata()
    return grpc.aio.AioRpcError(grpc.StatusCode.CANCELLED, nothing, nothing)


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    async def at_once(_: float) -> None:
        return None

    monkeypatch.setattr(asyncio, "sleep", at_once)


@pytest.mark.parametrize(
    ("sent", "by_reference"),
    [
        (audio(16_000), False),
        (audio(LARGE_BYTES // 2), False),
        (audio(LARGE_BYTES // 2 + 1), True),
        (audio(16_000, frame_embeddings=True), True),
    ],
)
async def test_payloads_travel_in_the_call_unless_they_are_large(
    sent: AudioPass, by_reference: bool
) -> None:
    handle = Handle("regions", "scored")
    graph = ServeGraph(handle, handle, 1.0)
    await graph.speech(sent)
    await graph.score(sent)
    options = {"_by_reference": by_reference}
    assert handle.calls == [("speech", options), ("score", options)]


async def test_the_cache_is_asked_in_the_call() -> None:
    handle = Handle(b"value", None)
    cache = ServeCache(handle)
    assert await cache.get(b"key") == b"value"
    await cache.put(b"key", b"value")
    assert handle.calls == [("get", {"_by_reference": False}), ("put", {"_by_reference": False})]


@pytest.mark.parametrize("loss", [ActorDiedError(), lost_call()])
async def test_a_lost_call_is_made_again_and_at_last_given_up(loss: Exception) -> None:
    handle = Handle(loss, loss, loss, "scored")
    graph = ServeGraph(handle, handle, 1.0)
    assert await graph.score(audio(100)) == "scored"
    handle.endings[:] = [loss] * MAX_TRIES
    with pytest.raises(EmotionError, match=f"lost {MAX_TRIES} times"):
        await graph.score(audio(100))


async def test_without_a_replica_the_model_is_not_ready_and_the_cache_misses() -> None:
    with pytest.raises(EmotionError, match="still loading"):
        await ServeGraph(Handle(), Handle(lost_call()), 1.0).info()
    cache = ServeCache(Handle(lost_call(), lost_call()))
    assert await cache.get(b"key") is None
    await cache.put(b"key", b"value")
