"""What the cache's key is made of, and what its value holds.

The value is what the model said (frame logits, mean embedding, speech regions) and what the
file was, so that one entry answers every granularity, window and choice of labels.
"""

import asyncio
import hashlib
import pickle
from dataclasses import dataclass, replace
from typing import Protocol

from deployments.wire import ModelInfo
from engine.audio.types import SourceReport
from engine.timeline import HeardPass
from serve_app.bodies import Body
from serve_app.parameters import Parameters

CHUNK_BYTES = 1 << 20
THREAD_BYTES = 1 << 20
"""Bodies above this are hashed off the event loop."""


class CacheStore(Protocol):
    """Where values lie; see `deployments.cache`."""

    async def get(self, key: bytes) -> bytes | None:
        """The value, or None."""

    async def put(self, key: bytes, value: bytes) -> None:
        """Keep a value."""


@dataclass(frozen=True, slots=True)
class HeardStream:
    """All heard passes of one stream, and its report."""

    passes: tuple[HeardPass, ...]
    report: SourceReport


class HeardCache:
    """Heard audio by its content."""

    def __init__(self, store: CacheStore) -> None:
        self._store = store
        self._writing: set[asyncio.Task[None]] = set()

    async def key(self, body: Body, parameters: Parameters, info: ModelInfo, speech: bool) -> bytes:
        """Hash of the body, the model and everything that changes what the model hears."""
        heard = (info.model, info.revision, info.dtype, speech, *parameters.heard_key())
        if isinstance(body, bytes) and len(body) < THREAD_BYTES:
            return _digest(body, repr(heard).encode())
        return await asyncio.to_thread(_digest, body, repr(heard).encode())

    async def get(self, key: bytes) -> list[HeardStream] | None:
        """The streams heard before, or None."""
        value = await self._store.get(key)
        if value is None:
            return None
        streams: list[HeardStream] = pickle.loads(value)
        return streams

    def put_soon(self, key: bytes, streams: list[HeardStream]) -> None:
        """Keep streams; the answer does not wait for it."""
        task = asyncio.create_task(self._put(key, streams))
        self._writing.add(task)
        task.add_done_callback(self._writing.discard)

    async def _put(self, key: bytes, streams: list[HeardStream]) -> None:
        # without the features of single frames: those would fill the cache
        slim = [
            replace(s, passes=tuple(replace(p, frame_embeddings=None) for p in s.passes))
            for s in streams
        ]
        await self._store.put(key, pickle.dumps(slim, pickle.HIGHEST_PROTOCOL))


def _digest(body: Body, suffix: bytes) -> bytes:
    digest = hashlib.sha256()
    if isinstance(body, bytes):
        digest.update(body)
    else:
        body.seek(0)
        while chunk := body.read(CHUNK_BYTES):
            digest.update(chunk)
        body.seek(0)
    # the suffix cannot be mistaken for the body's end: the body's own hash stands between
    return hashlib.sha256(digest.digest() + suffix).digest()
