"""The cache of heard audio: one replica, shared by all ingress replicas, bounded in bytes.

It holds opaque values: what a key is made of and what a value holds is the service's business.
A deployment of its own, so that it ends with the application; lost with its replica, which
costs only the work done again.
"""

import asyncio
import logging
from collections import OrderedDict
from typing import Any

import grpc
from ray import serve
from ray.exceptions import RayError
from ray.serve.exceptions import RayServeException

from deployments.wire import IN_THE_CALL

logger = logging.getLogger("ray.serve")


class ByteCache:
    """Least recently used values go first; one above the limit is not kept."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._values: OrderedDict[bytes, bytes] = OrderedDict()
        self.bytes_held = 0

    def get(self, key: bytes) -> bytes | None:
        """The value, which becomes the most recently used."""
        value = self._values.get(key)
        if value is not None:
            self._values.move_to_end(key)
        return value

    def put(self, key: bytes, value: bytes) -> None:
        """Keep `value`, dropping others until it fits."""
        size = _entry_bytes(key, value)
        if size > self._max_bytes:
            return
        if (old := self._values.pop(key, None)) is not None:
            self.bytes_held -= _entry_bytes(key, old)
        self._values[key] = value
        self.bytes_held += size
        while self.bytes_held > self._max_bytes:
            self.bytes_held -= _entry_bytes(*self._values.popitem(last=False))


ENTRY_OVERHEAD_BYTES = 300
"""What the dictionary and two byte objects cost besides their contents, about."""


def _entry_bytes(key: bytes, value: bytes) -> int:
    return len(key) + len(value) + ENTRY_OVERHEAD_BYTES


@serve.deployment
class Cache:
    """`ByteCache` behind handle calls."""

    def __init__(self, max_bytes: int) -> None:
        self._cache = ByteCache(max_bytes)

    async def get(self, key: bytes) -> bytes | None:
        """See `ByteCache.get`."""
        return self._cache.get(key)

    async def put(self, key: bytes, value: bytes) -> None:
        """See `ByteCache.put`."""
        self._cache.put(key, value)


LOOKUP_SECONDS = 0.5
"""Longest wait for the cache: while its replica is replaced, requests go on without it."""


UNREACHABLE = (RayError, RayServeException, grpc.RpcError)
"""What a call ends with whose replica is not there, or no longer."""


class ServeCache:
    """The ingress's side: a cache that cannot be reached is a miss, never an error."""

    def __init__(self, handle: Any) -> None:
        self._handle = handle.options(**IN_THE_CALL)

    async def get(self, key: bytes) -> bytes | None:
        """The value, or None."""
        try:
            async with asyncio.timeout(LOOKUP_SECONDS):
                value: bytes | None = await self._handle.get.remote(key)
        except (*UNREACHABLE, TimeoutError) as error:
            logger.warning("the cache did not answer: %s", type(error).__name__)
            return None
        return value

    async def put(self, key: bytes, value: bytes) -> None:
        """Keep a value."""
        try:
            await self._handle.put.remote(key, value)
        except UNREACHABLE as error:
            logger.warning("the cache did not answer: %s", type(error).__name__)
